package server_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// Hostile input in the fields of single requests to both queue services, except for settings, which
// are in hostile_queue_setting_test.go. Rights are covered in hostile_queue_access_test.go.

// badLetterIDs are invalid ids of dead letters.
var badLetterIDs = map[string]string{
	"0-0": "0-0", ">": ">", "9-*": "9-*", "2^64-1": "18446744073709551615", "$": "$", "2^64-1 as a time": "0-18446744073709551615-1",
	"a message's": someID, "a newline at the end": someLetter + "\n", "letters": "0-17000000000ab-1", "below 0": "-1-1700000000000-1", "a zero before": "00-1700000000000-1",
}

// tooLong are texts that the schema refuses as ids.
var tooLong = map[string]int64{"": 1, strings.Repeat("0", 129): 128}

func queueIDLines() []line {
	var lines []line
	add := func(procedure, name, field string, limit int64, m proto.Message) {
		lines = append(lines, line{name: name + " to " + procedure, procedure: procedure, message: m, want: over(field, limit)})
	}
	letters := func(name, field string, limit int64, id string) {
		add(replayLetters, name, field, limit, &parleyv1.ReplayDeadLettersRequest{Topic: "jobs", Selection: lettersBy(someLetter, id)})
		add(purgeLetters, name, field, limit, &parleyv1.PurgeDeadLettersRequest{Topic: "jobs", Selection: lettersBy(someLetter, id), Confirm: "jobs"})
	}
	for name, id := range badLetterIDs {
		letters("letter id "+name, "selection.ids.dead_letter_ids", 0, id)
	}
	letters("a letter id with NUL", "selection.ids.dead_letter_ids[1]", 0, "0-1-\x00")
	for id, limit := range tooLong {
		name := "an id of " + strconv.Itoa(len(id)) + " bytes"
		letters(name, "selection.ids.dead_letter_ids[1]", limit, id)
		add(getJob, name, "message_id", limit, &parleyv1.GetJobRequest{Topic: "jobs", MessageId: id})
		add(retryJobs, name, "message_ids[1]", limit, &parleyv1.RetryJobsRequest{Topic: "jobs", Group: "g", MessageIds: []string{someID, id}})
	}
	long := strings.Repeat("s", 129)
	const field = "session_id"
	add(ack, "a long session id", field, 128, &parleyv1.AckRequest{SessionId: long, Tokens: []string{"t"}})
	add(nack, "a long session id", field, 128, &parleyv1.NackRequest{SessionId: long, Items: []*parleyv1.NackItem{released("t")}})
	add(extend, "a long session id", field, 128, &parleyv1.ExtendRequest{SessionId: long, Target: &parleyv1.ExtendRequest_All{All: &parleyv1.AllDeliveries{}}})
	add(updateSession, "a long session id", field, 128, &parleyv1.UpdateSessionRequest{SessionId: long, Concurrency: 1})
	add(leave, "a long session id", field, 128, &parleyv1.LeaveRequest{SessionId: long})
	return lines
}

