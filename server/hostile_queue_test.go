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
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// Hostile input about the names of topics, groups and consumers. Fields are covered in
// hostile_queue_field_test.go and hostile_queue_setting_test.go, batches in
// hostile_queue_item_test.go, deliveries in hostile_queue_lease_test.go, sessions in
// hostile_queue_session_test.go, rights in hostile_queue_access_test.go, and the transport in
// hostile_queue_transport_test.go.

const (
	produce          = "Produce"
	cancelMessages   = "CancelMessages"
	reschedule       = "RescheduleMessages"
	consume          = "Consume"
	streamingConsume = "StreamingConsume"
	receive          = "Receive"
	ack              = "Ack"
	nack             = "Nack"
	extend           = "Extend"
	updateSession    = "UpdateSession"
	leave            = "Leave"

	createTopic   = "CreateTopic"
	updateTopic   = "UpdateTopic"
	deleteTopic   = "DeleteTopic"
	listTopics    = "ListTopics"
	createGroup   = "CreateGroup"
	updateGroup   = "UpdateGroup"
	deleteGroup   = "DeleteGroup"
	seekGroup     = "SeekGroup"
	trimTopic     = "TrimTopic"
	getJob        = "GetJob"
	listJobs      = "ListJobs"
	retryJobs     = "RetryJobs"
	listConsumers = "ListConsumers"
	listLetters   = "ListDeadLetters"
	replayLetters = "ReplayDeadLetters"
	purgeLetters  = "PurgeDeadLetters"
)

