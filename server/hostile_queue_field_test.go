package server_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// Hostile input in the fields of single requests to both queue services. Rights are covered in
// hostile_queue_access_test.go.

// badMessageIDs are invalid ids of scheduled messages. All but the last are invalid for dead
// letters too.
var badMessageIDs = map[string]string{
	"0-0": "0-0", ">": ">", "9-*": "9-*", "2^64-1": "18446744073709551615", "empty": "", "a stream's": "1700000000000-0", "$": "$", "NUL": "0-1-\x00",
	"2^64-1 as a time": "0-18446744073709551615-1", "five digits of partition": "10000-1700000000000-1d", "a newline at the end": someID + "\n", "letters": "0-17000000000ab-1",
	"below 0": "-1-1700000000000-1", "a letter's": "0-0-0",
}

func idsOfQueues() []line {
	var lines []line
	add := func(procedure, name, field string, m proto.Message) {
		lines = append(lines, line{name: name + " to " + procedure, procedure: procedure, message: m, want: invalid(field)})
	}
	for name, id := range badMessageIDs {
		name = "message id " + name
		add(cancelScheduled, name, "message_id", &parleyv1.CancelScheduledRequest{Topic: "jobs", MessageId: id})
		add(reschedule, name, "message_id", &parleyv1.RescheduleScheduledRequest{Topic: "jobs", MessageId: id, Due: &parleyv1.RescheduleScheduledRequest_Delay{Delay: durationpb.New(0)}})
		add(replayLetters, name, "selection.ids.dead_letter_ids[1]", &parleyv1.ReplayDeadLettersRequest{Topic: "jobs", Selection: lettersBy(someID, id)})
		add(purgeLetters, name, "selection.ids.dead_letter_ids[1]", &parleyv1.PurgeDeadLettersRequest{Topic: "jobs", Selection: lettersBy(someID, id), Confirm: "jobs"})
	}
	for _, id := range []string{"2-1700000000000-1", "9999-1700000000000-1"} {
		add(replayLetters, "a partition that there is not, "+id, "selection.ids.dead_letter_ids[0]", &parleyv1.ReplayDeadLettersRequest{Topic: "jobs", Selection: lettersBy(id)})
	}
	return lines
}

