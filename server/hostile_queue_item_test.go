package server_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// Hostile input about messages of a batch: a bad message gets its own error, and its neighbours are
// accepted.

// itemLine is a bad message and the answer that it must get between two valid ones.
type itemLine struct {
	name    string
	message *parleyv1.QueueMessage
	// only names the dialects in which the item is sent; empty means all.
	only string
	// field is the path within the message that the error must name.
	field string
	limit int64
	// text is what the error must say besides the field; empty for any.
	text string
}

func itemLines() []itemLine {
	type message = parleyv1.QueueMessage
	headers := func(n int) map[string]string {
		m := make(map[string]string, n)
		for i := range n {
			m["h"+strconv.Itoa(i)] = ""
		}
		return m
	}
	const valueText = ": the value must not contain CR, LF or NUL"
	header := func(name, value string) *message { return &message{Headers: map[string]string{name: value}} }
	return append([]itemLine{
		{name: "payload of 262,145 bytes", message: &message{Payload: make([]byte, 256<<10+1)}, field: "payload", limit: 256 << 10},
		{name: "key of 1 KiB", message: &message{Key: strings.Repeat("k", 1<<10)}, field: "key", limit: 256},
		{name: "key of 257 bytes in two-byte letters", message: &message{Key: strings.Repeat("é", 128) + "x"}, field: "key", limit: 256},
		{name: "NUL in a key", message: &message{Key: "a\x00b"}, field: "key"},
		{name: "33 headers", message: &message{Headers: headers(33)}, field: "headers", limit: 32},
		{name: "2,000 headers", message: &message{Headers: headers(2000)}, field: "headers", limit: 32},
		{name: "header webhook-signature", message: header("webhook-signature", "v1,x"), field: `headers["webhook-signature"]`},
		{name: "header Webhook-Id", message: header("Webhook-Id", "x"), field: `headers["Webhook-Id"]`},
		{name: "header parley-attempt", message: header("parley-attempt", "1"), field: `headers["parley-attempt"]`},
		{name: "header of nothing", message: header("", "x"), field: `headers[""]`},
		{name: "header with a newline", message: header("a\r\nb", "x"), field: `headers["a\r\nb"]`, text: ": the name must be 1 to 64 of A-Z a-z 0-9 _ . -"},
		{name: "header of 65 letters", message: header(strings.Repeat("h", 65), "x"), field: `headers["` + strings.Repeat("h", 65) + `"]`},
		{name: "header's value of 1,025 bytes", message: header("h", strings.Repeat("v", 1025)), field: `headers["h"]`, limit: 1024},
		{name: "NUL in a header", message: header("h", "\x00"), field: `headers["h"]`},
		{name: "CR in a header", message: header("h", "a\rSet-Cookie: b"), field: `headers["h"]`, text: valueText},
		{name: "LF in a header", message: header("h", "a\n"), field: `headers["h"]`, text: valueText},
		{name: "CR and LF in a header", message: header("h", "\r\nb"), field: `headers["h"]`, text: valueText},
		{name: "idempotency key of 129", message: &message{IdempotencyKey: strings.Repeat("i", 129)}, field: "idempotency_key"},
		{name: "idempotency key with a space", message: &message{IdempotencyKey: "a b"}, field: "idempotency_key"},
		{name: "idempotency key that ends with a newline", message: &message{IdempotencyKey: "a\n"}, field: "idempotency_key"},
		{name: "idempotency key not ASCII", message: &message{IdempotencyKey: "ä"}, field: "idempotency_key"},
		{name: "max_attempts 0", message: &message{MaxAttempts: proto.Int32(0)}, field: "max_attempts", limit: 1},
		{name: "max_attempts below 0", message: &message{MaxAttempts: proto.Int32(-1)}, field: "max_attempts", limit: 1},
		{name: "1,001 attempts", message: &message{MaxAttempts: proto.Int32(1001)}, field: "max_attempts", limit: 1000},
		{name: "timeout 0", message: &message{Timeout: durationpb.New(0)}, field: "timeout"},
		{name: "timeout of 8 days", message: &message{Timeout: durationpb.New(8 * 24 * time.Hour)}, field: "timeout", limit: 604_800},
		{name: "ttl below 0", message: &message{Ttl: durationpb.New(-time.Hour)}, field: "ttl"},
		{name: "ttl of 10,000 years", message: &message{Ttl: &durationpb.Duration{Seconds: 315_576_000_000}}, field: "ttl", limit: 31_622_400},
	}, append(dueLines(), uniqueLines()...)...)
}