// methods returns the methods of all services by name. Names are unique across services.
var methods = sync.OnceValue(func() map[string]protoreflect.MethodDescriptor {
	out := make(map[string]protoreflect.MethodDescriptor)
	for _, file := range []protoreflect.FileDescriptor{
		parleyv1.File_parley_v1_message_proto, parleyv1.File_parley_v1_admin_proto, parleyv1.File_parley_v1_presence_proto,
		parleyv1.File_parley_v1_queue_proto,
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

const (
	// someID is the id of a message that no topic has.
	someID = "0-1700000000000000"
	// someLetter is the id of a dead letter that no topic has.
	someLetter = "0-1700000000000-1"
)

// tokenOf returns a delivery token of a topic that no session holds.
func tokenOf(topic string) string { return topic + ".0.1700000000000000.1" }

// queueCalls build requests for every call of QueueService, by topic and group. The requests are
// valid if these names are.
var queueCalls = map[string]func(topic, group string) proto.Message{
	produce: func(t, _ string) proto.Message {
		return &parleyv1.ProduceRequest{Topic: t, Messages: []*parleyv1.QueueMessage{{Key: "this must not be stored"}}}
	},
	cancelMessages: func(t, _ string) proto.Message {
		return &parleyv1.CancelMessagesRequest{Topic: t, MessageIds: []string{someID + "d"}}
	},
	reschedule: func(t, _ string) proto.Message { return rescheduling(t, someID+"d") },
	consume:    func(t, g string) proto.Message { return consumingAs(t, g) },
	streamingConsume: func(t, g string) proto.Message {
		return &parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Start{Start: consumingAs(t, g)}}
	},
	receive: func(t, g string) proto.Message { return &parleyv1.ReceiveRequest{Topic: t, Group: g} },
	ack: func(t, _ string) proto.Message {
		return &parleyv1.AckRequest{SessionId: "s", Tokens: []string{tokenOf(t)}}
	},
	nack: func(t, _ string) proto.Message {
		return &parleyv1.NackRequest{SessionId: "s", Items: []*parleyv1.NackItem{released(tokenOf(t))}}
	},
	extend: func(t, _ string) proto.Message {
		return &parleyv1.ExtendRequest{SessionId: "s", Target: &parleyv1.ExtendRequest_Deliveries{
			Deliveries: &parleyv1.DeliveryTokens{Tokens: []string{tokenOf(t)}},
		}}
	},
	updateSession: func(string, string) proto.Message {
		return &parleyv1.UpdateSessionRequest{SessionId: "s", Concurrency: 2}
	},
	leave: func(string, string) proto.Message { return &parleyv1.LeaveRequest{SessionId: "s"} },
}

// adminCalls build requests for the calls of AdminService that have a topic, as queueCalls
// does for QueueService.
var adminCalls = map[string]func(topic, group string) proto.Message{
	createTopic: func(t, _ string) proto.Message { return &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: t}} },
	updateTopic: func(t, _ string) proto.Message {
		return &parleyv1.UpdateTopicRequest{Topic: &parleyv1.Topic{Name: t, DropOldest: true}, UpdateMask: maskOf("drop_oldest")}
	},
	deleteTopic:      func(t, _ string) proto.Message { return &parleyv1.DeleteTopicRequest{Topic: t, Confirm: t} },
	"GetTopic":       func(t, _ string) proto.Message { return &parleyv1.GetTopicRequest{Topic: t} },
	"SetTopicPaused": func(t, _ string) proto.Message { return &parleyv1.SetTopicPausedRequest{Topic: t, Paused: true} },
	"RepairTopic":    func(t, _ string) proto.Message { return &parleyv1.RepairTopicRequest{Topic: t} },
	"GetTopicStats":  func(t, _ string) proto.Message { return &parleyv1.GetTopicStatsRequest{Topic: t} },
	createGroup: func(t, g string) proto.Message {
		return &parleyv1.CreateGroupRequest{Topic: t, Group: &parleyv1.Group{Name: g}}
	},
	updateGroup: func(t, g string) proto.Message {
		return &parleyv1.UpdateGroupRequest{Topic: t, Group: &parleyv1.Group{Name: g, AckTimeout: durationpb.New(time.Hour)}, UpdateMask: maskOf("ack_timeout")}
	},
	"GetGroup":   func(t, g string) proto.Message { return &parleyv1.GetGroupRequest{Topic: t, Group: g} },
	"ListGroups": func(t, _ string) proto.Message { return &parleyv1.ListGroupsRequest{Topic: t} },
	deleteGroup:  func(t, g string) proto.Message { return &parleyv1.DeleteGroupRequest{Topic: t, Group: g, Confirm: g} },
	"SetGroupPaused": func(t, g string) proto.Message {
		return &parleyv1.SetGroupPausedRequest{Topic: t, Group: g, Paused: true}
	},
	seekGroup: func(t, g string) proto.Message {
		return &parleyv1.SeekGroupRequest{Topic: t, Group: g, Start: &parleyv1.GroupStart{
			Start: &parleyv1.GroupStart_Position{Position: parleyv1.StartPosition_START_POSITION_END},
		}}
	},
	"ListPartitions": func(t, g string) proto.Message { return &parleyv1.ListPartitionsRequest{Topic: t, Group: g} },
	getJob:           func(t, _ string) proto.Message { return &parleyv1.GetJobRequest{Topic: t, MessageId: someID} },
	listJobs:         func(t, g string) proto.Message { return &parleyv1.ListJobsRequest{Topic: t, Group: g} },
	retryJobs: func(t, g string) proto.Message {
		return &parleyv1.RetryJobsRequest{Topic: t, Group: g, MessageIds: []string{someID}}
	},
	listConsumers: func(t, g string) proto.Message { return &parleyv1.ListConsumersRequest{Topic: t, Group: g} },
	trimTopic: func(t, _ string) proto.Message {
		return &parleyv1.TrimTopicRequest{Topic: t, Keep: &parleyv1.TrimTopicRequest_MaxMessages{}, Force: true}
	},
	listLetters: func(t, g string) proto.Message { return &parleyv1.ListDeadLettersRequest{Topic: t, Group: g} },
	replayLetters: func(t, g string) proto.Message {
		return &parleyv1.ReplayDeadLettersRequest{Topic: t, Selection: lettersOf(g)}
	},
	purgeLetters: func(t, g string) proto.Message {
		return &parleyv1.PurgeDeadLettersRequest{Topic: t, Selection: lettersOf(g), Confirm: t}
	},
}