func consumeLines() []line {
	type request = parleyv1.ConsumeRequest
	var lines []line
	add := func(name string, w want, change func(*request)) {
		for _, both := range []bool{false, true} {
			r := &request{Topic: "jobs", Group: "g", Consumer: "c", MaxMessages: 1}
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
	add("max_messages 0", over("max_messages", 1), func(r *request) { r.MaxMessages = 0 })
	add("max_messages below 0", over("max_messages", 1), func(r *request) { r.MaxMessages = math.MinInt64 })
	add("max_messages 10^6", over("max_messages", 10_000), func(r *request) { r.MaxMessages = 1e6 })
	add("max_bytes 0", over("max_bytes", 1), func(r *request) { r.MaxBytes = proto.Int64(0) })
	add("max_bytes 2^63-1", over("max_bytes", 64<<20), func(r *request) { r.MaxBytes = proto.Int64(math.MaxInt64) })
	add("ack_timeout 0", over("ack_timeout", 1), func(r *request) { r.AckTimeout = durationpb.New(0) })
	add("ack_timeout below 0", over("ack_timeout", 1), func(r *request) { r.AckTimeout = durationpb.New(-time.Hour) })
	add("ack_timeout 13 h", over("ack_timeout", 43_200), func(r *request) { r.AckTimeout = durationpb.New(13 * time.Hour) })
	both := func(name string, r *parleyv1.StreamingConsumeRequest, w want) {
		lines = append(lines, line{name: name + " first, both ways", procedure: streamingConsume, message: r, want: w})
	}
	both("nothing", &parleyv1.StreamingConsumeRequest{}, invalid("request"))
	both("an ack", &parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Ack{Ack: &parleyv1.StreamingAck{Tokens: []string{"t"}}}}, invalid("start"))
	return lines
}

// settingLines returns requests with invalid settings of topics.
func settingLines() []line {
	type topic = parleyv1.Topic
	var lines []line
	add := func(name string, w want, change func(*topic)) {
		wire := &topic{Name: "new", Retry: &parleyv1.RetryPolicy{}, Retention: &parleyv1.TopicRetention{}}
		change(wire)
		update := proto.CloneOf(wire)
		update.Name = "jobs"
		lines = append(lines, line{name: name, procedure: createTopic, message: &parleyv1.CreateTopicRequest{Topic: wire}, want: w}, line{
			name: name + ", to change", procedure: updateTopic, want: w,
			message: &parleyv1.UpdateTopicRequest{Topic: update, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"retry", "retention"}}},
		})
	}
	add("max_attempts 0", over("topic.retry.max_attempts", 1), func(t *topic) { t.Retry.MaxAttempts = proto.Int32(0) })
	add("max_attempts 10^9", over("topic.retry.max_attempts", 1000), func(t *topic) { t.Retry.MaxAttempts = proto.Int32(1e9) })
	add("max_attempts below 0", over("topic.retry.max_attempts", 1), func(t *topic) { t.Retry.MaxAttempts = proto.Int32(-1) })
	add("min_backoff 0", invalid("topic.retry.min_backoff"), func(t *topic) { t.Retry.MinBackoff = durationpb.New(0) })
	add("max_backoff of 100 years", over("topic.retry.max_backoff", 86_400), func(t *topic) { t.Retry.MaxBackoff = durationpb.New(876_000 * time.Hour) })
	add("33 codes", over("topic.retry.non_retryable_codes", 32), func(t *topic) { t.Retry.NonRetryableCodes = make([]string, 33) })
	add("a code with a space", invalid("topic.retry.non_retryable_codes[0]"), func(t *topic) { t.Retry.NonRetryableCodes = []string{"a b"} })
	add("NUL in a code", invalid("topic.retry.non_retryable_codes[0]"), func(t *topic) { t.Retry.NonRetryableCodes = []string{"a\x00"} })
	add("retention below 0", invalid("topic.retention.max_age"), func(t *topic) { t.Retention.MaxAge = durationpb.New(-1) })
	add("retention of 1,000 years", over("topic.retention.max_age", 31_622_400), func(t *topic) { t.Retention.MaxAge = &durationpb.Duration{Seconds: 31_622_400_000} })
	add("partitions below 0", invalid("topic.partitions"), func(t *topic) { t.Partitions = -1 })
	add("257 partitions", over("topic.partitions", 256), func(t *topic) { t.Partitions = 257 })
	add("partitioner 9", invalid("topic.partitioner"), func(t *topic) { t.Partitioner = 9 })
	add("idempotency_window 0", over("topic.idempotency_window", 1), func(t *topic) { t.IdempotencyWindow = durationpb.New(0) })

	mask := func(name string, w want, paths ...string) {
		lines = append(lines, line{
			name: "update_mask " + name, procedure: updateTopic, want: w,
			message: &parleyv1.UpdateTopicRequest{Topic: &topic{Name: "jobs", Groups: []string{"x"}}, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}},
		})
	}
	for _, path := range []string{"name", "groups", "create_time", "partitioner", "strict_order", "produce_paused", "topic"} {
		mask(path, invalid("update_mask"), "retry", path)
	}
	mask("of nothing", invalid("update_mask"))
	mask("of 17", over("update_mask", 16), strings.Split(strings.Repeat("retry ", 17), " ")[:17]...)
	lines = append(lines,
		line{name: "a name of 70 KiB", procedure: createTopic, message: &parleyv1.CreateTopicRequest{Topic: &topic{Name: strings.Repeat("n", 70<<10)}}, want: refused("resource_exhausted")},
		line{name: "update_mask *", procedure: updateTopic, binary: "\x0a\x06\x0a\x04jobs\x12\x03\x0a\x01*", want: invalid("update_mask")},
		line{name: "update_mask * in JSON", procedure: updateTopic, json: `{"topic":{"name":"jobs"},"updateMask":"*"}`, want: refused("invalid_argument")},
		line{name: "update_mask of what is no field", procedure: updateTopic, json: `{"topic":{"name":"jobs"},"updateMask":{"$gt":""}}`, want: refused("invalid_argument")},
		line{name: "fewer partitions", procedure: updateTopic, want: over("topic.partitions", 2), message: &parleyv1.UpdateTopicRequest{
			Topic: &topic{Name: "jobs", Partitions: 1}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"partitions"}},
		}},
	)
	return lines
}

