package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/rpc/limit"
)

// told returns the code, reason and field of an item's error; "ok" if there is none.
func told(e *parleyv1.ItemError) string {
	if e == nil {
		return "ok"
	}
	code := strings.ToLower(strings.TrimPrefix(e.GetCode().String(), "STATUS_CODE_"))
	return strings.TrimSpace(code + " " + strings.TrimPrefix(e.GetDetail().GetReason().String(), reasonPrefix) + " " + e.GetDetail().GetField())
}

// The messages of a Produce are validated one by one, and each has its own result. Only the valid
// ones are passed to the domain.
func TestProduce(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.queues.produce = func(_ context.Context, topic string, drafts []queue.Draft) ([]queue.Outcome, error) {
		if topic == "away" {
			return nil, fault.New(fault.FailedPrecondition, fault.TopicPaused, "paused")
		}
		outs := make([]queue.Outcome, len(drafts))
		for i, d := range drafts {
			outs[i] = queue.Outcome{MessageID: "3-" + d.Key, Partition: 3, Duplicate: d.Key == "dup"}
			switch d.Key {
			case "reused":
				f := fault.New(fault.AlreadyExists, fault.IdempotencyKeyReused, "used")
				f.Field = "idempotency_key"
				outs[i] = queue.Outcome{Err: f}
			case "inside":
				outs[i] = queue.Outcome{Err: errors.New("10.0.0.1")}
			}
		}
		return outs, nil
	}
	headers := make(map[string]string)
	for i := range 33 {
		headers[fmt.Sprint("h", i)] = ""
	}
	items := []*parleyv1.QueueMessage{
		{Key: "a", Payload: []byte{0, 255}, Headers: map[string]string{"x": "y"}, IdempotencyKey: "k"},
		{Key: "a\x00b"},
		{Payload: make([]byte, 256<<10+1)},
		{Key: "dup"},
		{Headers: headers},
		{Key: strings.Repeat("k", 257)},
		{Headers: map[string]string{"a b": ""}},
		{IdempotencyKey: "a b"},
		{Key: "reused"},
		{Key: "inside"},
		{Payload: make([]byte, 256<<10)},
	}
	b.eachQueue(func(t *testing.T, c parleyv1connect.QueueServiceClient) {
		resp, err := c.Produce(t.Context(), &parleyv1.ProduceRequest{Topic: "jobs", Messages: items})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range resp.GetResults() {
			got = append(got, told(r.GetError()))
		}
		want := []string{
			"ok", "invalid_argument INVALID_FIELD messages[1].key", "invalid_argument INVALID_FIELD messages[2].payload", "ok",
			"invalid_argument INVALID_FIELD messages[4].headers", "invalid_argument INVALID_FIELD messages[5].key",
			`invalid_argument INVALID_FIELD messages[6].headers["a b"]`, "invalid_argument INVALID_FIELD messages[7].idempotency_key",
			"already_exists IDEMPOTENCY_KEY_REUSED messages[8].idempotency_key", "internal INTERNAL", "ok",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if p := resp.GetResults()[3].GetProduced(); p.GetMessageId() != "3-dup" || p.GetPartition() != 3 || !p.GetDuplicate() {
			t.Errorf("got %v", p)
		}
		if strings.Contains(fmt.Sprint(resp), "10.0.0.1") {
			t.Error("the server's inside is told")
		}
		if resp, err = c.Produce(t.Context(), &parleyv1.ProduceRequest{Topic: "jobs", Messages: items[1:3]}); err != nil || len(resp.GetResults()) != 2 {
			t.Errorf("nothing good: %v, %v", resp, err)
		}
		if _, err = c.Produce(t.Context(), &parleyv1.ProduceRequest{Topic: "away", Messages: items[:1]}); connect.CodeOf(err) != connect.CodeFailedPrecondition {
			t.Errorf("a whole call's failure: %v", err)
		}
		large := &parleyv1.ProduceRequest{Topic: "jobs"}
		for range 1000 {
			large.Messages = append(large.Messages, &parleyv1.QueueMessage{Payload: make([]byte, 1024)})
		}
		if resp, err = c.Produce(t.Context(), large); err != nil || len(resp.GetResults()) != 1000 {
			t.Errorf("1,000 messages of 1 KiB: %v", err)
		}
		large.Messages = append(large.Messages, &parleyv1.QueueMessage{})
		if _, err = c.Produce(t.Context(), large); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("1,001 messages: %v", err)
		}
	})
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	at := time.Date(2031, 5, 6, 7, 8, 9, 1_000_001, time.UTC)
	due := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	drafts := make(chan []queue.Draft, 1)
	b.queues.schedule = func(_ context.Context, _ string, ds []queue.Draft) ([]queue.Outcome, error) {
		drafts <- ds
		outs := make([]queue.Outcome, len(ds))
		for i := range outs {
			outs[i] = queue.Outcome{MessageID: "1-1700000000000-1d", Partition: 1, Due: due}
		}
		outs[1].Err = fault.Invalid("due_time", 1, "too far")
		outs[2].Err = fault.Invalid("idempotency_key", 0, "used")
		return outs, nil
	}
	moved := make(chan string, 1)
	b.queues.reschedule = func(topic, id string, delay time.Duration, at time.Time) (time.Time, error) {
		moved <- fmt.Sprint(topic, " ", id, " ", delay, " ", at.Format(time.RFC3339Nano))
		return due, nil
	}
	b.queues.cancel = func(topic, id string) error {
		return fault.New(fault.NotFound, fault.ScheduledNotFound, "%s %s", topic, id)
	}
	m := &parleyv1.QueueMessage{Key: "a"}
	in := func(d time.Duration) *parleyv1.ScheduledMessage_Delay {
		return &parleyv1.ScheduledMessage_Delay{Delay: durationpb.New(d)}
	}
	items := []*parleyv1.ScheduledMessage{
		{Message: m, Due: in(1500*time.Millisecond + 1)},
		{Message: m, Due: &parleyv1.ScheduledMessage_DueTime{DueTime: timestamppb.New(at)}},
		{Message: m, Due: in(0)},
		{Message: m, Due: in(-1)},
		{Message: m},
		{Due: in(1)},
		{Message: m, Due: in(queue.MaxDelay + 1)},
		{Message: m, Due: &parleyv1.ScheduledMessage_Delay{Delay: &durationpb.Duration{Seconds: 1, Nanos: -1}}},
		{Message: m, Due: &parleyv1.ScheduledMessage_DueTime{DueTime: &timestamppb.Timestamp{Seconds: 1 << 60}}},
		{Message: &parleyv1.QueueMessage{Key: "\x00"}, Due: in(1)},
	}
	b.eachQueue(func(t *testing.T, c parleyv1connect.QueueServiceClient) {
		resp, err := c.Schedule(t.Context(), &parleyv1.ScheduleRequest{Topic: "jobs", Messages: items[:3]})
		if err != nil {
			t.Fatal(err)
		}
		ds := <-drafts
		if ds[0].Delay != 1501*time.Millisecond || !ds[0].At.IsZero() || !ds[1].At.Equal(at.Truncate(time.Millisecond).Add(time.Millisecond)) || ds[2].Delay != 0 {
			t.Errorf("times %v, %v, %v", ds[0].Delay, ds[1].At, ds[2].Delay)
		}
		if r := resp.GetResults(); !r[0].GetScheduled().GetDueTime().AsTime().Equal(due) || told(r[1].GetError()) != "invalid_argument INVALID_FIELD messages[1].due_time" ||
			told(r[2].GetError()) != "invalid_argument INVALID_FIELD messages[2].message.idempotency_key" {
			t.Errorf("answered %v", r)
		}
		var got []string
		// JSON can't express some of the invalid items, so they are sent only in binary.
		bad := []*parleyv1.ScheduledMessage{items[3], items[4], items[5], items[6], items[9]}
		if resp, err = c.Schedule(t.Context(), &parleyv1.ScheduleRequest{Topic: "jobs", Messages: bad}); err != nil {
			t.Fatal(err)
		}
		for _, r := range resp.GetResults() {
			got = append(got, told(r.GetError()))
		}
		want := []string{
			"invalid_argument INVALID_FIELD messages[0].delay", "invalid_argument INVALID_FIELD messages[1].due", "invalid_argument INVALID_FIELD messages[2].message",
			"invalid_argument INVALID_FIELD messages[3].delay", "invalid_argument INVALID_FIELD messages[4].message.key",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		const id = "1-1700000000000-1d"
		if r, err := c.RescheduleScheduled(t.Context(), &parleyv1.RescheduleScheduledRequest{Topic: "jobs", MessageId: id, Due: &parleyv1.RescheduleScheduledRequest_Delay{Delay: durationpb.New(time.Nanosecond)}}); err != nil ||
			!r.GetDueTime().AsTime().Equal(due) || <-moved != "jobs "+id+" 1ms 0001-01-01T00:00:00Z" {
			t.Errorf("reschedule: %v, %v", r, err)
		}
		if _, err := c.CancelScheduled(t.Context(), &parleyv1.CancelScheduledRequest{Topic: "jobs", MessageId: id}); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("cancel: %v", err)
		}
	})
	resp, err := b.queueClient(1, b.mintAs(operator("ada"))).Schedule(t.Context(), &parleyv1.ScheduleRequest{Topic: "jobs", Messages: items[7:9]})
	if err != nil || told(resp.GetResults()[0].GetError()) != "invalid_argument INVALID_FIELD messages[0].delay" ||
		told(resp.GetResults()[1].GetError()) != "invalid_argument INVALID_FIELD messages[1].due_time" {
		t.Errorf("times that are none: %v, %v", resp, err)
	}
}

