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

// itemLine is a bad item and the answer that it must get between two valid ones.
type itemLine struct {
	name string
	// message goes to Produce and, with a delay, to Schedule; scheduled goes to Schedule only.
	message   *parleyv1.QueueMessage
	scheduled *parleyv1.ScheduledMessage
	// only names the dialects in which the item is sent; empty means all.
	only string
	// field is the path, within the message or the scheduled message, that the error must name.
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
	due := func(d *durationpb.Duration) *parleyv1.ScheduledMessage {
		return &parleyv1.ScheduledMessage{Message: &message{}, Due: &parleyv1.ScheduledMessage_Delay{Delay: d}}
	}
	at := func(ts *timestamppb.Timestamp) *parleyv1.ScheduledMessage {
		return &parleyv1.ScheduledMessage{Message: &message{}, Due: &parleyv1.ScheduledMessage_DueTime{DueTime: ts}}
	}
	const binary = "connect-proto grpc grpc-web"
	return []itemLine{
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
		{name: "delay -1", scheduled: due(durationpb.New(-1)), field: "delay"},
		{name: "delay -1 s", scheduled: due(durationpb.New(-time.Second)), field: "delay"},
		{name: "delay of 367 days", scheduled: due(durationpb.New(367 * 24 * time.Hour)), field: "delay", limit: 31_622_400},
		{name: "delay of 10,000 years", scheduled: due(&durationpb.Duration{Seconds: 315_576_000_000}), field: "delay", limit: 31_622_400},
		{name: "the year 9999", scheduled: at(timestamppb.New(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))), field: "due_time", limit: 31_622_400},
		{name: "the year 1", scheduled: at(timestamppb.New(time.Time{})), field: "due_time"},
		{name: "a time of -2^62", scheduled: at(&timestamppb.Timestamp{Seconds: -1 << 62}), field: "due_time", only: binary},
		{name: "2^31 nanoseconds", scheduled: at(&timestamppb.Timestamp{Seconds: 1_900_000_000, Nanos: 1<<31 - 1}), field: "due_time", only: binary},
		{name: "no time", scheduled: &parleyv1.ScheduledMessage{Message: &message{}}, field: "due"},
		{name: "no message", scheduled: &parleyv1.ScheduledMessage{Due: later(0).GetDue()}, field: "message"},
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
	case schedule:
		for _, r := range answerTo[parleyv1.ScheduleResponse](g, d, l, token).GetResults() {
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
func (g *target) topicCounts(topic string) (produced, delayed int64) {
	g.t.Helper()
	stats, err := g.Admin(g.Token).GetTopicStats(g.t.Context(), &parleyv1.GetTopicStatsRequest{Topic: topic})
	if err != nil {
		g.t.Fatal(err)
	}
	return stats.GetTotal().GetProduced(), stats.GetTotal().GetDelayed()
}

func TestHostileQueueItems(t *testing.T) { //nolint:paralleltest // it measures processor time, which all tests share
	g := attack(t, nil)
	g.workshop()
	goodOne := &parleyv1.QueueMessage{Key: "k"}
	for _, l := range itemLines() {
		t.Run(l.name, func(t *testing.T) {
			outer := g.t
			g.t = t
			defer func() { g.t = outer }()
			requests := map[string]proto.Message{}
			bad := l.scheduled
			if l.message != nil {
				requests[produce] = &parleyv1.ProduceRequest{Topic: "jobs", Messages: []*parleyv1.QueueMessage{goodOne, l.message, goodOne}}
				bad = &parleyv1.ScheduledMessage{Message: l.message, Due: later(time.Hour).GetDue()}
			}
			requests[schedule] = &parleyv1.ScheduleRequest{Topic: "jobs", Messages: []*parleyv1.ScheduledMessage{later(time.Hour), bad, later(time.Hour)}}
			for procedure, m := range requests {
				field := "messages[1]." + l.field
				if procedure == schedule && l.message != nil {
					field = "messages[1].message." + l.field
				}
				want := fmt.Sprintf("invalid_argument INVALID_FIELD %q %d", field, l.limit)
				sent := line{procedure: procedure, message: m, only: l.only}
				for _, d := range sent.dialects() {
					produced, delayed := g.topicCounts("jobs")
					before := cpu()
					errs := g.itemErrors(&sent, d, g.Token)
					if cost := cpu() - before; cost > 4*cpuLimit { // other work in the process costs too
						t.Errorf("%s, %s: it took %v of processor time", d.name, procedure, cost)
					}
					if len(errs) != 3 || errs[0] != nil || errs[2] != nil || itemSummary(errs[1]) != want {
						t.Errorf("%s, %s: answered %v, want %s", d.name, procedure, errs, want)
					}
					if !strings.Contains(errs[1].GetMessage(), strings.Split(l.field, "[")[0]) {
						t.Errorf("%s, %s: the text names no field: %q", d.name, procedure, errs[1].GetMessage())
					}
					if !strings.HasSuffix(errs[1].GetMessage(), l.text) {
						t.Errorf("%s, %s: the text is %q, want it to end in %q", d.name, procedure, errs[1].GetMessage(), l.text)
					}
					now, waiting := g.topicCounts("jobs")
					if procedure == produce {
						delayed += 2
						waiting += 2
					}
					if now != produced+2 || waiting != delayed+map[string]int64{schedule: 2}[procedure] {
						t.Errorf("%s, %s: %d produced and %d delayed, before it was %d and %d", d.name, procedure, now, waiting, produced, delayed)
					}
				}
			}
		})
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
		ok(d, createGroup, &parleyv1.CreateGroupRequest{Topic: topic, Group: longest})
		request := &parleyv1.ProduceRequest{Topic: topic}
		due := &parleyv1.ScheduleRequest{Topic: topic}
		for range 1000 {
			m := &parleyv1.QueueMessage{Key: "k", Headers: headers}
			request.Messages = append(request.Messages, m)
			due.Messages = append(due.Messages, &parleyv1.ScheduledMessage{Message: m, Due: later(time.Hour).GetDue()})
		}
		for procedure, m := range map[string]proto.Message{produce: request, schedule: due} {
			for n, e := range g.itemErrors(&line{procedure: procedure, message: m}, d, g.Token) {
				if e != nil {
					t.Fatalf("%s: message %d to %s is answered %v", d.name, n, procedure, e)
				}
			}
		}
		edge := &parleyv1.ProduceRequest{Topic: topic, Messages: []*parleyv1.QueueMessage{
			{Payload: make([]byte, 256<<10), Key: strings.Repeat("é", 128), IdempotencyKey: strings.Repeat("~", 128)},
			{Headers: map[string]string{strings.Repeat(".", 64): strings.Repeat("v", 1024), "webhook": "x", "parley": "x"}},
		}}
		for n, e := range g.itemErrors(&line{procedure: produce, message: edge}, d, g.Token) {
			if e != nil {
				t.Errorf("%s: message %d at the limits is answered %v", d.name, n, e)
			}
		}
		if produced, delayed := g.topicCounts(topic); produced != 2002 || delayed != 1000 {
			t.Errorf("%s: %d produced, %d of them scheduled", d.name, produced, delayed)
		}
	}
	d := &dialects[0]
	l := line{procedure: createTopic, json: `{"topic":{"name":"known","create_time":"1999-01-01T00:00:00Z","producePaused":true,"groups":["x"]}}`}
	made := answerTo[parleyv1.CreateTopicResponse](g, d, &l, g.Token).GetTopic()
	if made.GetProducePaused() || len(made.GetGroups()) > 0 || made.GetCreateTime().AsTime().Year() < 2020 {
		t.Errorf("an output-only field was accepted: %v", made)
	}
}