// dueLines are messages with bad due times.
func dueLines() []itemLine {
	due := func(d *durationpb.Duration) *parleyv1.QueueMessage {
		return &parleyv1.QueueMessage{Due: &parleyv1.QueueMessage_Delay{Delay: d}}
	}
	at := func(ts *timestamppb.Timestamp) *parleyv1.QueueMessage {
		return &parleyv1.QueueMessage{Due: &parleyv1.QueueMessage_DeliverAt{DeliverAt: ts}}
	}
	const binary = "connect-proto grpc grpc-web"
	return []itemLine{
		{name: "delay -1", message: due(durationpb.New(-1)), field: "delay"},
		{name: "delay -1 s", message: due(durationpb.New(-time.Second)), field: "delay"},
		{name: "delay of 367 days", message: due(durationpb.New(367 * 24 * time.Hour)), field: "delay", limit: 31_622_400},
		{name: "delay of 10,000 years", message: due(&durationpb.Duration{Seconds: 315_576_000_000}), field: "delay", limit: 31_622_400},
		{name: "the year 9999", message: at(timestamppb.New(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))), field: "deliver_at", limit: 31_622_400},
		{name: "the year 1", message: at(timestamppb.New(time.Time{})), field: "deliver_at"},
		{name: "a time of -2^62", message: at(&timestamppb.Timestamp{Seconds: -1 << 62}), field: "deliver_at", only: binary},
		{name: "2^31 nanoseconds", message: at(&timestamppb.Timestamp{Seconds: 1_900_000_000, Nanos: 1<<31 - 1}), field: "deliver_at", only: binary},
	}
}

// uniqueLines are messages with bad unique keys.
func uniqueLines() []itemLine {
	unique := func(u *parleyv1.Unique) *parleyv1.QueueMessage { return &parleyv1.QueueMessage{Unique: u} }
	return []itemLine{
		{name: "no unique key", message: unique(&parleyv1.Unique{}), field: "unique.key"},
		{name: "unique key of 129", message: unique(&parleyv1.Unique{Key: strings.Repeat("u", 129)}), field: "unique.key"},
		{name: "unique key with a newline", message: unique(&parleyv1.Unique{Key: "u\n"}), field: "unique.key"},
		{name: "unknown conflict", message: unique(&parleyv1.Unique{Key: "u", OnConflict: 9}), field: "unique.on_conflict"},
		{name: "unique for no time", message: unique(&parleyv1.Unique{Key: "u", AtMost: durationpb.New(0)}), field: "unique.at_most", limit: 1},
		{name: "unique for 8 days", message: unique(&parleyv1.Unique{Key: "u", AtMost: durationpb.New(8 * 24 * time.Hour)}), field: "unique.at_most", limit: 604_800},
	}
}

