package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
	"github.com/parleyhq/parley/sdk/go/queue"
)

// TestProduceSurvivesLostAnswers loses the answers to some batches after they were stored, and some
// requests before. Each message must be stored once, in order.
func TestProduceSurvivesLostAnswers(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	n := 0
	s.Fault(func(method string, _ proto.Message) *parleytest.Fault {
		if method != "Produce" {
			return nil
		}
		if n++; n%3 == 0 {
			return nil
		}
		return &parleytest.Fault{Drop: true, Applied: n%3 == 1}
	})
	messages := keyed("k", 0, 2500)
	results, err := queue.NewProducer(newClient(t, s.Addr()), "jobs").Produce(testContext(t), messages...)
	if err != nil || len(results) != len(messages) {
		t.Fatalf("%d results, %v", len(results), err)
	}
	var want []string
	duplicates := 0
	for i, m := range messages {
		want = append(want, string(m.Payload))
		if results[i].Err != nil || results[i].Receipt.IdempotencyKey == "" {
			t.Fatalf("result %d: %+v", i, results[i])
		}
		if results[i].Receipt.Duplicate {
			duplicates++
		}
	}
	if diff := cmp.Diff(want, s.Produced("jobs")); diff != "" {
		t.Errorf("the topic (-want +got):\n%s", diff)
	}
	if duplicates == 0 {
		t.Error("no receipt is a duplicate")
	}
}

// TestProduceRetriesFailedItems fails items temporarily, permanently, and after they were stored.
// Only temporary failures and lost answers may be sent again, with the same key.
func TestProduceRetriesFailedItems(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	times := make(map[string]int)
	s.Fault(func(method string, _ proto.Message) *parleytest.Fault {
		times[method]++
		switch {
		case method == "Produce/k-1" && times[method] < 3:
			return &parleytest.Fault{Err: parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE)}
		case method == "Produce/k-2" && times[method] == 1:
			return &parleytest.Fault{
				Err: parleytest.Error(connect.CodeUnknown, parleyv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN), Applied: true,
			}
		case method == "Produce/k-3":
			return &parleytest.Fault{Err: parleytest.Error(connect.CodeInvalidArgument, parleyv1.ErrorReason_ERROR_REASON_TOO_LARGE)}
		}
		return nil
	})
	results, err := queue.NewProducer(newClient(t, s.Addr()), "jobs").Produce(testContext(t), keyed("k", 0, 5)...)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if i == 3 {
			if !errors.Is(r.Err, parley.ErrTooLarge) || r.Receipt != nil {
				t.Errorf("the refused one: %+v", r)
			}
		} else if r.Err != nil || r.Receipt == nil {
			t.Errorf("result %d: %+v", i, r)
		}
	}
	if !results[2].Receipt.Duplicate {
		t.Error("the message whose answer was lost is not a duplicate")
	}
	if got := len(s.Produced("jobs")); got != 4 {
		t.Errorf("%d messages stored, want 4", got)
	}
	var sizes []int
	keys := make(map[string]string)
	for _, req := range parleytest.RequestsOf[*parleyv1.ProduceRequest](s) {
		sizes = append(sizes, len(req.GetMessages()))
		for _, m := range req.GetMessages() {
			if known := keys[string(m.GetPayload())]; known != "" && known != m.GetIdempotencyKey() {
				t.Errorf("%s was sent with two keys", m.GetPayload())
			}
			keys[string(m.GetPayload())] = m.GetIdempotencyKey()
		}
	}
	if diff := cmp.Diff([]int{5, 2, 1}, sizes); diff != "" {
		t.Errorf("messages per request (-want +got):\n%s", diff)
	}
}