// consumeLines returns requests for a stream with invalid fields.
func consumeLines() []line {
	type request = parleyv1.ConsumeRequest
	var lines []line
	add := func(name string, w want, change func(*request)) {
		for _, both := range []bool{false, true} {
			r := consumingAs("jobs", "g")
			change(r)
			l := line{name: name, procedure: consume, message: r, want: w}
			if both {
				l.name, l.procedure = name+", both ways", streamingConsume
				l.message = &parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Start{Start: r}}
				l.want.field = "start." + l.want.field
			}
			lines = append(lines, l)
		}
	}
	add("no topics", over("topics", 1), func(r *request) { r.Topics = nil })
	add("17 topics", over("topics", 16), func(r *request) {
		for i := range 16 {
			r.Topics = append(r.Topics, "t"+strconv.Itoa(i))
		}
	})
	add("a topic twice", invalid("topics"), func(r *request) { r.Topics = []string{"jobs", "jobs"} })
	add("a bad second topic", invalid("topics[1]"), func(r *request) { r.Topics = []string{"jobs", "jo bs"} })
	add("concurrency below 0", invalid("concurrency"), func(r *request) { r.Concurrency = math.MinInt32 })
	add("concurrency 10,001", over("concurrency", 10_000), func(r *request) { r.Concurrency, r.MaxInFlight = 10_001, 0 })
	add("max_in_flight below 0", invalid("max_in_flight"), func(r *request) { r.MaxInFlight = -1 })
	add("max_in_flight 2^31-1", over("max_in_flight", 10_000), func(r *request) { r.MaxInFlight = math.MaxInt32 })
	add("max_in_flight below concurrency", over("max_in_flight", 3), func(r *request) { r.Concurrency, r.MaxInFlight = 3, 2 })
	add("bytes below 0", invalid("max_in_flight_bytes"), func(r *request) { r.MaxInFlightBytes = -1 })
	add("2^63-1 bytes", over("max_in_flight_bytes", 64<<20), func(r *request) { r.MaxInFlightBytes = math.MaxInt64 })
	add("ack_timeout 0", over("ack_timeout", 1), func(r *request) { r.AckTimeout = durationpb.New(0) })
	add("ack_timeout below 0", over("ack_timeout", 1), func(r *request) { r.AckTimeout = durationpb.New(-time.Hour) })
	add("ack_timeout 13 h", over("ack_timeout", 43_200), func(r *request) { r.AckTimeout = durationpb.New(13 * time.Hour) })

	resume := func(name string, w want, resume *parleyv1.Resume) {
		add(name, w, func(r *request) { r.Resume = resume })
	}
	lost := want{code: "failed_precondition", reason: "SESSION_LOST"}
	resume("the first stream resumed", over("resume.resumes", 1), &parleyv1.Resume{SessionId: "s"})
	resume("resumes below 0", over("resume.resumes", 1), &parleyv1.Resume{SessionId: "s", Resumes: math.MinInt64})
	resume("a session id of 129 bytes", over("resume.session_id", 128), &parleyv1.Resume{SessionId: strings.Repeat("s", 129), Resumes: 1})
	resume("a token of 129 bytes", over("resume.held[0].token", 128), &parleyv1.Resume{SessionId: "s", Resumes: 1, Held: []*parleyv1.HeldDelivery{{Token: strings.Repeat("t", 129)}}})
	resume("an acked token of 129 bytes", over("resume.unanswered[0].ack", 128), &parleyv1.Resume{SessionId: "s", Resumes: 1, Unanswered: []*parleyv1.UnansweredVerdict{
		{Verdict: &parleyv1.UnansweredVerdict_Ack{Ack: strings.Repeat("t", 129)}},
	}})
	resume("no verdict", invalid("resume.unanswered[0].verdict"), &parleyv1.Resume{SessionId: "s", Resumes: 1, Unanswered: []*parleyv1.UnansweredVerdict{{}}})
	many := &parleyv1.Resume{SessionId: "s", Resumes: 1}
	for range 10_001 {
		many.Held = append(many.Held, &parleyv1.HeldDelivery{Token: "t"})
	}
	resume("10,001 deliveries", over("resume.held", 10_000), many)
	resume("NUL in a token", invalid("resume.held[0].token"), &parleyv1.Resume{SessionId: "s", Resumes: 1, Held: []*parleyv1.HeldDelivery{{Token: "a\x00b"}}})
	both := func(name string, r *parleyv1.StreamingConsumeRequest, w want) {
		lines = append(lines, line{name: name + " first, both ways", procedure: streamingConsume, message: r, want: w})
	}
	for i, id := range []string{"", "s", strings.Repeat("A", 43) + ".g", strings.Repeat("A", 43) + ".nothing"} {
		r := consumingAs("jobs", "g")
		r.Resume = &parleyv1.Resume{SessionId: id, Resumes: math.MaxInt64, Held: []*parleyv1.HeldDelivery{{Token: tokenOf("jobs")}, {Token: "a\nb"}}}
		lines = append(lines, line{name: "a forged session id, " + strconv.Itoa(i), procedure: consume, message: r, want: lost})
		both("a forged session id, "+strconv.Itoa(i), &parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Start{Start: r}}, lost)
	}
	both("nothing", &parleyv1.StreamingConsumeRequest{}, invalid("request"))
	both("an ack", &parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Ack{Ack: &parleyv1.AckRequest{Tokens: []string{"t"}}}}, invalid("start"))
	return lines
}