// boundLines returns requests with values beyond any other bound.
func boundLines(scheduledID string) []line {
	type move = parleyv1.RescheduleScheduledRequest
	var lines []line
	add := func(procedure, name string, w want, m proto.Message) {
		lines = append(lines, line{name: name + " to " + procedure, procedure: procedure, message: m, want: w})
	}
	delay := func(d *durationpb.Duration) *move {
		return &move{Topic: "jobs", MessageId: scheduledID, Due: &parleyv1.RescheduleScheduledRequest_Delay{Delay: d}}
	}
	at := func(ts *timestamppb.Timestamp) *move {
		return &move{Topic: "jobs", MessageId: scheduledID, Due: &parleyv1.RescheduleScheduledRequest_DueTime{DueTime: ts}}
	}
	add(reschedule, "delay below 0", invalid("delay"), delay(durationpb.New(-1)))
	add(reschedule, "delay of 367 days", over("delay", 31_622_400), delay(durationpb.New(367*24*time.Hour)))
	add(reschedule, "the year 9999", over("due_time", 31_622_400), at(timestamppb.New(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))))
	add(reschedule, "1970", invalid("due_time"), at(&timestamppb.Timestamp{}))
	add(reschedule, "no time", invalid("due"), &move{Topic: "jobs", MessageId: scheduledID})
	lines = append(lines,
		line{name: "a time of -2^62", procedure: reschedule, want: invalid("due_time"), only: "connect-proto grpc grpc-web", message: at(&timestamppb.Timestamp{Seconds: math.MinInt64 / 2})},
		line{name: "a delay of two signs", procedure: reschedule, want: invalid("delay"), only: "connect-proto grpc grpc-web", message: delay(&durationpb.Duration{Seconds: 1, Nanos: -1})},
		line{name: "a delay that is none", procedure: reschedule, want: refused("invalid_argument"), json: `{"topic":"jobs","messageId":"` + scheduledID + `","delay":"soon"}`},
		line{name: "a time that is none", procedure: seekGroup, want: refused("invalid_argument"), json: `{"topic":"jobs","group":"g","start":{"time":"2026-13-01T00:00:00Z"}}`},
		line{name: "two times", procedure: reschedule, want: refused("invalid_argument"), json: `{"topic":"jobs","messageId":"` + scheduledID + `","delay":"1s","dueTime":"2030-01-01T00:00:00Z"}`},
	)
	credits := func(messages, bytes int64) *parleyv1.GrantCreditsRequest {
		return &parleyv1.GrantCreditsRequest{Topic: "jobs", Group: "g", StreamId: "s", TotalMessages: messages, TotalBytes: bytes}
	}
	add(grantCredits, "no messages", over("total_messages", 1), credits(0, 1))
	add(grantCredits, "bytes below 0", over("total_bytes", 1), credits(1, -1))
	extendBy := func(d time.Duration) *parleyv1.ExtendRequest {
		r := queueCalls[extend]("jobs", "g").(*parleyv1.ExtendRequest)
		r.AckTimeout = durationpb.New(d)
		return r
	}
	extendThese := func(tokens ...string) *parleyv1.ExtendRequest {
		return &parleyv1.ExtendRequest{
			Topic: "jobs", Group: "g", StreamId: "s", Target: &parleyv1.ExtendRequest_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: tokens}},
		}
	}
	add(extend, "ack_timeout 0", over("ack_timeout", 1), extendBy(0))
	add(extend, "ack_timeout 13 h", over("ack_timeout", 43_200), extendBy(13*time.Hour))
	add(extend, "nothing named", invalid("target"), &parleyv1.ExtendRequest{Topic: "jobs", Group: "g", StreamId: "s"})
	add(extend, "no tokens", over("deliveries.tokens", 1), extendThese())
	ids := strings.Split(strings.TrimSpace(strings.Repeat(someID+" ", 1001)), " ")
	tokens := strings.Split(strings.TrimSpace(strings.Repeat("t ", 1001)), " ")
	add(produce, "a batch of 1,001", over("messages", 1000), &parleyv1.ProduceRequest{Topic: "jobs", Messages: make([]*parleyv1.QueueMessage, 1001)})
	add(produce, "a batch of none", over("messages", 1), &parleyv1.ProduceRequest{Topic: "jobs"})
	add(schedule, "a batch of 1,001", over("messages", 1000), &parleyv1.ScheduleRequest{Topic: "jobs", Messages: make([]*parleyv1.ScheduledMessage, 1001)})
	add(schedule, "a batch of none", over("messages", 1), &parleyv1.ScheduleRequest{Topic: "jobs"})
	add(ack, "1,001 tokens", over("tokens", 1000), &parleyv1.AckRequest{Topic: "jobs", Group: "g", StreamId: "s", Tokens: tokens})
	add(ack, "no tokens", over("tokens", 1), &parleyv1.AckRequest{Topic: "jobs", Group: "g", StreamId: "s"})
	add(extend, "1,001 tokens", over("deliveries.tokens", 1000), extendThese(tokens...))
	add(nack, "1,001 items", over("items", 1000), &parleyv1.NackRequest{Topic: "jobs", Group: "g", StreamId: "s", Items: make([]*parleyv1.NackItem, 1001)})
	for name, s := range map[string]*parleyv1.DeadLetterSelection{
		"selection": nil, "selection.selection": {}, "selection.ids.dead_letter_ids 1": lettersBy(), "selection.ids.dead_letter_ids 1000": lettersBy(ids...),
	} {
		field, limit, _ := strings.Cut(name, " ")
		n, _ := strconv.ParseInt(limit, 10, 64)
		add(replayLetters, "a bad "+name, over(field, n), &parleyv1.ReplayDeadLettersRequest{Topic: "jobs", Selection: s})
		add(purgeLetters, "a bad "+name, over(field, n), &parleyv1.PurgeDeadLettersRequest{Topic: "jobs", Selection: s, Confirm: "jobs"})
	}
	all := allLetters()
	add(replayLetters, "limit -1", invalid("limit"), &parleyv1.ReplayDeadLettersRequest{Topic: "jobs", Selection: all, Limit: -1})
	add(replayLetters, "limit of 2^31-1", over("limit", 10_000), &parleyv1.ReplayDeadLettersRequest{Topic: "jobs", Selection: all, Limit: math.MaxInt32})
	add(replayLetters, "partition 256", over("partition", 255), &parleyv1.ReplayDeadLettersRequest{Topic: "jobs", Selection: all, Partition: proto.Int32(256)})
	add(replayLetters, "a partition that there is not", over("partition", 1), &parleyv1.ReplayDeadLettersRequest{Topic: "jobs", Selection: all, Partition: proto.Int32(2)})
	lines = append(lines, line{name: "limit of 2^31", procedure: replayLetters, json: `{"topic":"jobs","selection":{"all":{}},"limit":2147483648}`, want: refused("invalid_argument")})
	for procedure, request := range map[string]func(operations ...parleyv1.TopicOperation) proto.Message{
		pauseTopic: func(operations ...parleyv1.TopicOperation) proto.Message {
			return &parleyv1.PauseTopicRequest{Topic: "jobs", Operations: operations}
		},
		resumeTopic: func(operations ...parleyv1.TopicOperation) proto.Message {
			return &parleyv1.ResumeTopicRequest{Topic: "paused", Operations: operations}
		},
	} {
		add(procedure, "no operation", over("operations", 1), request())
		add(procedure, "operation 0", invalid("operations[0]"), request(0))
		add(procedure, "operation 9", invalid("operations[1]"), request(1, 9))
		add(procedure, "one operation twice", invalid("operations"), request(2, 2))
	}
	add(trimTopic, "messages below 0", invalid("max_messages"), &parleyv1.TrimTopicRequest{Topic: "jobs", Keep: &parleyv1.TrimTopicRequest_MaxMessages{MaxMessages: -1}, Force: true})
	add(trimTopic, "age below 0", invalid("max_age"), &parleyv1.TrimTopicRequest{Topic: "jobs", Keep: &parleyv1.TrimTopicRequest_MaxAge{MaxAge: durationpb.New(-1)}, Force: true})
	add(trimTopic, "nothing said", invalid("keep"), &parleyv1.TrimTopicRequest{Topic: "jobs", Force: true})
	add(seekGroup, "no start", invalid("start"), &parleyv1.SeekGroupRequest{Topic: "jobs", Group: "g"})
	add(seekGroup, "a start of nothing", invalid("start.start"), &parleyv1.SeekGroupRequest{Topic: "jobs", Group: "g", Start: &parleyv1.GroupStart{}})
	add(seekGroup, "position 0", invalid("start.position"), &parleyv1.SeekGroupRequest{Topic: "jobs", Group: "g", Start: &parleyv1.GroupStart{Start: &parleyv1.GroupStart_Position{}}})
	for _, procedure := range []string{listTopics, listPending, listLetters} {
		for size, w := range map[int32]want{-1: invalid("page_size"), math.MinInt32: invalid("page_size")} {
			m := map[string]proto.Message{
				listTopics:  &parleyv1.ListTopicsRequest{PageSize: size},
				listPending: &parleyv1.ListPendingRequest{Topic: "jobs", Group: "g", PageSize: size},
				listLetters: &parleyv1.ListDeadLettersRequest{Topic: "jobs", PageSize: size},
			}[procedure]
			add(procedure, "page_size "+strconv.Itoa(int(size)), w, m)
		}
	}
	add(listTopics, "a page token that is none", want{code: "invalid_argument", reason: "PAGE_TOKEN_INVALID", field: "page_token"}, &parleyv1.ListTopicsRequest{PageToken: `{"$gt":""}`})
	add(listTopics, "a page token of 1,025 letters", over("page_token", 1024), &parleyv1.ListTopicsRequest{PageToken: strings.Repeat("a", 1025)})
	add(listPending, "order 9", invalid("order"), &parleyv1.ListPendingRequest{Topic: "jobs", Group: "g", Order: 9})
	return lines
}

