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

// Hostile input in the settings of topics and groups, JSON with mistyped fields, and valid requests
// in a state in which they must fail.

// settingLines returns requests with invalid settings of topics.
func settingLines() []line {
	type topic = parleyv1.Topic
	var lines []line
	add := func(name string, w want, change func(*topic)) {
		wire := &topic{Name: "new", Retention: &parleyv1.TopicRetention{}}
		change(wire)
		update := proto.CloneOf(wire)
		update.Name = "jobs"
		lines = append(lines, line{name: name, procedure: createTopic, message: &parleyv1.CreateTopicRequest{Topic: wire}, want: w}, line{
			name: name + ", to change", procedure: updateTopic, want: w,
			message: &parleyv1.UpdateTopicRequest{Topic: update, UpdateMask: maskOf("retention", "idempotency_window")},
		})
	}
	add("retention below 0", over("topic.retention.max_age", 0), func(t *topic) { t.Retention.MaxAge = durationpb.New(-1) })
	add("retention of 1,000 years", over("topic.retention.max_age", 31_622_400), func(t *topic) { t.Retention.MaxAge = &durationpb.Duration{Seconds: 31_622_400_000} })
	add("-1 messages retained", invalid("topic.retention.max_messages"), func(t *topic) { t.Retention.MaxMessages = -1 })
	add("letters of 1,000 years", over("topic.retention.dead_letter_max_age", 31_622_400), func(t *topic) { t.Retention.DeadLetterMaxAge = &durationpb.Duration{Seconds: 31_622_400_000} })
	add("2^63-1 letters", over("topic.retention.max_dead_letters", 1e9), func(t *topic) { t.Retention.MaxDeadLetters = math.MaxInt64 })
	add("partitions below 0", invalid("topic.partitions"), func(t *topic) { t.Partitions = -1 })
	add("257 partitions", over("topic.partitions", 256), func(t *topic) { t.Partitions = 257 })
	add("partitioner 9", invalid("topic.partitioner"), func(t *topic) { t.Partitioner = 9 })
	add("a bound below 0", invalid("topic.max_messages_per_partition"), func(t *topic) { t.MaxMessagesPerPartition = math.MinInt64 })
	add("idempotency_window 0", over("topic.idempotency_window", 1), func(t *topic) { t.IdempotencyWindow = durationpb.New(0) })
	add("idempotency_window of 8 days", over("topic.idempotency_window", 604_800), func(t *topic) { t.IdempotencyWindow = durationpb.New(8 * 24 * time.Hour) })

	mask := func(name string, w want, paths ...string) {
		lines = append(lines, line{
			name: "update_mask " + name, procedure: updateTopic, want: w,
			message: &parleyv1.UpdateTopicRequest{Topic: &topic{Name: "jobs", Groups: []string{"x"}}, UpdateMask: maskOf(paths...)},
		})
	}
	for _, path := range []string{"name", "groups", "create_time", "partitioner", "paused", "topic"} {
		mask(path, invalid("update_mask"), "retention", path)
	}
	mask("of nothing", invalid("update_mask"))
	mask("of 17", over("update_mask", 16), strings.Split(strings.Repeat("retention ", 17), " ")[:17]...)
	return append(lines,
		line{name: "a name of 70 KiB", procedure: createTopic, message: &parleyv1.CreateTopicRequest{Topic: &topic{Name: strings.Repeat("n", 70<<10)}}, want: refused("resource_exhausted")},
		line{name: "no topic", procedure: createTopic, message: &parleyv1.CreateTopicRequest{}, want: invalid("topic")},
		line{name: "no topic", procedure: updateTopic, message: &parleyv1.UpdateTopicRequest{UpdateMask: maskOf("retention")}, want: invalid("topic")},
		line{name: "update_mask *", procedure: updateTopic, binary: "\x0a\x06\x0a\x04jobs\x12\x03\x0a\x01*", want: invalid("update_mask")},
		line{name: "update_mask * in JSON", procedure: updateTopic, json: `{"topic":{"name":"jobs"},"updateMask":"*"}`, want: refused("invalid_argument")},
		line{name: "update_mask of what is no field", procedure: updateTopic, json: `{"topic":{"name":"jobs"},"updateMask":{"$gt":""}}`, want: refused("invalid_argument")},
		line{name: "fewer partitions", procedure: updateTopic, want: over("topic.partitions", 2), message: &parleyv1.UpdateTopicRequest{
			Topic: &topic{Name: "jobs", Partitions: 1}, UpdateMask: maskOf("partitions"),
		}},
	)
}

