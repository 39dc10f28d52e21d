package server_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// Hostile input about the names of topics, groups and consumers. Fields and batches are covered in
// hostile_queue_field_test.go and hostile_queue_item_test.go, deliveries in
// hostile_queue_lease_test.go, rights in hostile_queue_access_test.go, and the transport in
// hostile_queue_transport_test.go.

const (
	produce          = "Produce"
	schedule         = "Schedule"
	cancelScheduled  = "CancelScheduled"
	reschedule       = "RescheduleScheduled"
	consume          = "Consume"
	streamingConsume = "StreamingConsume"
	ack              = "Ack"
	nack             = "Nack"
	extend           = "Extend"
	grantCredits     = "GrantCredits"
	leave            = "Leave"

	createTopic   = "CreateTopic"
	pauseTopic    = "PauseTopic"
	resumeTopic   = "ResumeTopic"
	updateTopic   = "UpdateTopic"
	deleteTopic   = "DeleteTopic"
	listTopics    = "ListTopics"
	createGroup   = "CreateGroup"
	seekGroup     = "SeekGroup"
	trimTopic     = "TrimTopic"
	listPending   = "ListPending"
	listLetters   = "ListDeadLetters"
	replayLetters = "ReplayDeadLetters"
	purgeLetters  = "PurgeDeadLetters"
)

// methods returns the methods of all services by name. Names are unique across services.
var methods = sync.OnceValue(func() map[string]protoreflect.MethodDescriptor {
	out := make(map[string]protoreflect.MethodDescriptor)
	for _, file := range []protoreflect.FileDescriptor{
		parleyv1.File_parley_v1_message_proto, parleyv1.File_parley_v1_queue_proto, parleyv1.File_parley_v1_admin_proto,
		parleyv1.File_parley_v1_presence_proto,
	} {
		all := file.Services().Get(0).Methods()
		for i := range all.Len() {
			out[string(all.Get(i).Name())] = all.Get(i)
		}
	}
	return out
})

// pathOf returns the path of a procedure of any service.
func pathOf(procedure string) string {
	return "/" + string(methods()[procedure].Parent().FullName()) + "/" + procedure
}

const someID = "0-1700000000000-1"

// queueCalls build requests for every call that has a topic, by topic and group. The requests are
// valid if these names are.
var queueCalls = map[string]func(topic, group string) proto.Message{
	produce: func(t, _ string) proto.Message {
		return &parleyv1.ProduceRequest{Topic: t, Messages: []*parleyv1.QueueMessage{{Key: "this must not be stored"}}}
	},
	schedule: func(t, _ string) proto.Message {
		return &parleyv1.ScheduleRequest{Topic: t, Messages: []*parleyv1.ScheduledMessage{later(time.Hour)}}
	},
	cancelScheduled: func(t, _ string) proto.Message {
		return &parleyv1.CancelScheduledRequest{Topic: t, MessageId: someID + "d"}
	},
	reschedule: func(t, _ string) proto.Message {
		return &parleyv1.RescheduleScheduledRequest{Topic: t, MessageId: someID + "d", Due: &parleyv1.RescheduleScheduledRequest_Delay{Delay: durationpb.New(0)}}
	},
	consume: func(t, g string) proto.Message {
		return &parleyv1.ConsumeRequest{Topic: t, Group: g, Consumer: "c", MaxMessages: 1}
	},
	streamingConsume: func(t, g string) proto.Message {
		return &parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Start{
			Start: &parleyv1.ConsumeRequest{Topic: t, Group: g, Consumer: "c", MaxMessages: 1},
		}}
	},
	ack: func(t, g string) proto.Message {
		return &parleyv1.AckRequest{Topic: t, Group: g, StreamId: "s", Tokens: []string{"t"}}
	},
	nack: func(t, g string) proto.Message {
		return &parleyv1.NackRequest{Topic: t, Group: g, StreamId: "s", Items: []*parleyv1.NackItem{released("t")}}
	},
	extend: func(t, g string) proto.Message {
		return &parleyv1.ExtendRequest{Topic: t, Group: g, StreamId: "s", Target: &parleyv1.ExtendRequest_All{All: &parleyv1.AllDeliveries{}}}
	},
	grantCredits: func(t, g string) proto.Message {
		return &parleyv1.GrantCreditsRequest{Topic: t, Group: g, StreamId: "s", TotalMessages: 1, TotalBytes: 1}
	},
	leave: func(t, g string) proto.Message {
		return &parleyv1.LeaveRequest{Topic: t, Group: g, StreamId: "s"}
	},
}

