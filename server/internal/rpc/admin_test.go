package rpc

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue"
)

// refusedAs returns the code, reason, field and limit of a call's error; "ok" for nil.
func refusedAs(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return "ok"
	}
	d, _ := details(t, err)
	return fmt.Sprintf("%v %s %q %d", connect.CodeOf(err), d.GetReason().String()[len(reasonPrefix):], d.GetField(), d.GetLimit())
}

// fullTopic returns a topic with every setting, as a caller sends it and as package queue gets it.
func fullTopic() (*parleyv1.Topic, queue.Topic) {
	wire := &parleyv1.Topic{
		Name: "jobs", Partitions: 16, Partitioner: parleyv1.Partitioner_PARTITIONER_CONSISTENT_HASH, StrictOrder: true,
		Retry: &parleyv1.RetryPolicy{
			MaxAttempts: proto.Int32(7), MinBackoff: durationpb.New(time.Second), MaxBackoff: durationpb.New(time.Minute), NonRetryableCodes: []string{"E1"},
		},
		Retention: &parleyv1.TopicRetention{
			MaxAge: durationpb.New(time.Hour), MaxMessages: 9, DeadLetterMaxAge: durationpb.New(2 * time.Hour),
		},
		MaxMessagesPerPartition: 99, DropOldest: true, IdempotencyWindow: durationpb.New(time.Minute),
	}
	domain := queue.Topic{
		Name: "jobs", Partitions: 16, Partitioner: queue.ConsistentHash, StrictOrder: true,
		Retry:       queue.RetryPolicy{MaxAttempts: 7, MinBackoff: time.Second, MaxBackoff: time.Minute, NonRetryable: []string{"E1"}},
		Retention:   queue.Retention{MaxAge: time.Hour, MaxMessages: 9, DeadLetterAge: 2 * time.Hour},
		MaxMessages: 99, DropOldest: true, IdempotencyWindow: time.Minute,
	}
	return wire, domain
}

