package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

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

// TestProducersWaitForAPausedTopic pauses a topic while producers run. They must retry until it is
// resumed, or until their deadline.
func TestProducersWaitForAPausedTopic(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	ctx, c := testContext(t), newClient(t, s.Addr())
	admin := queue.NewAdmin(c)
	if topic, err := admin.PauseTopic(ctx, "jobs"); err != nil || !topic.GetPaused() {
		t.Fatalf("pause: %v, %v", topic, err)
	}
	const timeout = time.Second
	p := queue.NewProducer(newClient(t, s.Addr(), parley.WithCallTimeout(timeout)), "jobs")
	for name, call := range map[string]func() error{
		"Produce": func() error {
			results, err := p.Produce(t.Context(), queue.Message{})
			if !errors.Is(results[0].Err, parley.ErrTopicPaused) || results[0].Receipt != nil {
				t.Errorf("result %+v", results[0])
			}
			return err
		},
		"Send": func() error { _, err := p.Send(t.Context(), queue.Message{}); return err },
	} {
		err := call()
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, parley.ErrTopicPaused) ||
			!strings.Contains(err.Error(), "deadline of 1s") {
			t.Errorf("%s: got %v, want the deadline and the last failure", name, err)
		}
	}
	stored := make(chan error, 2)
	unhurried := queue.NewProducer(c, "jobs")
	go func() { _, err := unhurried.Produce(ctx, queue.Message{Payload: []byte("a")}); stored <- err }()
	go func() { _, err := unhurried.Send(ctx, queue.Message{Payload: []byte("a")}); stored <- err }()
	before := len(s.Requests())
	eventually(t, func() error {
		if len(s.Requests()) < before+4 {
			return errors.New("no producer has sent a request")
		}
		return nil
	})
	if topic, err := admin.ResumeTopic(ctx, "jobs"); err != nil || topic.GetPaused() {
		t.Fatalf("resume: %v, %v", topic, err)
	}
	for range 2 {
		if err := <-stored; err != nil {
			t.Errorf("produce: %v", err)
		}
	}
	if got := s.Produced("jobs"); !slices.Equal(got, []string{"a", "a"}) {
		t.Errorf("the topic holds %q", got)
	}
}

// TestSendUsesCallerDeadline joins two callers in a batch: one with a deadline of its own and one
// with the shorter call timeout. Each must wait until its own deadline.
func TestSendUsesCallerDeadline(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	s.FaultTimes(1<<30, "Produce", parleytest.Fault{
		Err: parleytest.Error(connect.CodeResourceExhausted, parleyv1.ErrorReason_ERROR_REASON_TOPIC_FULL),
	})
	const timeout = 500 * time.Millisecond
	c := newClient(t, s.Addr(), parley.WithCallTimeout(timeout))
	p := queue.NewProducer(c, "jobs", queue.WithBatching(2, 2), queue.WithLinger(time.Hour))
	began := time.Now()
	own, cancel := context.WithTimeout(t.Context(), 3*timeout)
	defer cancel()
	var callers sync.WaitGroup
	send := func(ctx context.Context, least time.Duration) {
		callers.Go(func() {
			_, err := p.Send(ctx, queue.Message{})
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, parley.ErrTopicFull) {
				t.Errorf("send: %v", err)
			}
			if took := time.Since(began); took < least {
				t.Errorf("a call of %s ended after %s", least, took)
			}
		})
	}
	send(own, 3*timeout) // alone, so that the other messages are joined
	eventually(t, func() error {
		if len(s.Requests()) == 0 {
			return errors.New("the first is not in flight")
		}
		return nil
	})
	send(own, 3*timeout)
	send(t.Context(), timeout)
	callers.Wait()
	shared := 0
	for _, r := range parleytest.RequestsOf[*parleyv1.ProduceRequest](s) {
		shared = max(shared, len(r.GetMessages()))
	}
	if shared != 2 {
		t.Errorf("a request had %d messages at most, want 2", shared)
	}
}

// TestFleet kills the worker's node, twice. The worker must continue at another node.
func TestFleet(t *testing.T) {
	t.Parallel()
	fleet := parleytest.StartFleet(t, 3)
	fleet[0].AddTopic("jobs", 2, "g")
	c := newClient(t, parleytest.Addrs(fleet...))
	live := make(chan string, 10)
	var got record
	work(t, c, "jobs", "g", got.handle, queue.WithOnState(func(change parley.StateChange) {
		if change.State == parley.StateLive {
			live <- change.Addr
		}
	}))
	for i := range 2 {
		at := <-live
		produce(t, c, "jobs", keyed("k", i*10, i*10+10)...)
		settledAll(t, fleet[0], "jobs", "g", i*10+10)
		for _, node := range fleet {
			if strings.HasSuffix(at, node.Addr()) {
				node.Kill()
			}
		}
	}
	<-live
	produce(t, c, "jobs", keyed("k", 20, 30)...)
	settledAll(t, fleet[0], "jobs", "g", 30)
}

// TestWorkerLeavesAFullNodeAtOnce makes one node refuse streams because it is full. Workers must go
// to the other node without a backoff, which would last longer than the test.
func TestWorkerLeavesAFullNodeAtOnce(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...queue.WorkerOption) {
		fleet := parleytest.StartFleet(t, 2)
		fleet[0].AddTopic("jobs", 2, "g")
		full := parleytest.Fault{Err: parleytest.Error(connect.CodeResourceExhausted, parleyv1.ErrorReason_ERROR_REASON_NODE_FULL)}
		fleet[0].Fault(func(method string, _ proto.Message) *parleytest.Fault {
			if method == "Consume" || method == "StreamingConsume" {
				return &full
			}
			return nil
		})
		never := parley.WithBackoff(parley.Backoff{Base: time.Hour, Max: time.Hour})
		for range 5 { // half of the clients begin at the full node
			c := newClient(t, parleytest.Addrs(fleet...), never)
			live := make(chan string, 1)
			w := work(t, c, "jobs", "g", (&record{}).handle, append(opts, queue.WithOnState(func(change parley.StateChange) {
				if change.State == parley.StateLive {
					live <- change.Addr
				}
			}))...)
			if at := <-live; !strings.HasSuffix(at, fleet[1].Addr()) {
				t.Errorf("the stream is at %s", at)
			}
			if err := w.finish(); err != nil {
				t.Errorf("run: %v", err)
			}
		}
	})
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