// adminCalls build requests for the calls of AdminService that have a topic, as queueCalls does for
// QueueService.
var adminCalls = map[string]func(topic, group string) proto.Message{
	createTopic: func(t, _ string) proto.Message { return &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: t}} },
	updateTopic: func(t, _ string) proto.Message {
		return &parleyv1.UpdateTopicRequest{Topic: &parleyv1.Topic{Name: t, DropOldest: true}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"drop_oldest"}}}
	},
	deleteTopic: func(t, _ string) proto.Message { return &parleyv1.DeleteTopicRequest{Topic: t, Confirm: t} },
	"GetTopic":  func(t, _ string) proto.Message { return &parleyv1.GetTopicRequest{Topic: t} },
	pauseTopic: func(t, _ string) proto.Message {
		return &parleyv1.PauseTopicRequest{Topic: t, Operations: bothOperations}
	},
	resumeTopic: func(t, _ string) proto.Message {
		return &parleyv1.ResumeTopicRequest{Topic: t, Operations: bothOperations}
	},
	"GetTopicStats":  func(t, _ string) proto.Message { return &parleyv1.GetTopicStatsRequest{Topic: t} },
	createGroup:      func(t, g string) proto.Message { return &parleyv1.CreateGroupRequest{Topic: t, Group: g} },
	"DeleteGroup":    func(t, g string) proto.Message { return &parleyv1.DeleteGroupRequest{Topic: t, Group: g, Confirm: g} },
	"ListPartitions": func(t, g string) proto.Message { return &parleyv1.ListPartitionsRequest{Topic: t, Group: g} },
	listPending:      func(t, g string) proto.Message { return &parleyv1.ListPendingRequest{Topic: t, Group: g} },
	listLetters:      func(t, g string) proto.Message { return &parleyv1.ListDeadLettersRequest{Topic: t, Group: g} },
	replayLetters: func(t, g string) proto.Message {
		return &parleyv1.ReplayDeadLettersRequest{Topic: t, Selection: lettersOf(g)}
	},
	purgeLetters: func(t, g string) proto.Message {
		return &parleyv1.PurgeDeadLettersRequest{Topic: t, Selection: lettersOf(g), Confirm: t}
	},
	seekGroup: func(t, g string) proto.Message {
		return &parleyv1.SeekGroupRequest{Topic: t, Group: g, Start: &parleyv1.GroupStart{
			Start: &parleyv1.GroupStart_Position{Position: parleyv1.StartPosition_START_POSITION_END},
		}}
	},
	trimTopic: func(t, _ string) proto.Message {
		return &parleyv1.TrimTopicRequest{Topic: t, Keep: &parleyv1.TrimTopicRequest_MaxMessages{}, Force: true}
	},
}

// groupCalls are the calls of both services whose requests have a group. The builders of all others
// ignore it.
var groupCalls = map[string]bool{
	consume: true, streamingConsume: true, ack: true, nack: true, extend: true, grantCredits: true, leave: true, createGroup: true, "DeleteGroup": true,
	seekGroup: true, "ListPartitions": true, listPending: true, listLetters: true, replayLetters: true, purgeLetters: true,
}

// anyGroup are the calls in which an empty group means all groups.
var anyGroup = map[string]bool{"ListPartitions": true, listLetters: true}

var bothOperations = []parleyv1.TopicOperation{
	parleyv1.TopicOperation_TOPIC_OPERATION_PRODUCE, parleyv1.TopicOperation_TOPIC_OPERATION_CONSUME,
}

func lettersOf(group string) *parleyv1.DeadLetterSelection {
	return &parleyv1.DeadLetterSelection{Selection: &parleyv1.DeadLetterSelection_Group{Group: group}}
}

func lettersBy(ids ...string) *parleyv1.DeadLetterSelection {
	return &parleyv1.DeadLetterSelection{Selection: &parleyv1.DeadLetterSelection_Ids{Ids: &parleyv1.DeadLetterIds{DeadLetterIds: ids}}}
}

func allLetters() *parleyv1.DeadLetterSelection {
	return &parleyv1.DeadLetterSelection{Selection: &parleyv1.DeadLetterSelection_All{All: &parleyv1.AllDeadLetters{}}}
}

func released(token string) *parleyv1.NackItem {
	return &parleyv1.NackItem{Token: token, Outcome: &parleyv1.NackItem_Release{Release: &parleyv1.NackRelease{}}}
}

func dead(token string) *parleyv1.NackItem {
	return &parleyv1.NackItem{Token: token, Outcome: &parleyv1.NackItem_DeadLetter{DeadLetter: &parleyv1.NackDeadLetter{}}}
}