func TestCreateTopic(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	made := make(chan queue.Topic, 1)
	created := time.Date(2031, 2, 3, 4, 5, 6, 7e6, time.UTC)
	b.admin.create = func(t queue.Topic) (*queue.Topic, error) {
		made <- t
		t.CreatedAt, t.ConsumePaused, t.Groups = created, true, []queue.Group{{Name: "a"}, {Name: "b"}}
		return &t, nil
	}
	b.eachAdmin(func(t *testing.T, c parleyv1connect.AdminServiceClient) {
		wire, domain := fullTopic()
		// Output-only fields are ignored.
		asked := proto.CloneOf(wire)
		asked.CreateTime, asked.ProducePaused, asked.Groups = timestamppb.Now(), true, []string{"x"}
		resp, err := c.CreateTopic(t.Context(), &parleyv1.CreateTopicRequest{Topic: asked})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(domain, <-made); diff != "" {
			t.Error(diff)
		}
		wire.CreateTime, wire.ConsumePaused, wire.Groups = timestamppb.New(created), true, []string{"a", "b"}
		if diff := cmp.Diff(wire, resp.GetTopic(), protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
		if _, err := c.CreateTopic(t.Context(), &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: "bare"}}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(queue.Topic{Name: "bare"}, <-made); diff != "" {
			t.Error(diff)
		}
		for want, change := range map[string]func(*parleyv1.Topic){
			`invalid_argument INVALID_FIELD "topic.name" 0`:                            func(t *parleyv1.Topic) { t.Name = "__dlq" },
			`invalid_argument INVALID_FIELD "topic.partitions" 256`:                    func(t *parleyv1.Topic) { t.Partitions = 257 },
			`invalid_argument INVALID_FIELD "topic.retry.max_attempts" 1`:              func(t *parleyv1.Topic) { t.Retry.MaxAttempts = proto.Int32(0) },
			`invalid_argument INVALID_FIELD "topic.retry.max_attempts" 1000`:           func(t *parleyv1.Topic) { t.Retry.MaxAttempts = proto.Int32(1e9) },
			`invalid_argument INVALID_FIELD "topic.retry.min_backoff" 86400`:           func(t *parleyv1.Topic) { t.Retry.MinBackoff.Seconds = 86401 },
			`invalid_argument INVALID_FIELD "topic.retry.non_retryable_codes" 32`:      func(t *parleyv1.Topic) { t.Retry.NonRetryableCodes = make([]string, 33) },
			`invalid_argument INVALID_FIELD "topic.retry.non_retryable_codes[0]" 0`:    func(t *parleyv1.Topic) { t.Retry.NonRetryableCodes = []string{"a b"} },
			`invalid_argument INVALID_FIELD "topic.idempotency_window" 604800`:         func(t *parleyv1.Topic) { t.IdempotencyWindow.Seconds = 604801 },
			`invalid_argument INVALID_FIELD "topic.idempotency_window" 1`:              func(t *parleyv1.Topic) { t.IdempotencyWindow.Seconds = 0 },
			`invalid_argument INVALID_FIELD "topic.retention.max_age" 31622400`:        func(t *parleyv1.Topic) { t.Retention.MaxAge.Seconds = 1 << 30 },
			`invalid_argument INVALID_FIELD "topic.max_messages_per_partition" 0`:      func(t *parleyv1.Topic) { t.MaxMessagesPerPartition = -1 },
			`invalid_argument INVALID_FIELD "topic.retention.max_messages" 1000000000`: func(t *parleyv1.Topic) { t.Retention.MaxMessages = 1e9 + 1 },
			`invalid_argument INVALID_FIELD "topic.partitioner" 0`:                     func(t *parleyv1.Topic) { t.Partitioner = 9 },
			`invalid_argument INVALID_FIELD "topic" 0`:                                 nil,
		} {
			bad, _ := fullTopic()
			if change == nil {
				bad = nil
			} else {
				change(bad)
			}
			_, err := c.CreateTopic(t.Context(), &parleyv1.CreateTopicRequest{Topic: bad})
			if got := refusedAs(t, err); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	})
}

// UpdateTopic changes only the fields that the mask names.
func TestUpdateTopicMask(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	was := queue.Topic{Name: "jobs", Partitions: 1, Retry: queue.DefaultRetry(), IdempotencyWindow: time.Hour, Groups: []queue.Group{{Name: "g"}}}
	b.admin.update = func(name string, change func(*queue.Topic) error) (*queue.Topic, error) {
		now := was
		now.Name = name
		for range 2 { // as after a conflict
			now = was
			if err := change(&now); err != nil {
				return nil, err
			}
		}
		return &now, nil
	}
	wire, full := fullTopic()
	set := map[string]func(*queue.Topic){
		"partitions":                 func(t *queue.Topic) { t.Partitions = full.Partitions },
		"retry":                      func(t *queue.Topic) { t.Retry = full.Retry },
		"retention":                  func(t *queue.Topic) { t.Retention = full.Retention },
		"max_messages_per_partition": func(t *queue.Topic) { t.MaxMessages = full.MaxMessages },
		"drop_oldest":                func(t *queue.Topic) { t.DropOldest = true },
		"idempotency_window":         func(t *queue.Topic) { t.IdempotencyWindow = full.IdempotencyWindow },
	}
	b.eachAdmin(func(t *testing.T, c parleyv1connect.AdminServiceClient) {
		update := func(topic *parleyv1.Topic, paths ...string) (*parleyv1.Topic, error) {
			resp, err := c.UpdateTopic(t.Context(), &parleyv1.UpdateTopicRequest{Topic: topic, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
			return resp.GetTopic(), err
		}
		check := func(paths ...string) {
			t.Helper()
			want := was
			for _, path := range paths {
				set[path](&want)
			}
			got, err := update(wire, paths...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(topicToWire(&want), got, protocmp.Transform()); diff != "" {
				t.Errorf("%q: %s", paths, diff)
			}
		}
		var all []string
		for path := range set {
			check(path)
			all = append(all, path)
		}
		check(all...)
		check("retry", "retry")
		// A setting that the mask names and the request leaves unset becomes zero, which the domain
		// replaces with its default.
		if got, err := update(&parleyv1.Topic{Name: "jobs"}, "retry"); err != nil || got.GetRetry().GetMaxAttempts() != 0 || got.GetIdempotencyWindow().AsDuration() != time.Hour {
			t.Errorf("unset: %v, %v", got, err)
		}
		for _, path := range []string{"name", "groups", "create_time", "produce_paused", "partitioner", "strict_order"} {
			if _, err := update(wire, "retry", path); refusedAs(t, err) != `invalid_argument INVALID_FIELD "update_mask" 0` {
				t.Errorf("%q: %v", path, err)
			}
		}
		many := make([]string, 17)
		for i := range many {
			many[i] = "retry"
		}
		if _, err := update(wire, many...); refusedAs(t, err) != `invalid_argument INVALID_FIELD "update_mask" 16` {
			t.Errorf("17 paths: %v", err)
		}
		for _, mask := range []*fieldmaskpb.FieldMask{nil, {}} {
			_, err := c.UpdateTopic(t.Context(), &parleyv1.UpdateTopicRequest{Topic: wire, UpdateMask: mask})
			if refusedAs(t, err) != `invalid_argument INVALID_FIELD "update_mask" 0` {
				t.Errorf("the mask %v: %v", mask, err)
			}
		}
	})
	// JSON can't express these masks, because its paths are in camel case. They are sent in binary.
	c := b.adminClient(1, b.mintAs(operator("ada")))
	for _, path := range []string{"*", "", "retry.max_attempts", "Retry", "retry\x00"} {
		_, err := c.UpdateTopic(t.Context(), &parleyv1.UpdateTopicRequest{Topic: wire, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{path}}})
		if d, _ := details(t, err); connect.CodeOf(err) != connect.CodeInvalidArgument || d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_INVALID_FIELD {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// Calls that remove things permanently pass the field confirm to the domain. Pause and resume pass
// the requested operations.
func TestAdminChanges(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	var did []string
	b.admin.remove = func(call, topic, group, confirm string, ids []string) error {
		did = append(did, fmt.Sprint(call, topic, group, confirm, ids))
		if confirm != "yes" {
			f := fault.New(fault.FailedPrecondition, fault.ConfirmationRequired, "no")
			f.Field = "confirm"
			return f
		}
		return nil
	}
	b.admin.pause = func(name string, produce, consume bool) (*queue.Topic, error) {
		return &queue.Topic{Name: name, ProducePaused: produce, ConsumePaused: consume}, nil
	}
	b.admin.resume = func(name string, produce, consume bool) (*queue.Topic, error) {
		return &queue.Topic{Name: name, ProducePaused: !produce, ConsumePaused: !consume}, nil
	}
	at := time.Date(2031, 2, 3, 4, 5, 6, 7_000_001, time.UTC)
	b.admin.group = func(topic string, g queue.Group) error {
		did = append(did, fmt.Sprint(topic, g.Name, g.Start.End, g.Start.Time.Equal(at.Add(time.Millisecond-1)), g.Start.Time.IsZero()))
		return nil
	}
	b.admin.trim = func(topic string, cut queue.Cut) (int64, int64, error) {
		did = append(did, fmt.Sprint(topic, cut))
		return 5, 3, nil
	}
	b.admin.replay = func(topic, group string, ids []string, limit int, to *int) (int64, bool, error) {
		if group == "gone" {
			f := fault.New(fault.NotFound, fault.GroupNotFound, "gone")
			f.Field = "group"
			return 0, false, f
		}
		p := -1
		if to != nil {
			p = *to
		}
		did = append(did, fmt.Sprint(topic, group, ids, limit, p))
		return 4, true, nil
	}
	b.eachAdmin(func(t *testing.T, c parleyv1connect.AdminServiceClient) {
		did = nil
		ctx := t.Context()
		byIDs, byGroup, all := selectIDs("0-1-1"), selectGroup("g"), selectAll()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		for _, confirm := range []string{"yes", ""} {
			_, err1 := c.DeleteTopic(ctx, &parleyv1.DeleteTopicRequest{Topic: "t", Confirm: confirm})
			_, err2 := c.DeleteGroup(ctx, &parleyv1.DeleteGroupRequest{Topic: "t", Group: "g", Confirm: confirm})
			errs := []error{err1, err2}
			for _, selection := range []*parleyv1.DeadLetterSelection{byIDs, byGroup, all} {
				_, err := c.PurgeDeadLetters(ctx, &parleyv1.PurgeDeadLettersRequest{Topic: "t", Selection: selection, Confirm: confirm})
				errs = append(errs, err)
			}
			for _, err := range errs {
				if want := map[string]string{"yes": "ok", "": `failed_precondition CONFIRMATION_REQUIRED "confirm" 0`}[confirm]; refusedAs(t, err) != want {
					t.Errorf("confirmed by %q: %v", confirm, err)
				}
			}
		}
		_, err := c.ReplayDeadLetters(ctx, &parleyv1.ReplayDeadLettersRequest{Topic: "t", Selection: selectGroup("gone")})
		if got := refusedAs(t, err); got != `not_found GROUP_NOT_FOUND "selection.group" 0` {
			t.Errorf("a group that is gone: %s", got)
		}
		produce, consume := parleyv1.TopicOperation_TOPIC_OPERATION_PRODUCE, parleyv1.TopicOperation_TOPIC_OPERATION_CONSUME
		for _, operations := range [][]parleyv1.TopicOperation{{produce}, {consume}, {produce, consume}, {consume, produce}} {
			p, err := c.PauseTopic(ctx, &parleyv1.PauseTopicRequest{Topic: "t", Operations: operations})
			must(err)
			r, err := c.ResumeTopic(ctx, &parleyv1.ResumeTopicRequest{Topic: "t", Operations: operations})
			must(err)
			for operation, paused := range map[parleyv1.TopicOperation][2]bool{
				produce: {p.GetTopic().GetProducePaused(), r.GetTopic().GetProducePaused()},
				consume: {p.GetTopic().GetConsumePaused(), r.GetTopic().GetConsumePaused()},
			} {
				named := slices.Contains(operations, operation)
				if paused != [2]bool{named, !named} {
					t.Errorf("%v: %v is paused by Pause and Resume: %v", operations, operation, paused)
				}
			}
		}
		for _, start := range []*parleyv1.GroupStart{
			nil,
			{Start: &parleyv1.GroupStart_Position{Position: parleyv1.StartPosition_START_POSITION_BEGINNING}},
			{Start: &parleyv1.GroupStart_Position{Position: parleyv1.StartPosition_START_POSITION_END}},
			{Start: &parleyv1.GroupStart_Time{Time: timestamppb.New(at)}},
		} {
			_, err := c.CreateGroup(ctx, &parleyv1.CreateGroupRequest{Topic: "t", Group: "g", Start: start})
			must(err)
			if start != nil {
				_, err = c.SeekGroup(ctx, &parleyv1.SeekGroupRequest{Topic: "t", Group: "g", Start: start})
				must(err)
			}
		}
		if r, err := c.TrimTopic(ctx, &parleyv1.TrimTopicRequest{Topic: "t", Keep: &parleyv1.TrimTopicRequest_MaxMessages{MaxMessages: 7}, Force: true}); err != nil || r.GetRemoved() != 5 || r.GetLost() != 3 {
			t.Errorf("trim: %v, %v", r, err)
		}
		_, err = c.TrimTopic(ctx, &parleyv1.TrimTopicRequest{Topic: "t", Keep: &parleyv1.TrimTopicRequest_MaxAge{MaxAge: durationpb.New(time.Minute)}})
		must(err)
		for _, selection := range []*parleyv1.DeadLetterSelection{byGroup, all} {
			_, err = c.ReplayDeadLetters(ctx, &parleyv1.ReplayDeadLettersRequest{Topic: "t", Selection: selection})
			must(err)
		}
		if r, err := c.ReplayDeadLetters(ctx, &parleyv1.ReplayDeadLettersRequest{Topic: "t", Selection: byIDs, Limit: 3, Partition: proto.Int32(0)}); err != nil || r.GetReplayed() != 4 || !r.GetMore() {
			t.Errorf("replay: %v, %v", r, err)
		}
		want := []string{
			"DeleteTopictyes[]", "DeleteGrouptgyes[]", "Purgetyes[0-1-1]", "Purgetgyes[]", "Purgetyes[]",
			"DeleteTopict[]", "DeleteGrouptg[]", "Purget[0-1-1]", "Purgetg[]", "Purget[]",
			"tgfalse false true", "tgfalse false true", "tgfalse false true", "tgtrue false true", "tgtrue false true", "tgfalse true false", "tgfalse true false",
			"t{7 0s true}", "t{-1 1m0s false}", "tg[] 1000 -1", "t[] 1000 -1", "t[0-1-1] 3 0",
		}
		if diff := cmp.Diff(want, did); diff != "" {
			t.Error(diff)
		}
	})
}

// second returns the error of a call and drops its response.
func second[T any](_ *T, err error) error { return err }

// An error of the domain that is not a fault reaches the client as an internal error without its
// text.
func TestAdminErrorsAreOpaque(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.admin.topic = func(string) (*queue.Topic, error) { return nil, errors.New("10.0.0.1") }
	b.admin.stats = func(string) (queue.TopicStats, error) {
		return queue.TopicStats{}, fault.New(fault.NotFound, fault.TopicNotFound, "no")
	}
	b.eachAdmin(func(t *testing.T, c parleyv1connect.AdminServiceClient) {
		_, err := c.GetTopic(t.Context(), &parleyv1.GetTopicRequest{Topic: "t"})
		if refusedAs(t, err) != `internal INTERNAL "" 0` || fmt.Sprint(err) != "internal: internal error" {
			t.Errorf("got %v", err)
		}
		if _, err := c.GetTopicStats(t.Context(), &parleyv1.GetTopicStatsRequest{Topic: "t"}); refusedAs(t, err) != `not_found TOPIC_NOT_FOUND "" 0` {
			t.Errorf("got %v", err)
		}
	})
}