// groupCalls are the calls of both services whose requests have a group. The builders of all others
// ignore it.
var groupCalls = map[string]bool{
	consume: true, streamingConsume: true, receive: true, createGroup: true, updateGroup: true, "GetGroup": true, deleteGroup: true,
	"SetGroupPaused": true, seekGroup: true, "ListPartitions": true, listJobs: true, retryJobs: true, listConsumers: true,
	listLetters: true, replayLetters: true, purgeLetters: true,
}

// sessionCalls are the calls whose requests name a session instead of a topic and a group.
var sessionCalls = map[string]bool{ack: true, nack: true, extend: true, updateSession: true, leave: true}

// anyGroup are the calls in which a group may be empty: it means all groups, or is not needed.
var anyGroup = map[string]bool{"ListPartitions": true, listLetters: true, listJobs: true}

func maskOf(paths ...string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: paths} }

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
func later(delay time.Duration) *parleyv1.QueueMessage {
	return &parleyv1.QueueMessage{Key: "k", Due: &parleyv1.QueueMessage_Delay{Delay: durationpb.New(delay)}}
}

// rescheduling returns a request that makes scheduled messages due now.
func rescheduling(topic string, ids ...string) *parleyv1.RescheduleMessagesRequest {
	return &parleyv1.RescheduleMessagesRequest{Topic: topic, MessageIds: ids, Due: &parleyv1.RescheduleMessagesRequest_Delay{Delay: durationpb.New(0)}}
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
	for procedure, request := range allQueueCalls() {
		if sessionCalls[procedure] {
			continue
		}
		topic, group := "topic", "group"
		switch procedure {
		case replayLetters, purgeLetters:
			group = "selection.group"
		case createTopic, updateTopic:
			topic = "topic.name"
		case createGroup, updateGroup:
			group = "group.name"
		case consume:
			topic = "topics[0]"
		case streamingConsume:
			topic, group = "start.topics[0]", "start.group"
		}
		for name, bad := range badTopics {
			if !shown[procedure] && !everywhere[name] {
				continue
			}
			field := topic
			if procedure == updateTopic && name == "reserved" { // the domain refuses it, which knows no request
				field = "topic"
			}
			add(procedure, name, field, request(bad, "g"))
			if !shown[procedure] && name != "65 characters" && name != "star" && bad != "" {
				continue
			}
			if groupCalls[procedure] && name != "reserved" && (bad != "" || !anyGroup[procedure]) {
				add(procedure, name, group, request("jobs", bad))
			}
		}
	}
	for name, bad := range badTopics {
		if name == "reserved" {
			continue
		}
		r := consumingAs("jobs", "g")
		r.Consumer = bad
		add(consume, name, "consumer", r)
		if bad != "" { // it means the default
			add(receive, name, "consumer", &parleyv1.ReceiveRequest{Topic: "jobs", Group: "g", Consumer: bad})
			add(replayLetters, name, "to_topic", &parleyv1.ReplayDeadLettersRequest{Topic: "jobs", Selection: allLetters(), ToTopic: bad})
		}
	}
	return lines
}