func retried(token string, delay time.Duration) *parleyv1.NackItem {
	return &parleyv1.NackItem{Token: token, Outcome: &parleyv1.NackItem_Retry{Retry: &parleyv1.NackRetry{Delay: durationpb.New(delay)}}}
}

// later returns a message that is due after a delay.
func later(delay time.Duration) *parleyv1.ScheduledMessage {
	return &parleyv1.ScheduledMessage{
		Message: &parleyv1.QueueMessage{Key: "k"}, Due: &parleyv1.ScheduledMessage_Delay{Delay: durationpb.New(delay)},
	}
}

// badTopics are invalid topic names.
var badTopics = map[string]string{
	"empty": "", "65 characters": strings.Repeat("a", 65), "hash tag": "{x}", "star": "*", "reserved": "__dlq", "wildcard of NATS": ">",
	"two tokens": "a.b", "space": "a b", "a command in it": "a\r\nDEL x", "a newline at the end": "jobs\n", "not ASCII": "räume", "NUL": "jo\x00bs",
	"a brace": "}{", "a colon": "jobs:0", "path": "../x", "percent": "a%2e", "right to left": "a\u202eb",
}

// everywhere are the names in badTopics that are sent to every call.
var everywhere = map[string]bool{"empty": true, "65 characters": true, "hash tag": true, "star": true, "reserved": true}

// shown are the calls that get every bad name. All others have the same schema rules, so they get
// only the names in everywhere.
var shown = map[string]bool{produce: true, consume: true, createTopic: true, createGroup: true}

// nameLines returns requests with bad names of topics, groups and consumers, for every call that
// takes one.
func nameLines() []line {
	var lines []line
	add := func(procedure, name, field string, m proto.Message) {
		lines = append(lines, line{name: name + " as " + procedure + "'s " + field, procedure: procedure, message: m, want: invalid(field)})
	}
	for _, calls := range []map[string]func(topic, group string) proto.Message{queueCalls, adminCalls} {
		for procedure, request := range calls {
			topic, prefix, group := "topic", "", "group"
			switch procedure {
			case replayLetters, purgeLetters:
				group = "selection.group"
			case createTopic, updateTopic:
				topic = "topic.name"
			case streamingConsume:
				prefix = "start."
			}
			for name, bad := range badTopics {
				if !shown[procedure] && !everywhere[name] {
					continue
				}
				add(procedure, name, prefix+topic, request(bad, "g"))
				if !shown[procedure] && name != "65 characters" && name != "star" && bad != "" {
					continue
				}
				if groupCalls[procedure] && name != "reserved" && (bad != "" || !anyGroup[procedure]) {
					add(procedure, name, prefix+group, request("jobs", bad))
				}
			}
		}
	}
	for name, bad := range badTopics {
		if name == "reserved" {
			continue
		}
		add(consume, name, "consumer", &parleyv1.ConsumeRequest{Topic: "jobs", Group: "g", Consumer: bad, MaxMessages: 1})
		add(ack, name, "stream_id", &parleyv1.AckRequest{Topic: "jobs", Group: "g", StreamId: bad, Tokens: []string{"t"}})
		add(nack, name, "stream_id", &parleyv1.NackRequest{Topic: "jobs", Group: "g", StreamId: bad, Items: []*parleyv1.NackItem{released("t")}})
		add(extend, name, "stream_id", &parleyv1.ExtendRequest{
			Topic: "jobs", Group: "g", StreamId: bad, Target: &parleyv1.ExtendRequest_All{All: &parleyv1.AllDeliveries{}},
		})
		add(grantCredits, name, "stream_id", &parleyv1.GrantCreditsRequest{Topic: "jobs", Group: "g", StreamId: bad, TotalMessages: 1, TotalBytes: 1})
		add(leave, name, "stream_id", &parleyv1.LeaveRequest{Topic: "jobs", Group: "g", StreamId: bad})
	}
	return lines
}

