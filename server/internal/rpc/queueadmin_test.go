package rpc

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// eachAdmin runs a subtest for every protocol, with a client that has all actions of the capability
// admin, and the name of a topic that does not exist.
func (b *queueBundle) eachAdmin(f func(t *testing.T, topic string, c parleyv1connect.AdminServiceClient)) {
	token := b.mintAs(operator("ada"))
	for i, p := range protocols {
		b.t.Run(p.name, func(t *testing.T) {
			hc, url, opts := b.over(i, token)
			f(t, "of-"+p.name, parleyv1connect.NewAdminServiceClient(hc, url, opts...))
		})
	}
}

// Topics and groups keep all settings that they are created and updated with.
func TestQueueTopics(t *testing.T) {
	t.Parallel()
	b := queueSetup(t, nil)
	ignored := protocmp.IgnoreFields(&parleyv1.Topic{}, "create_time")
	b.eachAdmin(func(t *testing.T, name string, c parleyv1connect.AdminServiceClient) {
		want := &parleyv1.Topic{
			Name: name, Partitions: 3, Partitioner: parleyv1.Partitioner_PARTITIONER_ROUND_ROBIN,
			Retention: &parleyv1.TopicRetention{
				MaxAge: durationpb.New(time.Hour), MaxMessages: 5, DeadLetterMaxAge: durationpb.New(2 * time.Hour), MaxDeadLetters: 6,
			},
			MaxMessagesPerPartition: 7, DropOldest: true, IdempotencyWindow: durationpb.New(time.Minute),
		}
		made, err := c.CreateTopic(t.Context(), &parleyv1.CreateTopicRequest{Topic: want})
		if diff := cmp.Diff(want, made.GetTopic(), protocmp.Transform(), ignored); diff != "" || err != nil {
			t.Fatal(diff, err)
		}
		if age := time.Since(made.GetTopic().GetCreateTime().AsTime()).Abs(); age > time.Minute {
			t.Errorf("created %v ago", age)
		}
		_, err = c.CreateTopic(t.Context(), &parleyv1.CreateTopicRequest{Topic: want})
		if connect.CodeOf(err) != connect.CodeAlreadyExists {
			t.Errorf("again: %v", err)
		}
		for i, path := range []string{"partitions", "retention", "max_messages_per_partition", "drop_oldest", "idempotency_window"} {
			change := &parleyv1.Topic{Name: name, Partitions: 4, MaxMessagesPerPartition: 9, Retention: &parleyv1.TopicRetention{MaxMessages: 10}}
			_, err := c.UpdateTopic(t.Context(), &parleyv1.UpdateTopicRequest{Topic: change, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{path}}})
			if err != nil {
				t.Fatal(i, err)
			}
		}
		want.Partitions, want.MaxMessagesPerPartition, want.DropOldest, want.IdempotencyWindow = 4, 9, false, durationpb.New(10*time.Minute)
		want.Retention = &parleyv1.TopicRetention{MaxAge: &durationpb.Duration{}, MaxMessages: 10, DeadLetterMaxAge: &durationpb.Duration{}, MaxDeadLetters: 100_000}
		for mask, reason := range map[string]string{"": "INVALID_FIELD", "name": "INVALID_FIELD", "partitioner": "INVALID_FIELD"} {
			r := &parleyv1.UpdateTopicRequest{Topic: want, UpdateMask: &fieldmaskpb.FieldMask{}}
			if mask != "" {
				r.UpdateMask.Paths = []string{mask}
			}
			if _, err := c.UpdateTopic(t.Context(), r); refusedAs(t, err) != `invalid_argument `+reason+` "update_mask" 0` {
				t.Errorf("mask %q: %v", mask, err)
			}
		}
		if paused, err := c.SetTopicPaused(t.Context(), &parleyv1.SetTopicPausedRequest{Topic: name, Paused: true}); err != nil || !paused.GetTopic().GetPaused() {
			t.Errorf("%v, %v", paused, err)
		}
		want.Paused = true
		group := b.testGroups(t, c, name)
		want.Groups = []string{group}
		got, err := c.GetTopic(t.Context(), &parleyv1.GetTopicRequest{Topic: name})
		if diff := cmp.Diff(want, got.GetTopic(), protocmp.Transform(), ignored); diff != "" || err != nil {
			t.Error(diff, err)
		}
		repaired, err := c.RepairTopic(t.Context(), &parleyv1.RepairTopicRequest{Topic: name})
		if diff := cmp.Diff(want, repaired.GetTopic(), protocmp.Transform(), ignored); diff != "" || err != nil || len(repaired.GetRepaired()) > 0 {
			t.Error(diff, err, repaired)
		}
		if _, err = c.DeleteTopic(t.Context(), &parleyv1.DeleteTopicRequest{Topic: name, Confirm: "x"}); connect.CodeOf(err) != connect.CodeFailedPrecondition {
			t.Errorf("deleted without the name: %v", err)
		}
		if _, err = c.DeleteTopic(t.Context(), &parleyv1.DeleteTopicRequest{Topic: name, Confirm: name}); err != nil {
			t.Error(err)
		}
		if _, err = c.GetTopic(t.Context(), &parleyv1.GetTopicRequest{Topic: name}); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("a deleted topic: %v", err)
		}
	})
}