func procedureFor(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

// serviceMethods returns the methods of the service in a file of the schema, which has only one.
func serviceMethods(file protoreflect.FileDescriptor) []protoreflect.MethodDescriptor {
	var out []protoreflect.MethodDescriptor
	methods := file.Services().Get(0).Methods()
	for i := range methods.Len() {
		out = append(out, methods.Get(i))
	}
	return out
}

// A caller without the required capability, for the topic or `admin`, is refused before the request
// is validated.
func TestPolicies(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	produce := map[protoreflect.Name]bool{"Produce": true, "Schedule": true, "CancelScheduled": true, "RescheduleScheduled": true}
	mint := func(p ident.Principal) string { p.Subject = "eve"; return b.mintAs(&p) }
	queues := func(pattern string, actions ...ident.Action) []ident.Capability {
		return []ident.Capability{{Pattern: pattern, Actions: actions}}
	}
	ask := func(m protoreflect.MethodDescriptor, token string) (connect.Code, string) {
		h := b.headers("application/proto", "Authorization", "Bearer "+token)
		body := "\x0a\x04jobs" // only the field topic
		if m.Parent().FullName() == parleyv1connect.AdminServiceName {
			body = ""
		}
		if m.IsStreamingServer() {
			h = b.headers("application/connect+proto", "Authorization", "Bearer "+token)
			if m.IsStreamingClient() {
				body = "\x12\x06" + body
			}
			body = "\x00\x00\x00\x00" + string(rune(len(body))) + body
		}
		_, text := b.raw(b.h2, "POST", procedureFor(m), h, strings.NewReader(body))
		for code := connect.CodeCanceled; code <= connect.CodeUnauthenticated; code++ {
			if strings.Contains(text, `"`+code.String()+`"`) {
				return code, text
			}
		}
		return 0, text
	}
	for _, m := range serviceMethods(parleyv1.File_parley_v1_queue_proto) {
		right, wrong := ident.Consume, ident.Produce
		if produce[m.Name()] {
			right, wrong = wrong, right
		}
		for name, token := range map[string]string{
			"the other action": mint(ident.Principal{Queues: queues("*", wrong), Admin: ident.AdminActions}),
			"another topic":    mint(ident.Principal{Queues: queues("job", ident.Produce, ident.Consume)}),
			"a channel":        mint(ident.Principal{Channels: queues("*", ident.ChannelActions...)}),
		} {
			if code, text := ask(m, token); code != connect.CodePermissionDenied {
				t.Errorf("%s with %s: %v %s", m.Name(), name, code, text)
			}
		}
		if code, text := ask(m, mint(ident.Principal{Queues: queues("jobs*", right)})); code == connect.CodePermissionDenied {
			t.Errorf("%s with its capability: %s", m.Name(), text)
		}
	}
	for _, m := range serviceMethods(parleyv1.File_parley_v1_admin_proto) {
		if code, text := ask(m, mint(ident.Principal{Channels: everything, Queues: queues("*", ident.Produce, ident.Consume)})); code != connect.CodePermissionDenied {
			t.Errorf("%s without admin: %v %s", m.Name(), code, text)
		}
		if code, text := ask(m, mint(ident.Principal{Admin: ident.AdminActions})); code == connect.CodePermissionDenied {
			t.Errorf("%s with admin: %s", m.Name(), text)
		}
	}
}

// The rate limiter charges each message of a batch as a call.
func TestBatchItemsAreCharged(t *testing.T) {
	t.Parallel()
	b := setup(t, func(s *settings) { s.limit = limit.Config{PerSecond: 0.001, Burst: 10} })
	b.queues.produce = func(_ context.Context, _ string, ds []queue.Draft) ([]queue.Outcome, error) {
		return make([]queue.Outcome, len(ds)), nil
	}
	c := b.queueClient(1, b.mintAs(operator("greedy")))
	if _, err := c.Produce(t.Context(), &parleyv1.ProduceRequest{Topic: "jobs", Messages: make([]*parleyv1.QueueMessage, 10)}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Produce(t.Context(), &parleyv1.ProduceRequest{Topic: "jobs", Messages: make([]*parleyv1.QueueMessage, 1)}); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("after a batch of the whole burst: %v", err)
	}
	// The same subject, which is over its limit, still settles and extends.
	ack := &parleyv1.AckRequest{Topic: "jobs", Group: "g", StreamId: "s", Tokens: []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}}
	for i := range 3 {
		for name, err := range settleEach(t, c, ack) {
			if err != nil {
				t.Errorf("%s %d at the limit: %v", name, i, err)
			}
		}
	}
	// Tokens that are none are charged, and only to calls that settle.
	for i := range ack.GetTokens() {
		ack.Tokens[i] = "no.token"
	}
	c = b.queueClient(1, b.mintAs(operator("careless")))
	if _, err := c.Ack(t.Context(), ack); err != nil {
		t.Error(err)
	}
	for name, err := range settleEach(t, c, ack) {
		if connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("%s after tokens that are none: %v", name, err)
		}
	}
	if _, err := c.Produce(t.Context(), &parleyv1.ProduceRequest{Topic: "jobs", Messages: make([]*parleyv1.QueueMessage, 1)}); err != nil {
		t.Errorf("produce after tokens that are none: %v", err)
	}
}