// groupLines returns requests with invalid settings of groups.
func groupLines() []line {
	type group = parleyv1.Group
	var lines []line
	add := func(name string, w want, change func(*group)) {
		wire := &group{Name: "new", Retry: &parleyv1.RetryPolicy{}}
		change(wire)
		update := proto.CloneOf(wire)
		update.Name = "g"
		lines = append(lines, line{name: name, procedure: createGroup, message: &parleyv1.CreateGroupRequest{Topic: "jobs", Group: wire}, want: w}, line{
			name: name + ", to change", procedure: updateGroup, want: w,
			message: &parleyv1.UpdateGroupRequest{Topic: "jobs", Group: update, UpdateMask: maskOf("retry", "order", "ack_timeout")},
		})
	}
	add("max_attempts 0", over("group.retry.max_attempts", 1), func(g *group) { g.Retry.MaxAttempts = proto.Int32(0) })
	add("max_attempts 10^9", over("group.retry.max_attempts", 1000), func(g *group) { g.Retry.MaxAttempts = proto.Int32(1e9) })
	add("max_attempts below 0", over("group.retry.max_attempts", 1), func(g *group) { g.Retry.MaxAttempts = proto.Int32(-1) })
	add("min_backoff 0", over("group.retry.min_backoff", 0), func(g *group) { g.Retry.MinBackoff = durationpb.New(0) })
	add("max_backoff of 100 years", over("group.retry.max_backoff", 86_400), func(g *group) { g.Retry.MaxBackoff = durationpb.New(876_000 * time.Hour) })
	add("max_backoff below min_backoff", invalid("group.retry.max_backoff"), func(g *group) {
		g.Retry.MinBackoff, g.Retry.MaxBackoff = durationpb.New(time.Minute), durationpb.New(time.Second)
	})
	add("33 codes", over("group.retry.non_retryable_codes", 32), func(g *group) { g.Retry.NonRetryableCodes = make([]string, 33) })
	add("a code with a space", invalid("group.retry.non_retryable_codes[0]"), func(g *group) { g.Retry.NonRetryableCodes = []string{"a b"} })
	add("NUL in a code", invalid("group.retry.non_retryable_codes[0]"), func(g *group) { g.Retry.NonRetryableCodes = []string{"a\x00"} })
	add("mode 9", invalid("group.mode"), func(g *group) { g.Mode = 9 })
	add("order -1", invalid("group.order"), func(g *group) { g.Order = -1 })
	add("ack_timeout 0", over("group.ack_timeout", 1), func(g *group) { g.AckTimeout = durationpb.New(0) })
	add("ack_timeout 13 h", over("group.ack_timeout", 43_200), func(g *group) { g.AckTimeout = durationpb.New(13 * time.Hour) })
	add("handler_timeout below 0", over("group.handler_timeout", 0), func(g *group) { g.HandlerTimeout = durationpb.New(-time.Second) })
	add("handler_timeout of 8 days", over("group.handler_timeout", 604_800), func(g *group) { g.HandlerTimeout = durationpb.New(8 * 24 * time.Hour) })
	add("max_run_time 0", over("group.max_run_time", 1), func(g *group) { g.MaxRunTime = durationpb.New(0) })
	add("max_run_time of 8 days", over("group.max_run_time", 604_800), func(g *group) { g.MaxRunTime = durationpb.New(8 * 24 * time.Hour) })
	add("resume_grace 0", over("group.resume_grace", 1), func(g *group) { g.ResumeGrace = durationpb.New(0) })
	add("resume_grace of an hour", over("group.resume_grace", 600), func(g *group) { g.ResumeGrace = durationpb.New(time.Hour) })
	add("a start of nothing", invalid("group.start.start"), func(g *group) { g.Start = &parleyv1.GroupStart{} })
	add("a start in 1970", invalid("group.start.time"), func(g *group) {
		g.Start = &parleyv1.GroupStart{Start: &parleyv1.GroupStart_Time{Time: &timestamppb.Timestamp{}}}
	})
	for _, path := range []string{"name", "mode", "start", "paused", "group"} {
		lines = append(lines, line{name: "update_mask " + path + " of a group", procedure: updateGroup, want: invalid("update_mask"), message: &parleyv1.UpdateGroupRequest{
			Topic: "jobs", Group: &group{Name: "g"}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"retry", path}},
		}})
	}
	return append(lines,
		line{name: "no group", procedure: createGroup, message: &parleyv1.CreateGroupRequest{Topic: "jobs"}, want: invalid("group")},
		line{name: "no mask of a group", procedure: updateGroup, message: &parleyv1.UpdateGroupRequest{Topic: "jobs", Group: &group{Name: "g"}}, want: invalid("update_mask")},
	)
}