// testGroups checks the calls about groups of a topic and leaves one, whose name it returns.
func (b *queueBundle) testGroups(t *testing.T, c parleyv1connect.AdminServiceClient, topic string) string {
	t.Helper()
	attempts := int32(5)
	want := &parleyv1.Group{
		Name: "g", Mode: parleyv1.GroupMode_GROUP_MODE_EXCLUSIVE, Order: parleyv1.DeliveryOrder_DELIVERY_ORDER_NONE,
		Retry: &parleyv1.RetryPolicy{
			MaxAttempts: &attempts, MinBackoff: durationpb.New(time.Second), MaxBackoff: durationpb.New(time.Minute), NonRetryableCodes: []string{"a"},
		},
		AckTimeout: durationpb.New(time.Minute), HandlerTimeout: durationpb.New(2 * time.Minute), MaxRunTime: durationpb.New(time.Hour),
		ResumeGrace: durationpb.New(20 * time.Second),
		Start:       &parleyv1.GroupStart{Start: &parleyv1.GroupStart_Time{Time: timestamppb.New(time.Unix(1e9, 0))}},
	}
	made, err := c.CreateGroup(t.Context(), &parleyv1.CreateGroupRequest{Topic: topic, Group: want})
	if diff := cmp.Diff(want, made.GetGroup(), protocmp.Transform()); diff != "" || err != nil {
		t.Fatal(diff, err)
	}
	plain, err := c.CreateGroup(t.Context(), &parleyv1.CreateGroupRequest{Topic: topic, Group: &parleyv1.Group{
		Name: "h", Start: &parleyv1.GroupStart{Start: &parleyv1.GroupStart_Position{Position: parleyv1.StartPosition_START_POSITION_END}},
	}})
	if g := plain.GetGroup(); err != nil || g.GetMode() != parleyv1.GroupMode_GROUP_MODE_SHARED || g.GetOrder() != parleyv1.DeliveryOrder_DELIVERY_ORDER_KEY ||
		g.GetRetry().GetMaxAttempts() != 16 || g.GetAckTimeout().AsDuration() != 30*time.Second || g.GetStart().GetPosition() != parleyv1.StartPosition_START_POSITION_END {
		t.Errorf("%v, %v", g, err)
	}
	change := &parleyv1.Group{
		Name: "g", Order: parleyv1.DeliveryOrder_DELIVERY_ORDER_STRICT, AckTimeout: durationpb.New(9 * time.Second), HandlerTimeout: durationpb.New(8 * time.Second),
		MaxRunTime: durationpb.New(2 * time.Hour), ResumeGrace: durationpb.New(7 * time.Second),
	}
	for _, path := range []string{"order", "ack_timeout", "handler_timeout", "max_run_time", "resume_grace"} {
		_, err := c.UpdateGroup(t.Context(), &parleyv1.UpdateGroupRequest{Topic: topic, Group: change, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{path}}})
		if err != nil {
			t.Fatal(path, err)
		}
	}
	want.Order, want.AckTimeout, want.HandlerTimeout, want.MaxRunTime, want.ResumeGrace = change.GetOrder(), change.GetAckTimeout(), change.GetHandlerTimeout(), change.GetMaxRunTime(), change.GetResumeGrace()
	if _, err := c.SetGroupPaused(t.Context(), &parleyv1.SetGroupPausedRequest{Topic: topic, Group: "g", Paused: true}); err != nil {
		t.Error(err)
	}
	want.Paused = true
	got, err := c.GetGroup(t.Context(), &parleyv1.GetGroupRequest{Topic: topic, Group: "g"})
	if diff := cmp.Diff(want, got.GetGroup(), protocmp.Transform()); diff != "" || err != nil {
		t.Error(diff, err)
	}
	all, err := c.ListGroups(t.Context(), &parleyv1.ListGroupsRequest{Topic: topic})
	if err != nil || len(all.GetGroups()) != 2 || all.GetGroups()[0].GetName() != "g" || all.GetGroups()[1].GetName() != "h" {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := c.SeekGroup(t.Context(), &parleyv1.SeekGroupRequest{Topic: topic, Group: "h", Start: &parleyv1.GroupStart{
		Start: &parleyv1.GroupStart_Position{Position: parleyv1.StartPosition_START_POSITION_BEGINNING},
	}}); err != nil {
		t.Error(err)
	}
	if _, err := c.DeleteGroup(t.Context(), &parleyv1.DeleteGroupRequest{Topic: topic, Group: "h", Confirm: "h"}); err != nil {
		t.Error(err)
	}
	return "g"
}

// Lists of topics have pages, whose tokens are of no use to other subjects and calls.
func TestQueueTopicPages(t *testing.T) {
	t.Parallel()
	b := queueSetup(t, nil, "a", "b", "c", "d", "e")
	b.eachAdmin(func(t *testing.T, _ string, c parleyv1connect.AdminServiceClient) {
		var got []string
		token := ""
		for {
			r, err := c.ListTopics(t.Context(), &parleyv1.ListTopicsRequest{PageSize: 2, PageToken: token})
			if err != nil {
				t.Fatal(err)
			}
			for _, topic := range r.GetTopics() {
				got = append(got, topic.GetName())
			}
			if token = r.GetNextPageToken(); token == "" {
				break
			}
			got = append(got, "|")
			_, url, _ := b.over(0, "")
			eve := parleyv1connect.NewAdminServiceClient(b.h1, url, connect.WithInterceptors(bearer{b.mintAs(operator("eve"))}))
			if _, err := eve.ListTopics(t.Context(), &parleyv1.ListTopicsRequest{PageToken: token}); connect.CodeOf(err) != connect.CodePermissionDenied {
				t.Errorf("another subject's token: %v", err)
			}
		}
		if fmt.Sprint(got) != "[a b | c d | e]" {
			t.Errorf("got %s", strings.Join(got, " "))
		}
	})
}