// settleEach calls each method that settles or extends deliveries, with the tokens of ack, and
// returns their errors.
func settleEach(t *testing.T, c parleyv1connect.QueueServiceClient, ack *parleyv1.AckRequest) map[string]error {
	t.Helper()
	errs := map[string]error{}
	_, errs["Ack"] = c.Ack(t.Context(), ack)
	nack := &parleyv1.NackRequest{Topic: "jobs", Group: "g", StreamId: "s"}
	for _, token := range ack.GetTokens() {
		nack.Items = append(nack.Items, &parleyv1.NackItem{Token: token, Outcome: retry()})
	}
	_, errs["Nack"] = c.Nack(t.Context(), nack)
	_, errs["Extend"] = c.Extend(t.Context(), &parleyv1.ExtendRequest{
		Topic: "jobs", Group: "g", StreamId: "s", AckTimeout: durationpb.New(time.Minute),
		Target: &parleyv1.ExtendRequest_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: ack.GetTokens()}},
	})
	_, errs["Leave"] = c.Leave(t.Context(), &parleyv1.LeaveRequest{Topic: "jobs", Group: "g", StreamId: "s"})
	return errs
}

// A call that settles is charged if it fails as a whole, before or in its handler.
func TestFailedSettlesAreCharged(t *testing.T) {
	t.Parallel()
	b := setup(t, func(s *settings) { s.limit = limit.Config{PerSecond: 0.001, Burst: 2} })
	b.consumers.do = func(*queueCall) ([]error, error) {
		return nil, fault.New(fault.FailedPrecondition, fault.LeaseLost, "gone")
	}
	for name, r := range map[string]*parleyv1.LeaveRequest{
		"malformed": {Topic: "jobs", Group: "g"}, "gone": {Topic: "jobs", Group: "g", StreamId: "s"},
	} {
		for i := range protocols {
			c := b.queueClient(i, b.mintAs(operator(fmt.Sprint(name, i))))
			var got []bool
			for range 3 {
				_, err := c.Leave(t.Context(), r)
				got = append(got, connect.CodeOf(err) == connect.CodeResourceExhausted)
			}
			if diff := cmp.Diff([]bool{false, false, true}, got); diff != "" {
				t.Errorf("%s, %s: %s", name, protocols[i].name, diff)
			}
		}
	}
}