// boundLines returns requests with values beyond any other bound.
func boundLines(scheduledID string) []line {
	type move = parleyv1.RescheduleMessagesRequest
	var lines []line
	add := func(procedure, name string, w want, m proto.Message) {
		lines = append(lines, line{name: name + " to " + procedure, procedure: procedure, message: m, want: w})
	}
	delay := func(d *durationpb.Duration) *move {
		return &move{Topic: "jobs", MessageIds: []string{scheduledID}, Due: &parleyv1.RescheduleMessagesRequest_Delay{Delay: d}}
	}
	at := func(ts *timestamppb.Timestamp) *move {
		return &move{Topic: "jobs", MessageIds: []string{scheduledID}, Due: &parleyv1.RescheduleMessagesRequest_DeliverAt{DeliverAt: ts}}
	}
	add(reschedule, "delay below 0", over("delay", 0), delay(durationpb.New(-1)))
	add(reschedule, "delay of 367 days", over("delay", 31_622_400), delay(durationpb.New(367*24*time.Hour)))
	add(reschedule, "1970", invalid("deliver_at"), at(&timestamppb.Timestamp{}))
	add(reschedule, "no time", invalid("due"), &move{Topic: "jobs", MessageIds: []string{scheduledID}})
	const binary = "connect-proto grpc grpc-web"
	text := `{"topic":"jobs","messageIds":["` + scheduledID + `"],`
	lines = append(lines,
		line{name: "a time of -2^62", procedure: reschedule, want: invalid("deliver_at"), only: binary, message: at(&timestamppb.Timestamp{Seconds: math.MinInt64 / 2})},
		line{name: "a delay that is none", procedure: reschedule, want: refused("invalid_argument"), json: text + `"delay":"soon"}`},
		line{name: "two times", procedure: reschedule, want: refused("invalid_argument"), json: text + `"delay":"1s","deliverAt":"2030-01-01T00:00:00Z"}`},
		line{name: "a time that is none", procedure: seekGroup, want: refused("invalid_argument"), json: `{"topic":"jobs","group":"g","start":{"time":"2026-13-01T00:00:00Z"}}`},
	)
	type taken = parleyv1.ReceiveRequest
	for name, r := range map[string]struct {
		want want
		r    *taken
	}{
		"max_messages below 0": {invalid("max_messages"), &taken{MaxMessages: -1}}, "101 messages": {over("max_messages", 100), &taken{MaxMessages: 101}},
		"a wait below 0": {over("wait", 0), &taken{Wait: durationpb.New(-1)}}, "a wait of 31 s": {over("wait", 30), &taken{Wait: durationpb.New(31 * time.Second)}},
		"ack_timeout 0": {over("ack_timeout", 1), &taken{AckTimeout: durationpb.New(0)}}, "ack_timeout 13 h": {over("ack_timeout", 43_200), &taken{AckTimeout: durationpb.New(13 * time.Hour)}},
	} {
		r.r.Topic, r.r.Group = "jobs", "g"
		add(receive, name, r.want, r.r)
	}
	extending := func(d time.Duration) *parleyv1.ExtendRequest {
		return &parleyv1.ExtendRequest{SessionId: "s", Target: &parleyv1.ExtendRequest_All{All: &parleyv1.AllDeliveries{}}, AckTimeout: durationpb.New(d)}
	}
	these := func(tokens ...string) *parleyv1.ExtendRequest {
		return &parleyv1.ExtendRequest{SessionId: "s", Target: &parleyv1.ExtendRequest_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: tokens}}}
	}
	begun := extending(time.Hour)
	begun.Begun = true
	add(extend, "ack_timeout 0", over("ack_timeout", 1), extending(0))
	add(extend, "ack_timeout 13 h", over("ack_timeout", 43_200), extending(13*time.Hour))
	add(extend, "all begun", invalid("begun"), begun)
	add(extend, "nothing named", invalid("target"), &parleyv1.ExtendRequest{SessionId: "s"})
	add(extend, "no tokens", over("deliveries.tokens", 1), these())
	limits := func(name, field string, limit int64, r *parleyv1.UpdateSessionRequest) {
		r.SessionId = "s"
		add(updateSession, name, over(field, limit), r)
	}
	limits("concurrency below 0", "concurrency", 0, &parleyv1.UpdateSessionRequest{Concurrency: -1})
	limits("concurrency 10,001", "concurrency", 10_000, &parleyv1.UpdateSessionRequest{Concurrency: 10_001})
	limits("max_in_flight of 2^31-1", "max_in_flight", 10_000, &parleyv1.UpdateSessionRequest{MaxInFlight: math.MaxInt32})
	limits("bytes below 0", "max_in_flight_bytes", 0, &parleyv1.UpdateSessionRequest{MaxInFlightBytes: math.MinInt64})
	limits("64 MiB and a byte", "max_in_flight_bytes", 64<<20, &parleyv1.UpdateSessionRequest{MaxInFlightBytes: 64<<20 + 1})

	ids := func(id string) []string { return strings.Split(strings.TrimSpace(strings.Repeat(id+" ", 1001)), " ") }
	batch := func(messages ...*parleyv1.QueueMessage) *parleyv1.ProduceRequest {
		return &parleyv1.ProduceRequest{Topic: "jobs", Messages: messages}
	}
	add(produce, "a batch of 1,001", over("messages", 1000), batch(make([]*parleyv1.QueueMessage, 1001)...))
	add(produce, "a batch of none", over("messages", 1), batch())
	add(cancelMessages, "1,001 ids", over("message_ids", 1000), &parleyv1.CancelMessagesRequest{Topic: "jobs", MessageIds: ids(someID)})
	add(cancelMessages, "no ids", over("message_ids", 1), &parleyv1.CancelMessagesRequest{Topic: "jobs"})
	add(reschedule, "1,001 ids", over("message_ids", 1000), rescheduling("jobs", ids(someID+"d")...))
	add(reschedule, "no ids", over("message_ids", 1), rescheduling("jobs"))
	add(retryJobs, "1,001 ids", over("message_ids", 1000), &parleyv1.RetryJobsRequest{Topic: "jobs", Group: "g", MessageIds: ids(someID)})
	add(retryJobs, "no ids", over("message_ids", 1), &parleyv1.RetryJobsRequest{Topic: "jobs", Group: "g"})
	add(ack, "1,001 tokens", over("tokens", 1000), &parleyv1.AckRequest{SessionId: "s", Tokens: ids("t")})
	add(ack, "no tokens", over("tokens", 1), &parleyv1.AckRequest{SessionId: "s"})
	add(extend, "1,001 tokens", over("deliveries.tokens", 1000), these(ids("t")...))
	add(nack, "1,001 items", over("items", 1000), &parleyv1.NackRequest{SessionId: "s", Items: make([]*parleyv1.NackItem, 1001)})
	producer := func(name string, w want, id []byte, sequence int64) {
		r := batch(&parleyv1.QueueMessage{})
		r.ProducerId, r.Sequence = id, sequence
		add(produce, name, w, r)
	}
	producer("15 bytes of producer id", invalid("producer_id"), make([]byte, 15), 1)
	producer("17 bytes of producer id", invalid("producer_id"), make([]byte, 17), 1)
	producer("no sequence", over("sequence", 1), make([]byte, 16), 0)
	producer("a sequence below 0", over("sequence", 0), make([]byte, 16), math.MinInt64)
	producer("a sequence of 2^63-1", over("sequence", 1<<53-1), make([]byte, 16), math.MaxInt64)
	return append(lines, queueListLines()...)
}