// mistypedLines returns requests with mistyped or misplaced JSON fields. They must be refused: a
// server that ignored such a field could do more than the caller asked for.
func mistypedLines() []line {
	var lines []line
	for procedure, bodies := range map[string]map[string]want{
		purgeLetters: {
			`{"topic":"jobs","confirm":"jobs","deadLetterId":["` + someID + `"]}`:                         unknownField("deadLetterId"),
			`{"topic":"jobs","confirm":"jobs","dead_letter_ids":["` + someID + `"]}`:                      unknownField("dead_letter_ids"),
			`{"topic":"jobs","confirm":"jobs","selection":{"ids":{"deadLetterId":["` + someID + `"]}}}`:   unknownField("selection.ids.deadLetterId"),
			`{"topic":"jobs","confirm":"jobs","selection":{"all":{},"deadLetterIds":["` + someID + `"]}}`: unknownField("selection.deadLetterIds"),
			`{"topic":"jobs","confirm":"jobs","selection":{"all":{"group":"g"}}}`:                         unknownField("selection.all.group"),
			`{"topic":"jobs","confirm":"jobs","selection":{"all":null}}`:                                  invalid("selection.selection"),
			`{"topic":"jobs","confirm":"jobs","selection":null}`:                                          invalid("selection"),
			`{"topic":"jobs","confirm":"jobs","selection":{"all":{},"group":"g"}}`:                        refused("invalid_argument"),
			`{"topic":"jobs","confirm":"jobs","selection":{"all":true}}`:                                  refused("invalid_argument"),
		},
		replayLetters: {
			`{"topic":"jobs","selection":{"all":{}},"groups":"g"}`: unknownField("groups"),
			`{"topic":"jobs","selection":{"all":{}},"limt":1}`:     unknownField("limt"),
			`{"topic":"jobs","group":"g"}`:                         unknownField("group"),
		},
		pauseTopic: {
			`{"topic":"jobs","produce_onli":true}`:                                                unknownField("produce_onli"),
			`{"topic":"jobs","operation":["TOPIC_OPERATION_PRODUCE"]}`:                            unknownField("operation"),
			`{"topic":"jobs","operations":["TOPIC_OPERATION_PRODUCE"],"consume":false}`:           unknownField("consume"),
			`{"topic":"jobs","operations":["TOPIC_OPERATION_PRODUCE","TOPIC_OPERATION_DELIVER"]}`: invalid("operations[1]"),
			`{"topic":"jobs"}`: over("operations", 1),
		},
		resumeTopic: {`{"topic":"paused","produceOnly":true}`: unknownField("produceOnly")},
		trimTopic:   {`{"topic":"jobs","max_messages":"5","max_age_s":"1"}`: unknownField("max_age_s")},
		extend:      {`{"topic":"jobs","group":"g","streamId":"s","tokens":["t"]}`: unknownField("tokens")},
		nack: {
			`{"topic":"jobs","group":"g","streamId":"s","items":[{"token":"t","deadLeter":{}}]}`: unknownField("items[0].deadLeter"),
		},
	} {
		for body, w := range bodies {
			lines = append(lines, line{name: "" + body + " to " + procedure, procedure: procedure, json: body, want: w})
		}
	}
	return lines
}