// workshop creates topics that hostile requests must not change; run then compares their state.
// Topic jobs has unread messages, a scheduled one, a dead letter and one that a consumer holds.
// Topic paused accepts nothing, and full accepts one message per partition. workshop returns the id
// of the scheduled message.
func (g *target) workshop() (scheduledID string) {
	g.t.Helper()
	admin, queues, ctx := g.Admin(g.Token), g.Queues(g.Token), g.t.Context()
	must := func(err error) {
		g.t.Helper()
		if err != nil {
			g.t.Fatal(err)
		}
	}
	for _, topic := range []*parleyv1.Topic{
		{Name: "jobs", Partitions: 2, Retention: &parleyv1.TopicRetention{MaxAge: durationpb.New(24 * time.Hour)}}, // keeps settled messages
		{Name: "paused", Partitions: 1}, {Name: "full", Partitions: 1, MaxMessagesPerPartition: 1},
	} {
		must(callErr(admin.CreateTopic(ctx, &parleyv1.CreateTopicRequest{Topic: topic})))
		must(callErr(admin.CreateGroup(ctx, &parleyv1.CreateGroupRequest{Topic: topic.GetName(), Group: "g"})))
	}
	must(callErr(admin.PauseTopic(ctx, &parleyv1.PauseTopicRequest{Topic: "paused", Operations: bothOperations})))
	must(callErr(queues.Produce(ctx, &parleyv1.ProduceRequest{Topic: "full", Messages: []*parleyv1.QueueMessage{{}}})))
	items := make([]*parleyv1.QueueMessage, 4)
	for i := range items {
		items[i] = &parleyv1.QueueMessage{Key: "k"}
	}
	must(callErr(queues.Produce(ctx, &parleyv1.ProduceRequest{Topic: "jobs", Messages: items})))
	due, err := queues.Schedule(ctx, &parleyv1.ScheduleRequest{Topic: "jobs", Messages: []*parleyv1.ScheduledMessage{later(time.Hour)}})
	must(err)
	c := g.consumes(g.Token, nil, &parleyv1.ConsumeRequest{Topic: "jobs", Group: "g", Consumer: "c", MaxMessages: 2, AckTimeout: durationpb.New(12 * time.Hour)})
	held := c.await(2)
	res, err := queues.Nack(ctx, &parleyv1.NackRequest{Topic: "jobs", Group: "g", StreamId: c.streamID, Items: []*parleyv1.NackItem{dead(held[0].GetToken())}})
	if must(err); res.GetResults()[0].GetError() != nil {
		g.t.Fatal(res)
	}
	g.queues = g.queueState
	return due.GetResults()[0].GetScheduled().GetMessageId()
}

// queueState describes all topics with their settings and statistics, without ages.
func (g *target) queueState() string {
	g.t.Helper()
	admin, ctx := g.Admin(g.Token), g.t.Context()
	topics, err := admin.ListTopics(ctx, &parleyv1.ListTopicsRequest{PageSize: 1000})
	if err != nil {
		g.t.Fatalf("list topics: %v", err)
	}
	var out strings.Builder
	for _, t := range topics.GetTopics() {
		fmt.Fprintln(&out, t)
		stats, err := admin.GetTopicStats(ctx, &parleyv1.GetTopicStatsRequest{Topic: t.GetName()})
		if err != nil {
			g.t.Fatalf("stats of %s: %v", t.GetName(), err)
		}
		counts := []interface{ GetGroups() []*parleyv1.GroupStats }{stats.GetTotal()}
		for _, p := range stats.GetPartitions() {
			counts = append(counts, p)
		}
		for _, c := range counts {
			for _, group := range c.GetGroups() {
				group.OldestAge = nil
			}
			fmt.Fprintln(&out, "-", c)
		}
	}
	return out.String()
}

// consumerStream is a stream of deliveries that the test reads.
type consumerStream struct {
	t        *testing.T
	stream   *connect.ServerStreamForClient[parleyv1.ConsumeResponse]
	streamID string
	got      []*parleyv1.Delivery
}

// consumes opens a stream and reads its first frame. The stream is closed when the test ends.
func (g *target) consumes(token string, opts []connect.ClientOption, r *parleyv1.ConsumeRequest) *consumerStream {
	g.t.Helper()
	stream, err := g.Queues(token, opts...).Consume(g.t.Context(), r)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = stream.Close() })
	if !stream.Receive() {
		g.t.Fatal(stream.Err())
	}
	return &consumerStream{t: g.t, stream: stream, streamID: stream.Msg().GetInfo().GetStreamId()}
}

// await reads until the stream has received n deliveries in total, and returns all of them.
func (c *consumerStream) await(n int) []*parleyv1.Delivery {
	c.t.Helper()
	for len(c.got) < n {
		if !c.stream.Receive() {
			c.t.Fatalf("after %d deliveries: %v", len(c.got), c.stream.Err())
		}
		c.got = append(c.got, c.stream.Msg().GetDeliveries().GetDeliveries()...)
	}
	return c.got
}

func TestHostileQueueNames(t *testing.T) { //nolint:paralleltest // it measures processor time, which all tests share
	g := attack(t, nil)
	g.workshop()
	g.run(nameLines())
}