// queueListLines returns requests for lists and for parts of topics with values beyond their
// bounds.
func queueListLines() []line {
	var lines []line
	add := func(procedure, name string, w want, m proto.Message) {
		lines = append(lines, line{name: name + " to " + procedure, procedure: procedure, message: m, want: w})
	}
	many := strings.Split(strings.TrimSpace(strings.Repeat(someLetter+" ", 1001)), " ")
	for name, s := range map[string]*parleyv1.DeadLetterSelection{
		"selection": nil, "selection.selection": {}, "selection.ids.dead_letter_ids 1": lettersBy(), "selection.ids.dead_letter_ids 1000": lettersBy(many...),
	} {
		field, limit, _ := strings.Cut(name, " ")
		n, _ := strconv.ParseInt(limit, 10, 64)
		add(replayLetters, "a bad "+name, over(field, n), &parleyv1.ReplayDeadLettersRequest{Topic: "jobs", Selection: s})
		add(purgeLetters, "a bad "+name, over(field, n), &parleyv1.PurgeDeadLettersRequest{Topic: "jobs", Selection: s, Confirm: "jobs"})
	}
	all := allLetters()
	add(replayLetters, "limit -1", invalid("limit"), &parleyv1.ReplayDeadLettersRequest{Topic: "jobs", Selection: all, Limit: -1})
	add(replayLetters, "limit of 2^31-1", over("limit", 10_000), &parleyv1.ReplayDeadLettersRequest{Topic: "jobs", Selection: all, Limit: math.MaxInt32})
	add(replayLetters, "the topic itself as destination", invalid("to_topic"), &parleyv1.ReplayDeadLettersRequest{Topic: "jobs", Selection: all, ToTopic: "jobs"})
	add(trimTopic, "messages below 0", invalid("max_messages"), &parleyv1.TrimTopicRequest{Topic: "jobs", Keep: &parleyv1.TrimTopicRequest_MaxMessages{MaxMessages: -1}, Force: true})
	add(trimTopic, "age below 0", over("max_age", 0), &parleyv1.TrimTopicRequest{Topic: "jobs", Keep: &parleyv1.TrimTopicRequest_MaxAge{MaxAge: durationpb.New(-1)}, Force: true})
	add(trimTopic, "nothing said", invalid("keep"), &parleyv1.TrimTopicRequest{Topic: "jobs", Force: true})
	add(seekGroup, "no start", invalid("start"), &parleyv1.SeekGroupRequest{Topic: "jobs", Group: "g"})
	add(seekGroup, "a start of nothing", invalid("start.start"), &parleyv1.SeekGroupRequest{Topic: "jobs", Group: "g", Start: &parleyv1.GroupStart{}})
	add(seekGroup, "position 0", invalid("start.position"), &parleyv1.SeekGroupRequest{Topic: "jobs", Group: "g", Start: &parleyv1.GroupStart{Start: &parleyv1.GroupStart_Position{}}})
	add(seekGroup, "1970", invalid("start.time"), &parleyv1.SeekGroupRequest{Topic: "jobs", Group: "g", Start: &parleyv1.GroupStart{Start: &parleyv1.GroupStart_Time{Time: &timestamppb.Timestamp{}}}})
	type list struct {
		size  func(n int32) proto.Message
		token func(s string) proto.Message
		limit int64
	}
	for procedure, l := range map[string]list{
		listTopics: {
			func(n int32) proto.Message { return &parleyv1.ListTopicsRequest{PageSize: n} },
			func(s string) proto.Message { return &parleyv1.ListTopicsRequest{PageToken: s} }, 1024,
		},
		listJobs: {
			func(n int32) proto.Message { return &parleyv1.ListJobsRequest{Topic: "jobs", Group: "g", PageSize: n} },
			func(s string) proto.Message {
				return &parleyv1.ListJobsRequest{Topic: "jobs", Group: "g", PageToken: s}
			}, 8192,
		},
		listConsumers: {
			func(n int32) proto.Message {
				return &parleyv1.ListConsumersRequest{Topic: "jobs", Group: "g", PageSize: n}
			},
			func(s string) proto.Message {
				return &parleyv1.ListConsumersRequest{Topic: "jobs", Group: "g", PageToken: s}
			}, 1024,
		},
		listLetters: {
			func(n int32) proto.Message { return &parleyv1.ListDeadLettersRequest{Topic: "jobs", PageSize: n} },
			func(s string) proto.Message { return &parleyv1.ListDeadLettersRequest{Topic: "jobs", PageToken: s} }, 8192,
		},
	} {
		for _, size := range []int32{-1, math.MinInt32} {
			add(procedure, "page_size "+strconv.Itoa(int(size)), invalid("page_size"), l.size(size))
		}
		add(procedure, "a page token that is none", want{code: "invalid_argument", reason: "PAGE_TOKEN_INVALID", field: "page_token"}, l.token(`{"$gt":""}`))
		add(procedure, "a page token that is too long", over("page_token", l.limit), l.token(strings.Repeat("a", int(l.limit)+1)))
	}
	jobs := func(name string, w want, r *parleyv1.ListJobsRequest) {
		r.Topic = "jobs"
		add(listJobs, name, w, r)
	}
	jobs("state 99", invalid("state"), &parleyv1.ListJobsRequest{Group: "g", State: 99})
	jobs("the settled", invalid("state"), &parleyv1.ListJobsRequest{Group: "g", State: parleyv1.JobState_JOB_STATE_SETTLED})
	jobs("the dead", invalid("state"), &parleyv1.ListJobsRequest{Group: "g", State: parleyv1.JobState_JOB_STATE_DEAD})
	jobs("no group", invalid("group"), &parleyv1.ListJobsRequest{State: parleyv1.JobState_JOB_STATE_WAITING})
	jobs("a key of 257 bytes", over("key", 256), &parleyv1.ListJobsRequest{Group: "g", Key: strings.Repeat("k", 257)})
	add(listLetters, "a code with a space", invalid("code"), &parleyv1.ListDeadLettersRequest{Topic: "jobs", Code: "a b"})
	return append(lines, line{name: "limit of 2^31", procedure: replayLetters, json: `{"topic":"jobs","selection":{"all":{}},"limit":2147483648}`, want: refused("invalid_argument")})
}

func TestHostileQueueFields(t *testing.T) { //nolint:paralleltest // it measures processor time, which all tests share
	g := attack(t, nil)
	scheduledID := g.workshop()
	g.run(queueIDLines())
	g.run(consumeLines())
	g.run(boundLines(scheduledID))
}