// workshop creates topics that hostile requests must not change; run then compares their state.
// Topic jobs has unread messages, a scheduled one, a dead letter and two that a consumer holds.
// Topic paused accepts nothing, and full accepts one message per partition. workshop returns the id
// of the scheduled message.
func (g *target) workshop() (scheduledID string) {
	g.t.Helper()
	admin, queues, ctx := g.QueueAdmin(g.Token), g.Queues(g.Token), g.t.Context()
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
		must(callErr(admin.CreateGroup(ctx, &parleyv1.CreateGroupRequest{Topic: topic.GetName(), Group: slowGroup("g")})))
	}
	must(callErr(admin.SetTopicPaused(ctx, &parleyv1.SetTopicPausedRequest{Topic: "paused", Paused: true})))
	must(callErr(queues.Produce(ctx, &parleyv1.ProduceRequest{Topic: "full", Messages: []*parleyv1.QueueMessage{{}}})))
	made, err := queues.Produce(ctx, &parleyv1.ProduceRequest{Topic: "jobs", Messages: []*parleyv1.QueueMessage{
		{Key: "a"}, {Key: "b"}, {Key: "c"}, {Key: "d"}, later(time.Hour),
	}})
	must(err)
	r := consumingAs("jobs", "g")
	r.Concurrency, r.MaxInFlight = 2, 2
	c := g.consumes(g.Token, nil, r)
	held := c.await(2)
	res, err := queues.Nack(ctx, &parleyv1.NackRequest{SessionId: c.sessionID, Items: []*parleyv1.NackItem{dead(held[0].GetToken())}})
	if must(err); res.GetResults()[0].GetError() != nil {
		g.t.Fatal(res)
	}
	c.await(3)
	g.queues = g.queueState
	return made.GetResults()[4].GetProduced().GetMessageId()
}

// slowGroup returns a group whose deliveries no timeout ends during a test.
func slowGroup(name string) *parleyv1.Group {
	return &parleyv1.Group{Name: name, AckTimeout: durationpb.New(12 * time.Hour), MaxRunTime: durationpb.New(24 * time.Hour), ResumeGrace: durationpb.New(10 * time.Minute)}
}

// queueState describes all topics with their settings and statistics, without ages.
func (g *target) queueState() string {
	g.t.Helper()
	admin, ctx := g.QueueAdmin(g.Token), g.t.Context()
	topics, err := admin.ListTopics(ctx, &parleyv1.ListTopicsRequest{PageSize: 1000})
	if err != nil {
		g.t.Fatalf("list topics: %v", err)
	}
	var out strings.Builder
	for _, t := range topics.GetTopics() {
		fmt.Fprintln(&out, t)
		groups, err := admin.ListGroups(ctx, &parleyv1.ListGroupsRequest{Topic: t.GetName()})
		if err != nil {
			g.t.Fatalf("groups of %s: %v", t.GetName(), err)
		}
		fmt.Fprintln(&out, "-", groups)
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
	t         *testing.T
	stream    *connect.ServerStreamForClient[parleyv1.ConsumeResponse]
	started   *parleyv1.SessionStarted
	sessionID string
	got       []*parleyv1.Delivery
	// lost are the tokens that the server took back.
	lost []string
}

// consumes opens a stream and reads its first frame. The stream is closed when the test ends.
func (g *target) consumes(token string, opts []connect.ClientOption, r *parleyv1.ConsumeRequest) *consumerStream {
	g.t.Helper()
	return consumesFrom(g.t, g.Queues(token, opts...), r)
}

// consumesFrom is consumes with a client.
func consumesFrom(t *testing.T, c parleyv1connect.QueueServiceClient, r *parleyv1.ConsumeRequest) *consumerStream {
	t.Helper()
	stream, err := c.Consume(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Close() })
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	started := stream.Msg().GetStarted()
	return &consumerStream{t: t, stream: stream, started: started, sessionID: started.GetSessionId()}
}

// await reads until the stream has received n deliveries in total, and returns all of them.
func (c *consumerStream) await(n int) []*parleyv1.Delivery {
	c.t.Helper()
	for len(c.got) < n {
		if !c.read() {
			c.t.Fatalf("after %d deliveries: %v", len(c.got), c.stream.Err())
		}
	}
	return c.got
}

// read reads a frame. It reports false at the end of the stream.
func (c *consumerStream) read() bool {
	if !c.stream.Receive() {
		return false
	}
	c.got = append(c.got, c.stream.Msg().GetDeliveries().GetDeliveries()...)
	c.lost = append(c.lost, c.stream.Msg().GetLost().GetTokens()...)
	return true
}

func TestHostileQueueNames(t *testing.T) { //nolint:paralleltest // it measures processor time, which all tests share
	g := attack(t, nil)
	g.workshop()
	g.run(nameLines())
}