// itemErrors sends a line and returns the error of each item, nil for an accepted one.
func (g *target) itemErrors(l *line, d *dialect, token string) []*parleyv1.ItemError {
	g.t.Helper()
	var out []*parleyv1.ItemError
	switch l.procedure {
	case produce:
		for _, r := range answerTo[parleyv1.ProduceResponse](g, d, l, token).GetResults() {
			out = append(out, r.GetError())
		}
	case cancelMessages:
		for _, r := range answerTo[parleyv1.CancelMessagesResponse](g, d, l, token).GetResults() {
			out = append(out, r.GetError())
		}
	case reschedule:
		for _, r := range answerTo[parleyv1.RescheduleMessagesResponse](g, d, l, token).GetResults() {
			out = append(out, r.GetError())
		}
	case ack:
		for _, r := range answerTo[parleyv1.AckResponse](g, d, l, token).GetResults() {
			out = append(out, r.GetError())
		}
	case nack:
		for _, r := range answerTo[parleyv1.NackResponse](g, d, l, token).GetResults() {
			out = append(out, r.GetError())
		}
	case extend:
		for _, r := range answerTo[parleyv1.ExtendResponse](g, d, l, token).GetResults() {
			out = append(out, r.GetError())
		}
	default:
		g.t.Fatalf("%s has no items", l.procedure)
	}
	return out
}

// codeName returns a code's name as connect spells it.
func codeName(code parleyv1.StatusCode) string {
	return strings.ToLower(strings.TrimPrefix(code.String(), "STATUS_CODE_"))
}

// itemSummary formats an item's error.
func itemSummary(e *parleyv1.ItemError) string {
	if e == nil {
		return "ok"
	}
	d := e.GetDetail()
	return fmt.Sprintf("%s %s %q %d", codeName(e.GetCode()), strings.TrimPrefix(d.GetReason().String(), "ERROR_REASON_"), d.GetField(), d.GetLimit())
}

// topicCounts returns how many messages a topic has accepted, and how many are scheduled.
func (g *target) topicCounts(topic string) (produced, scheduled int64) {
	g.t.Helper()
	stats, err := g.QueueAdmin(g.Token).GetTopicStats(g.t.Context(), &parleyv1.GetTopicStatsRequest{Topic: topic})
	if err != nil {
		g.t.Fatal(err)
	}
	return stats.GetTotal().GetProduced(), stats.GetTotal().GetScheduled()
}

func TestHostileQueueItems(t *testing.T) { //nolint:paralleltest // it measures processor time, which all tests share
	g := attack(t, nil)
	g.workshop()
	for _, l := range itemLines() {
		t.Run(l.name, func(t *testing.T) {
			outer := g.t
			g.t = t
			defer func() { g.t = outer }()
			want := fmt.Sprintf("invalid_argument INVALID_FIELD %q %d", "messages[1]."+l.field, l.limit)
			sent := line{procedure: produce, only: l.only, message: &parleyv1.ProduceRequest{
				Topic: "jobs", Messages: []*parleyv1.QueueMessage{{Key: "k"}, l.message, later(time.Hour)},
			}}
			for _, d := range sent.dialects() {
				produced, scheduled := g.topicCounts("jobs")
				before := cpu()
				errs := g.itemErrors(&sent, d, g.Token)
				if cost := cpu() - before; cost > 4*cpuLimit { // other work in the process costs too
					t.Errorf("%s: it took %v of processor time", d.name, cost)
				}
				if len(errs) != 3 || errs[0] != nil || errs[2] != nil || itemSummary(errs[1]) != want {
					t.Errorf("%s: answered %v, want %s", d.name, errs, want)
				}
				if !strings.Contains(errs[1].GetMessage(), strings.Split(l.field, "[")[0]) {
					t.Errorf("%s: the text names no field: %q", d.name, errs[1].GetMessage())
				}
				if !strings.HasSuffix(errs[1].GetMessage(), l.text) {
					t.Errorf("%s: the text is %q, want it to end in %q", d.name, errs[1].GetMessage(), l.text)
				}
				if now, due := g.topicCounts("jobs"); now != produced+2 || due != scheduled+1 {
					t.Errorf("%s: %d produced and %d scheduled, before it was %d and %d", d.name, now, due, produced, scheduled)
				}
			}
		})
	}
}