// mistypedLines returns requests with mistyped or misplaced JSON fields. They must be refused: a
// server that ignored such a field could do more than the caller asked for.
func mistypedLines() []line {
	var lines []line
	for procedure, bodies := range map[string]map[string]want{
		purgeLetters: {
			`{"topic":"jobs","confirm":"jobs","deadLetterId":["` + someLetter + `"]}`:                         unknownField("deadLetterId"),
			`{"topic":"jobs","confirm":"jobs","dead_letter_ids":["` + someLetter + `"]}`:                      unknownField("dead_letter_ids"),
			`{"topic":"jobs","confirm":"jobs","selection":{"ids":{"deadLetterId":["` + someLetter + `"]}}}`:   unknownField("selection.ids.deadLetterId"),
			`{"topic":"jobs","confirm":"jobs","selection":{"all":{},"deadLetterIds":["` + someLetter + `"]}}`: unknownField("selection.deadLetterIds"),
			`{"topic":"jobs","confirm":"jobs","selection":{"all":{"group":"g"}}}`:                             unknownField("selection.all.group"),
			`{"topic":"jobs","confirm":"jobs","selection":{"all":null}}`:                                      invalid("selection.selection"),
			`{"topic":"jobs","confirm":"jobs","selection":null}`:                                              invalid("selection"),
			`{"topic":"jobs","confirm":"jobs","selection":{"all":{},"group":"g"}}`:                            refused("invalid_argument"),
			`{"topic":"jobs","confirm":"jobs","selection":{"all":true}}`:                                      refused("invalid_argument"),
		},
		replayLetters: {
			`{"topic":"jobs","selection":{"all":{}},"groups":"g"}`: unknownField("groups"),
			`{"topic":"jobs","selection":{"all":{}},"limt":1}`:     unknownField("limt"),
			`{"topic":"jobs","group":"g"}`:                         unknownField("group"),
			`{"topic":"jobs","selection":{"all":{}},"to":"full"}`:  unknownField("to"),
		},
		"SetTopicPaused": {
			`{"topic":"jobs","pause":true}`:                      unknownField("pause"),
			`{"topic":"jobs","paused":true,"operations":[1]}`:    unknownField("operations"),
			`{"topic":"jobs","paused":"yes"}`:                    refused("invalid_argument"),
			`{"topic":"jobs","paused":true,"produce_onli":true}`: unknownField("produce_onli"),
		},
		"SetGroupPaused": {`{"topic":"jobs","group":"g","paused":true,"groups":["h"]}`: unknownField("groups")},
		createGroup:      {`{"topic":"jobs","group":{"name":"new","maxAttempts":3}}`: unknownField("group.maxAttempts")},
		trimTopic:        {`{"topic":"jobs","max_messages":"5","max_age_s":"1"}`: unknownField("max_age_s")},
		produce:          {`{"topic":"jobs","messages":[{"delaySeconds":5}]}`: unknownField("messages[0].delaySeconds")},
		cancelMessages:   {`{"topic":"jobs","messageId":"` + someID + `d"}`: unknownField("messageId")},
		extend:           {`{"sessionId":"s","tokens":["t"]}`: unknownField("tokens")},
		nack:             {`{"sessionId":"s","items":[{"token":"t","deadLeter":{}}]}`: unknownField("items[0].deadLeter")},
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
	ended := want{code: "failed_precondition", reason: "SESSION_LOST"}
	unconfirmed := want{code: "failed_precondition", reason: "CONFIRMATION_REQUIRED", field: "confirm"}
	for procedure, request := range allQueueCalls() {
		if sessionCalls[procedure] {
			add(procedure, "a session that is not there", ended, request("jobs", "g"))
			continue
		}
		if procedure == createTopic {
			continue
		}
		there, missing := noTopic, noGroup
		switch procedure {
		case consume:
			there.field = "topics"
		case streamingConsume:
			there.field, missing.field = "start.topics", "start.group"
		case purgeLetters, replayLetters:
			missing.field = "selection.group"
		}
		add(procedure, "a topic that is not there", there, request("nothing", "g"))
		if groupCalls[procedure] && procedure != createGroup {
			add(procedure, "a group that is not there", missing, request("jobs", "nothing"))
		}
	}
	add(createTopic, "a topic that is there", want{code: "already_exists", reason: "TOPIC_EXISTS", field: "topic.name"}, adminCalls[createTopic]("jobs", ""))
	add(createGroup, "a group that is there", want{code: "already_exists", reason: "GROUP_EXISTS", field: "group.name"}, adminCalls[createGroup]("jobs", "g"))
	add(replayLetters, "a destination that is not there", want{code: "not_found", reason: "TOPIC_NOT_FOUND", field: "to_topic"},
		&parleyv1.ReplayDeadLettersRequest{Topic: "jobs", Selection: allLetters(), ToTopic: "nothing"})
	add(produce, "a paused topic", want{code: "failed_precondition", reason: "TOPIC_PAUSED"}, queueCalls[produce]("paused", ""))
	for _, confirm := range []string{"", "job", "JOBS", "*"} {
		name := "confirmed by " + strconv.Quote(confirm)
		add(deleteTopic, name, unconfirmed, &parleyv1.DeleteTopicRequest{Topic: "jobs", Confirm: confirm})
		add(deleteGroup, name, unconfirmed, &parleyv1.DeleteGroupRequest{Topic: "jobs", Group: "g", Confirm: confirm})
		add(purgeLetters, name, unconfirmed, &parleyv1.PurgeDeadLettersRequest{Topic: "jobs", Selection: allLetters(), Confirm: confirm})
	}
	for _, id := range []string{someID, someID + "d", "1-1700000000000000d", "9999-1700000000000000", "x", "\r\n", "0-99999999999999999999"} {
		add(getJob, strconv.Quote(id)+", which is not there", want{code: "not_found", reason: "MESSAGE_NOT_FOUND", field: "message_id"}, &parleyv1.GetJobRequest{Topic: "jobs", MessageId: id})
	}
	return lines
}

func TestHostileQueueSettings(t *testing.T) { //nolint:paralleltest // it measures processor time, which all tests share
	g := attack(t, nil)
	g.workshop()
	g.run(settingLines())
	g.run(groupLines())
	g.run(mistypedLines())
	g.run(stateLines())
}