func TestProduceIsRefused(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	p := queue.NewProducer(newClient(t, s.Addr()), "nowhere")
	results, err := p.Produce(testContext(t), keyed("k", 0, 2)...)
	if !errors.Is(err, parley.ErrTopicNotFound) || len(results) != 2 || !errors.Is(results[1].Err, parley.ErrTopicNotFound) {
		t.Errorf("no topic: %v, %v", results, err)
	}
	results, _ = p.Produce(testContext(t), queue.Message{Key: "\xff"})
	if !errors.Is(results[0].Err, parley.ErrInvalidField) {
		t.Errorf("no UTF-8: %v", results)
	}
	s.AddTopic("jobs", 1, "g")
	for _, value := range []string{"a\r", "\nb", "\x00"} {
		results, _ = queue.NewProducer(newClient(t, s.Addr()), "jobs").
			Produce(testContext(t), queue.Message{Headers: map[string]string{"h": value}})
		f, ok := errors.AsType[*parley.Error](results[0].Err)
		if !ok || !errors.Is(f, parley.ErrInvalidField) || !strings.HasSuffix(f.Field, `headers["h"]`) || f.Retryable {
			t.Errorf("the header %q: %+v", value, results)
		}
	}
	s.FaultTimes(1000, "Produce", parleytest.Fault{
		Err: parleytest.Error(connect.CodeResourceExhausted, parleyv1.ErrorReason_ERROR_REASON_TOPIC_FULL),
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = queue.NewProducer(newClient(t, s.Addr()), "jobs").Produce(ctx, keyed("k", 0, 1)...)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, parley.ErrTopicFull) {
		t.Errorf("a full topic: got %v, want the deadline and the last failure", err)
	}
}

// TestSendBatches calls Send from many goroutines. The messages must share requests, and each
// caller must get the receipt of its own message. After Close, Send must fail.
func TestSendBatches(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 4, "g")
	s.FaultTimes(1, "Produce", parleytest.Fault{Drop: true, Applied: true})
	p := queue.NewProducer(newClient(t, s.Addr()), "jobs", queue.WithBatching(50, 2))
	ctx := testContext(t)
	var callers sync.WaitGroup
	ids := make([]string, 1000)
	for i := range ids {
		callers.Go(func() {
			r, err := p.Send(ctx, queue.Message{Payload: fmt.Appendf(nil, "%d", i)})
			if err != nil {
				t.Errorf("send: %v", err)
			}
			ids[i] = r.MessageID
		})
	}
	callers.Wait()
	if err := p.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	if _, err := p.Send(ctx, queue.Message{}); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("after close: %v", err)
	}
	seen := make(map[string]bool)
	for _, id := range ids {
		seen[id] = true
	}
	if len(seen) != len(ids) || len(s.Produced("jobs")) != len(ids) {
		t.Errorf("%d ids, %d stored; want %d", len(seen), len(s.Produced("jobs")), len(ids))
	}
	requests := parleytest.RequestsOf[*parleyv1.ProduceRequest](s)
	if len(requests) > 200 {
		t.Errorf("%d requests for %d messages: nothing was joined", len(requests), len(ids))
	}
	for _, r := range requests {
		if len(r.GetMessages()) > 50 {
			t.Errorf("a request of %d messages", len(r.GetMessages()))
		}
	}
}