// TestHostileQueueMessageIDs checks that ids which name no message get an error of their own, and
// that the other ids of the call are changed.
func TestHostileQueueMessageIDs(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	g.workshop()
	ids := []string{
		someID + "d", "", "0-0", ">", "9-*", "$", "18446744073709551615", "0-1-\x00", "0-18446744073709551615", "10000-1700000000000000d", "jobs\r\nDEL x",
		someID + "d\n", "0-17000000000ab", "-1-1700000000000000d", "00-1700000000000000d", someLetter, strings.Repeat("0", 1000), "1-1700000000000000D",
	}
	for i := range dialects[:4] {
		d := &dialects[i]
		made, err := g.Queues(g.Token).Produce(t.Context(), &parleyv1.ProduceRequest{Topic: "jobs", Messages: []*parleyv1.QueueMessage{later(time.Hour), later(2 * time.Hour)}})
		if err != nil {
			t.Fatal(err)
		}
		var some []string
		for _, r := range made.GetResults() {
			some = append(some, r.GetProduced().GetMessageId())
		}
		some = append(some, ids...)
		hourly := rescheduling("jobs", some...)
		hourly.Due = &parleyv1.RescheduleMessagesRequest_Delay{Delay: durationpb.New(time.Hour)}
		for _, call := range []struct {
			procedure, reason string
			message           proto.Message
		}{
			{reschedule, "SCHEDULED_NOT_FOUND", hourly},
			{cancelMessages, "MESSAGE_NOT_FOUND", &parleyv1.CancelMessagesRequest{Topic: "jobs", MessageIds: some}},
		} {
			for n, e := range g.itemErrors(&line{procedure: call.procedure, message: call.message}, d, g.Token) {
				want := "ok"
				if n > 1 {
					want = fmt.Sprintf("not_found %s %q 0", call.reason, fmt.Sprintf("message_ids[%d]", n))
				}
				if got := itemSummary(e); got != want {
					t.Errorf("%s: %s of %q is told %s, want %s", d.name, call.procedure, some[n], got, want)
				}
			}
		}
		if _, scheduled := g.topicCounts("jobs"); scheduled != 1 {
			t.Errorf("%s: %d are scheduled", d.name, scheduled)
		}
	}
}

// TestHostileTopicLimitAndIdempotencyKeys checks that a full topic accepts no message, and that an
// idempotency key stands for its first payload: the same one again is accepted without effect,
// another is refused.
func TestHostileTopicLimitAndIdempotencyKeys(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	g.workshop()
	for i := range dialects {
		d := &dialects[i]
		full := line{procedure: produce, message: &parleyv1.ProduceRequest{Topic: "full", Messages: []*parleyv1.QueueMessage{{Key: "a"}, {Key: "b"}}}}
		for _, e := range g.itemErrors(&full, d, g.Token) {
			if itemSummary(e) != `resource_exhausted TOPIC_FULL "" 1` || !e.GetDetail().GetRetryable() || e.GetDetail().GetRetryAfter().AsDuration() <= 0 {
				t.Errorf("%s: a full topic answers %v", d.name, e)
			}
		}
		if produced, _ := g.topicCounts("full"); produced != 1 {
			t.Errorf("%s: a topic with a limit of one message accepted %d", d.name, produced)
		}
		key := "key-" + d.name
		batch := line{procedure: produce, message: &parleyv1.ProduceRequest{Topic: "jobs", Messages: []*parleyv1.QueueMessage{
			{Payload: []byte("1"), IdempotencyKey: key}, {Payload: []byte("2"), IdempotencyKey: key}, {Payload: []byte("1"), IdempotencyKey: key},
		}}}
		produced, _ := g.topicCounts("jobs")
		var got []string
		for _, e := range g.itemErrors(&batch, d, g.Token) {
			got = append(got, itemSummary(e))
		}
		if fmt.Sprint(got) != `[ok already_exists IDEMPOTENCY_KEY_REUSED "messages[1].idempotency_key" 0 ok]` {
			t.Errorf("%s: one key three times is answered %q", d.name, got)
		}
		if now, _ := g.topicCounts("jobs"); now != produced+1 {
			t.Errorf("%s: three messages with one key: %d stored, want 1", d.name, now-produced)
		}
		large := &parleyv1.ProduceRequest{Topic: "jobs"}
		for range 9 {
			large.Messages = append(large.Messages, &parleyv1.QueueMessage{Payload: make([]byte, 256<<10)})
		}
		l := line{procedure: produce, message: large}
		g.judge(d.name+", a batch of 2.25 MiB", g.call(&l, d, g.Token), refused("resource_exhausted"))
	}
}