// stateLines returns requests that are valid but must fail: their target is missing, exists
// already, or is in the wrong state.
func stateLines() []line {
	var lines []line
	add := func(procedure, name string, w want, m proto.Message) {
		lines = append(lines, line{name: name + ", " + procedure, procedure: procedure, message: m, want: w})
	}
	noTopic := want{code: "not_found", reason: "TOPIC_NOT_FOUND", field: "topic"}
	noGroup := want{code: "not_found", reason: "GROUP_NOT_FOUND", field: "group"}
	ended := want{code: "failed_precondition", reason: "LEASE_LOST"}
	unconfirmed := want{code: "failed_precondition", reason: "CONFIRMATION_REQUIRED", field: "confirm"}
	for _, calls := range []map[string]func(topic, group string) proto.Message{queueCalls, adminCalls} {
		for procedure, request := range calls {
			switch procedure {
			case createTopic, ack, nack: // ack and nack answer for each item
			case extend, grantCredits, leave:
				add(procedure, "a stream that is not there", ended, request("jobs", "g"))
			default:
				add(procedure, "a topic that is not there", noTopic, request("nothing", "g"))
				if groupCalls[procedure] && procedure != createGroup {
					there := noGroup
					if procedure == purgeLetters || procedure == replayLetters {
						there.field = "selection.group"
					}
					add(procedure, "a group that is not there", there, request("jobs", "nothing"))
				}
			}
		}
	}
	add(createTopic, "a topic that is there", want{code: "already_exists", reason: "TOPIC_EXISTS", field: "topic.name"}, adminCalls[createTopic]("jobs", ""))
	add(createGroup, "a group that is there", want{code: "already_exists", reason: "GROUP_EXISTS", field: "group"}, adminCalls[createGroup]("jobs", "g"))
	paused := want{code: "failed_precondition", reason: "TOPIC_PAUSED"}
	add(produce, "a paused topic", paused, queueCalls[produce]("paused", ""))
	add(schedule, "a paused topic", paused, queueCalls[schedule]("paused", ""))
	add(seekGroup, "a group with a consumer", want{code: "failed_precondition", reason: "GROUP_IN_USE", field: "group"}, adminCalls[seekGroup]("jobs", "g"))
	for _, confirm := range []string{"", "job", "JOBS", "*"} {
		name := "confirmed by " + strconv.Quote(confirm)
		add(deleteTopic, name, unconfirmed, &parleyv1.DeleteTopicRequest{Topic: "jobs", Confirm: confirm})
		add("DeleteGroup", name, unconfirmed, &parleyv1.DeleteGroupRequest{Topic: "jobs", Group: "g", Confirm: confirm})
		add(purgeLetters, name, unconfirmed, &parleyv1.PurgeDeadLettersRequest{Topic: "jobs", Selection: allLetters(), Confirm: confirm})
	}
	gone := want{code: "not_found", reason: "SCHEDULED_NOT_FOUND", field: "message_id"}
	for _, id := range []string{someID, someID + "d", "1-1700000000000-1d", "9999-1700000000000-1d"} {
		add(cancelScheduled, id+", which is not scheduled", gone, &parleyv1.CancelScheduledRequest{Topic: "jobs", MessageId: id})
		add(reschedule, id+", which is not scheduled", gone, &parleyv1.RescheduleScheduledRequest{Topic: "jobs", MessageId: id, Due: &parleyv1.RescheduleScheduledRequest_Delay{Delay: durationpb.New(0)}})
	}
	return lines
}

func TestHostileQueueFields(t *testing.T) { //nolint:paralleltest // it measures processor time, which all tests share
	g := attack(t, nil)
	scheduledID := g.workshop()
	g.run(idsOfQueues())
	g.run(consumeLines())
	g.run(settingLines())
	g.run(boundLines(scheduledID))
	g.run(mistypedLines())
	g.run(stateLines())
}