// TestSendLingers keeps a batch in flight. Messages sent meanwhile must wait for the linger time or
// until their batch is full, and must not wait if the linger time is 0.
func TestSendLingers(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	var full atomic.Bool
	full.Store(true)
	s.Fault(func(_ string, req proto.Message) *parleytest.Fault {
		if r, ok := req.(*parleyv1.ProduceRequest); ok && full.Load() && string(r.GetMessages()[0].GetPayload()) == "first" {
			return &parleytest.Fault{Err: parleytest.Error(connect.CodeResourceExhausted, parleyv1.ErrorReason_ERROR_REASON_TOPIC_FULL)}
		}
		return nil
	})
	// batches returns the payloads of each request, except requests with the message first.
	batches := func() (all []string) {
		for _, r := range parleytest.RequestsOf[*parleyv1.ProduceRequest](s) {
			var one []string
			for _, m := range r.GetMessages() {
				one = append(one, string(m.GetPayload()))
			}
			if one[0] != "first" {
				all = append(all, strings.Join(one, " "))
			}
		}
		return all
	}
	c, ctx := newClient(t, s.Addr()), testContext(t)
	var callers sync.WaitGroup
	send := func(p *queue.Producer, payload string) {
		callers.Go(func() {
			if _, err := p.Send(ctx, queue.Message{Payload: []byte(payload)}); err != nil {
				t.Errorf("send %s: %v", payload, err)
			}
		})
	}
	begin := func(opts ...queue.ProducerOption) *queue.Producer {
		p, before := queue.NewProducer(c, "jobs", opts...), len(s.Requests())
		send(p, "first")
		eventually(t, func() error {
			if len(s.Requests()) == before {
				return errors.New("the first is not under way")
			}
			return nil
		})
		return p
	}
	patient := begin(queue.WithLinger(time.Hour), queue.WithBatching(3, 8))
	soon, cancel := context.WithTimeout(ctx, 60*time.Millisecond)
	defer cancel()
	// The message x stays in the batch although its caller has left.
	if _, err := patient.Send(soon, queue.Message{Payload: []byte("x")}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a message alone: %v", err)
	}
	if got := batches(); len(got) != 0 {
		t.Fatalf("sent before the linger time: %q", got)
	}
	send(patient, "x")
	send(patient, "x")
	hasty := begin(queue.WithLinger(0))
	for n := range 3 {
		want := append([]string{"x x x"}, slices.Repeat([]string{"y"}, n)...)
		eventually(t, func() error {
			if got := batches(); !slices.Equal(got, want) {
				return fmt.Errorf("sent %q, want %q", got, want)
			}
			return nil
		})
		send(hasty, "y")
	}
	full.Store(false)
	callers.Wait()
	for _, p := range []*queue.Producer{patient, hasty} {
		if err := p.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

// TestSendAndCloseTimeOut calls Send and Close with short deadlines while the topic is full. Both
// must return the context's error, and a Send without a deadline must fail when Close does.
func TestSendAndCloseTimeOut(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	s.FaultTimes(1<<30, "Produce", parleytest.Fault{
		Err: parleytest.Error(connect.CodeResourceExhausted, parleyv1.ErrorReason_ERROR_REASON_TOPIC_FULL),
	})
	p := queue.NewProducer(newClient(t, s.Addr()), "jobs", queue.WithBatching(1, 1))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var callers sync.WaitGroup
	for range 5 {
		callers.Go(func() {
			if _, err := p.Send(ctx, queue.Message{}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("send: %v", err)
			}
		})
	}
	callers.Wait()
	stuck := make(chan error, 1)
	go func() {
		_, err := p.Send(context.WithoutCancel(ctx), queue.Message{})
		stuck <- err
	}()
	before := len(s.Requests())
	eventually(t, func() error {
		if len(s.Requests()) == before {
			return errors.New("the last one is not under way")
		}
		return nil
	})
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.Close(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close: %v", err)
	}
	if err := <-stuck; err == nil {
		t.Error("Send succeeded after Close gave up")
	}
}

func TestScheduleCancelReschedule(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	c := newClient(t, s.Addr())
	p := queue.NewProducer(c, "jobs")
	ctx := testContext(t)
	results, err := p.Schedule(ctx, time.Hour, keyed("k", 0, 3)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil || time.Until(r.Receipt.DueTime) < 59*time.Minute {
			t.Fatalf("result %+v", r)
		}
	}
	if err := p.Cancel(ctx, results[0].Receipt.MessageID); err != nil {
		t.Errorf("cancel: %v", err)
	}
	// The answer is lost after the message was cancelled. The repeated call finds no message, and its
	// error must say that an earlier attempt may have succeeded.
	s.FaultTimes(1, "CancelScheduled", parleytest.Fault{Drop: true, Applied: true})
	err = p.Cancel(ctx, results[1].Receipt.MessageID)
	if !errors.Is(err, parley.ErrScheduledNotFound) || !strings.Contains(err.Error(), "earlier attempt") {
		t.Errorf("cancel with its answer lost: %v", err)
	}
	due := time.Now().Add(2 * time.Hour).Truncate(time.Millisecond)
	at, err := p.RescheduleAt(ctx, results[2].Receipt.MessageID, due)
	if err != nil || !at.Equal(due) {
		t.Errorf("reschedule at %v: %v, %v", due, at, err)
	}
	at, err = p.Reschedule(ctx, results[2].Receipt.MessageID, 0)
	if err != nil || time.Since(at).Abs() > time.Minute {
		t.Errorf("reschedule: %v, %v", at, err)
	}
	if _, err := p.ScheduleAt(ctx, time.Now().Add(-time.Hour), queue.Message{Payload: []byte("past")}); err != nil {
		t.Errorf("schedule at: %v", err)
	}
	var got record
	work(t, c, "jobs", "g", got.handle)
	settledAll(t, s, "jobs", "g", 2)
	if _, err := p.Reschedule(ctx, results[2].Receipt.MessageID, 0); !errors.Is(err, parley.ErrScheduledNotFound) {
		t.Errorf("reschedule of a message that has appeared: got %v", err)
	}
}

// TestTracePropagation checks that the trace of Produce's context reaches the handler's context. It
// sets the process's propagator, so it is not parallel.
func TestTracePropagation(t *testing.T) { //nolint:paralleltest // the propagator is global
	otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))
	defer otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator())
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	c := newClient(t, s.Addr())
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx := propagation.TraceContext{}.Extract(testContext(t), propagation.MapCarrier{"traceparent": parent})
	headers := map[string]string{"x": "y"}
	if _, err := queue.NewProducer(c, "jobs").Produce(ctx, queue.Message{Headers: headers}); err != nil {
		t.Fatal(err)
	}
	if len(headers) != 1 {
		t.Errorf("the program's headers were changed: %v", headers)
	}
	got := make(chan propagation.MapCarrier, 1)
	work(t, c, "jobs", "g", func(ctx context.Context, d *queue.Delivery) error {
		carrier := propagation.MapCarrier{"x": d.Headers["x"]}
		propagation.TraceContext{}.Inject(ctx, carrier)
		got <- carrier
		return nil
	})
	if diff := cmp.Diff(propagation.MapCarrier{"x": "y", "traceparent": parent}, <-got); diff != "" {
		t.Errorf("what reached the handler (-want +got):\n%s", diff)
	}
	settledAll(t, s, "jobs", "g", 1)
}