// TestHostileQueueLimitsAreAccepted checks that values at a limit are accepted: 1,000 messages with
// the maximum number of headers, a payload of the maximum size, and the longest names. Unknown
// fields have no effect.
func TestHostileQueueLimitsAreAccepted(t *testing.T) {
	t.Parallel()
	g := attack(t, nil)
	longest := strings.Repeat("q", 64)
	headers := make(map[string]string)
	for i := range 32 {
		headers[fmt.Sprintf("h%02d", i)] = ","
	}
	ok := func(d *dialect, procedure string, m proto.Message) {
		t.Helper()
		if a := g.call(&line{procedure: procedure, message: m}, d, g.Token); a.code != "ok" {
			t.Fatalf("%s: %s is answered %s, %s", d.name, procedure, a.code, a.message)
		}
	}
	for _, i := range []int{0, 2} { // one text dialect and one binary dialect
		d := &dialects[i]
		topic := longest[:60] + fmt.Sprintf("%04d", i)
		ok(d, createTopic, &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: topic, Partitions: 1}})
		ok(d, createGroup, &parleyv1.CreateGroupRequest{Topic: topic, Group: &parleyv1.Group{Name: longest}})
		request := &parleyv1.ProduceRequest{Topic: topic, ProducerId: make([]byte, 16), Sequence: 1}
		for n := range 1000 {
			m := &parleyv1.QueueMessage{Key: "k", Headers: headers}
			if n >= 500 {
				m = later(time.Hour)
				m.Headers = headers
			}
			request.Messages = append(request.Messages, m)
		}
		for range 2 { // the repeat is recognised
			for n, e := range g.itemErrors(&line{procedure: produce, message: request}, d, g.Token) {
				if e != nil {
					t.Fatalf("%s: message %d is answered %v", d.name, n, e)
				}
			}
		}
		edge := &parleyv1.ProduceRequest{Topic: topic, Messages: []*parleyv1.QueueMessage{
			{Payload: make([]byte, 256<<10), Key: strings.Repeat("é", 128), IdempotencyKey: strings.Repeat("~", 128)},
			{Headers: map[string]string{strings.Repeat(".", 64): strings.Repeat("v", 1024), "webhook": "x", "parley": "x"}},
			{
				MaxAttempts: proto.Int32(1000), Timeout: durationpb.New(7 * 24 * time.Hour), Ttl: durationpb.New(366 * 24 * time.Hour),
				Unique: &parleyv1.Unique{Key: strings.Repeat("!", 128), WhileRunning: true, AtMost: durationpb.New(7 * 24 * time.Hour)},
			},
			later(366 * 24 * time.Hour),
		}}
		for n, e := range g.itemErrors(&line{procedure: produce, message: edge}, d, g.Token) {
			if e != nil {
				t.Errorf("%s: message %d at the limits is answered %v", d.name, n, e)
			}
		}
		if produced, scheduled := g.topicCounts(topic); produced != 1004 || scheduled != 501 {
			t.Errorf("%s: %d produced, %d of them scheduled", d.name, produced, scheduled)
		}
	}
	d := &dialects[0]
	l := line{procedure: createTopic, json: `{"topic":{"name":"known","create_time":"1999-01-01T00:00:00Z","paused":true,"groups":["x"]}}`}
	made := answerTo[parleyv1.CreateTopicResponse](g, d, &l, g.Token).GetTopic()
	if made.GetPaused() || len(made.GetGroups()) > 0 || made.GetCreateTime().AsTime().Year() < 2020 {
		t.Errorf("an output-only field was accepted: %v", made)
	}
}
