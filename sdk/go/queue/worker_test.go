package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
	"github.com/parleyhq/parley/sdk/go/queue"
)

// both runs a test twice: with the bidirectional stream StreamingConsume, and with WithUnaryCalls.
func both(t *testing.T, test func(t *testing.T, opts ...queue.WorkerOption)) {
	t.Helper()
	t.Run("bidi", func(t *testing.T) { t.Parallel(); test(t) })
	t.Run("unary", func(t *testing.T) { t.Parallel(); test(t, queue.WithUnaryCalls()) })
}

// TestOrderPerKey runs many handlers at once. Messages of one key must be handled in order and one
// at a time, those of different keys concurrently.
func TestOrderPerKey(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...queue.WorkerOption) {
		s := parleytest.Start(t)
		s.AddTopic("jobs", 4, "g")
		c := newClient(t, s.Addr())
		const keys, each = 7, 60
		var want []string
		for i := range each {
			want = append(want, fmt.Sprintf("%d", i))
			var round []queue.Message
			for k := range keys {
				round = append(round, queue.Message{Key: fmt.Sprintf("key-%d", k), Payload: fmt.Appendf(nil, "%d", i)})
			}
			produce(t, c, "jobs", round...)
		}
		var got record
		var mu sync.Mutex
		var meet sync.Once
		busy, together := make(map[string]bool), make(chan struct{})
		w := work(t, c, "jobs", "g", func(ctx context.Context, d *queue.Delivery) error {
			mu.Lock()
			if busy[d.Key] {
				t.Errorf("two of %s at once", d.Key)
			}
			busy[d.Key] = true
			if len(busy) == 2 {
				meet.Do(func() { close(together) })
			}
			mu.Unlock()
			select { // the first waits for one of another key
			case <-together:
			case <-ctx.Done():
			}
			for range 10 { // so that another of its key would be handled meanwhile, if one could
				runtime.Gosched()
			}
			mu.Lock()
			delete(busy, d.Key)
			mu.Unlock()
			return got.handle(ctx, d)
		}, append(opts, queue.WithConcurrency(8), queue.WithWindow(64, 0))...)
		settledAll(t, s, "jobs", "g", keys*each)
		for k := range keys {
			if diff := cmp.Diff(want, got.payloads(fmt.Sprintf("key-%d", k))); diff != "" {
				t.Errorf("key %d (-want +got):\n%s", k, diff)
			}
		}
		if err := w.finish(); err != nil {
			t.Errorf("run: %v", err)
		}
		if got := w.Stats(); got != (queue.Stats{Delivered: keys * each, Acked: keys * each, Streams: 1}) {
			t.Errorf("stats %+v", got)
		}
	})
}

// TestAcksAreBatched handles many quick messages. Acks must share requests, and credits must be
// granted a quarter of the window or more at a time.
func TestAcksAreBatched(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 4, "g")
	c := newClient(t, s.Addr())
	produce(t, c, "jobs", keyed("", 0, 2000)...)
	var got record
	work(t, c, "jobs", "g", got.handle, queue.WithWindow(500, 0))
	settledAll(t, s, "jobs", "g", 2000)
	acks, top, inOrder := 0, int64(0), 0
	for _, r := range parleytest.RequestsOf[*parleyv1.StreamingConsumeRequest](s) {
		if r.GetAck() != nil {
			acks++
		}
		if n := r.GetCredits().GetTotalMessages(); n > top {
			top = n
			inOrder++
		}
	}
	if acks > 1000 {
		t.Errorf("%d requests for 2000 acks", acks)
	}
	if top < 2000 || top > 2500 || inOrder > 20 {
		t.Errorf("credits went up to %d in %d grants; want up to 2500, each time a quarter of the window", top, inOrder)
	}
}

func TestFailuresBecomeNacks(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...queue.WorkerOption) {
		s := parleytest.Start(t)
		s.AddTopic("jobs", 1, "g")
		c := newClient(t, s.Addr())
		for _, p := range []string{"panic", "error", "later", "dead", "coded", "long", "fine"} {
			produce(t, c, "jobs", queue.Message{Payload: []byte(p)})
		}
		boom := errors.New("boom")
		w := work(t, c, "jobs", "g", func(_ context.Context, d *queue.Delivery) error {
			if d.Attempt > 1 {
				return nil
			}
			switch string(d.Payload) {
			case "panic":
				panic("at the disco")
			case "error":
				return boom
			case "later":
				return queue.RetryAfter(boom, 30*time.Millisecond)
			case "dead":
				return queue.DeadLetter(fmt.Errorf("hopeless: %w", queue.RetryAfter(boom, time.Hour)))
			case "coded":
				return queue.Code(queue.DeadLetter(boom), "bad.input")
			case "long":
				return queue.Code(errors.New(strings.Repeat("ä", 2000)+"\xff"), "not a code")
			}
			return nil
		}, opts...)
		settledAll(t, s, "jobs", "g", 5)
		var dead []string
		for _, l := range s.DeadLetters("jobs", "g") {
			dead = append(dead, fmt.Sprintf("%s %q %q", l.GetPayload(), l.GetReason(), l.GetCode()))
		}
		slices.Sort(dead)
		if diff := cmp.Diff([]string{`coded "boom" "bad.input"`, `dead "hopeless: boom" ""`}, dead); diff != "" {
			t.Errorf("dead letters (-want +got):\n%s", diff)
		}
		if err := w.finish(); err != nil {
			t.Errorf("run: %v", err)
		}
		if got := w.Stats(); got.Nacked != 6 || got.Panicked != 1 || got.Lost != 0 {
			t.Errorf("stats %+v", got)
		}
	})
}

// TestFailuresAreErrors checks errors.Is and errors.As on errors from RetryAfter and Code, and that
// all wrappers return nil for nil.
func TestFailuresAreErrors(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	err := queue.RetryAfter(queue.Code(boom, "c"), time.Second)
	var f *queue.HandlerError
	if !errors.Is(err, boom) || !errors.As(err, &f) || *f.Delay != time.Second || err.Error() != "boom" {
		t.Errorf("wrapped: %v, %+v", err, f)
	}
	if queue.RetryAfter(nil, 0) != nil || queue.DeadLetter(nil) != nil || queue.Code(nil, "c") != nil {
		t.Error("nil becomes an error")
	}
}

// TestLongHandlerExtendsDelivery runs a handler for three times the ack timeout. The worker must
// extend its delivery, so that the message is not delivered again.
func TestLongHandlerExtendsDelivery(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...queue.WorkerOption) {
		s := parleytest.Start(t)
		s.AddTopic("jobs", 1, "g")
		c := newClient(t, s.Addr())
		produce(t, c, "jobs", queue.Message{}, queue.Message{Key: "k"}, queue.Message{Key: "k"})
		w := work(t, c, "jobs", "g", func(ctx context.Context, d *queue.Delivery) error {
			if d.Attempt > 1 {
				t.Error("it was delivered again")
			}
			if d.Key == "k" {
				return nil
			}
			select {
			case <-ctx.Done():
				t.Errorf("its context ended: %v", context.Cause(ctx))
			case <-time.After(3 * time.Second):
			}
			return nil
		}, append(opts, queue.WithAckTimeout(time.Second), queue.WithConcurrency(2))...)
		settledAll(t, s, "jobs", "g", 3)
		if got := w.Stats(); got.Streams != 1 || got.Lost != 0 {
			t.Errorf("stats %+v", got)
		}
	})
}

func TestHandlerTimeout(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	c := newClient(t, s.Addr())
	produce(t, c, "jobs", queue.Message{})
	release := make(chan struct{})
	w := work(t, c, "jobs", "g", func(ctx context.Context, d *queue.Delivery) error {
		if d.Attempt == 1 {
			<-ctx.Done()
			<-release // and ignores its context
		}
		return nil
	}, queue.WithHandlerTimeout(20*time.Millisecond))
	settledAll(t, s, "jobs", "g", 1)
	close(release)
	if err := w.finish(); err != nil {
		t.Errorf("run: %v", err)
	}
	if got := w.Stats(); got.Nacked != 1 || got.Acked != 1 {
		t.Errorf("stats %+v", got)
	}
}

// TestLeaseIsLost makes a worker lose its deliveries on the server. The handler's context must end,
// its result must have no effect and cause no error of Run, and the message must be delivered
// again.
func TestLeaseIsLost(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...queue.WorkerOption) {
		s := parleytest.Start(t)
		s.AddTopic("jobs", 1, "g")
		c := newClient(t, s.Addr())
		produce(t, c, "jobs", queue.Message{Payload: []byte("told")}, queue.Message{Payload: []byte("untold")})
		var started sync.WaitGroup
		started.Add(2)
		untold := make(chan struct{})
		var lost atomic.Int32
		w := work(t, c, "jobs", "g", func(ctx context.Context, d *queue.Delivery) error {
			if d.Attempt > 1 {
				return nil
			}
			started.Done()
			if string(d.Payload) == "untold" {
				<-untold // it returns before it is notified
				return nil
			}
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), parley.ErrLeaseLost) {
				t.Errorf("its context ended with %v", context.Cause(ctx))
			}
			return nil
		}, append(opts, queue.WithAckTimeout(time.Second), queue.WithOnLost(func(d *queue.Delivery, err error) {
			if d.Attempt != 1 || !errors.Is(err, parley.ErrLeaseLost) {
				t.Errorf("lost %+v: %v", d, err)
			}
			lost.Add(1)
		}))...)
		started.Wait()
		s.LoseLeases("jobs", "g")
		close(untold)
		settledAll(t, s, "jobs", "g", 2)
		eventually(t, func() error {
			if n := lost.Load(); n != 2 {
				return fmt.Errorf("%d lost", n)
			}
			return nil
		})
		if err := w.finish(); err != nil {
			t.Errorf("run: %v", err)
		}
		if got := w.Stats(); got.Lost != 2 || got.Acked != 2 || got.Streams != 1 {
			t.Errorf("stats %+v", got)
		}
	})
}

// TestLostFreesCredits loses all deliveries of a worker's window while its stream stays open. The
// worker must grant new credits, so that the messages are delivered again.
func TestLostFreesCredits(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...queue.WorkerOption) {
		s := parleytest.Start(t)
		s.AddTopic("jobs", 1, "g")
		c := newClient(t, s.Addr())
		produce(t, c, "jobs", keyed("", 0, 2)...)
		var started sync.WaitGroup
		started.Add(2)
		w := work(t, c, "jobs", "g", func(ctx context.Context, d *queue.Delivery) error {
			if d.Attempt == 1 {
				started.Done()
				<-ctx.Done()
			}
			return nil
		}, append(opts, queue.WithWindow(2, 0), queue.WithAckTimeout(time.Second))...)
		started.Wait()
		s.LoseLeases("jobs", "g")
		settledAll(t, s, "jobs", "g", 2)
		eventually(t, func() error { // a loss is counted after its context is canceled
			if got := w.Stats(); got.Lost != 2 || got.Streams != 1 {
				return fmt.Errorf("stats %+v", got)
			}
			return nil
		})
	})
}

// TestSettlementsAreRepeated fails every other Ack and Nack as unavailable, half of them after they
// took effect. The worker must repeat them and keep its stream.
func TestSettlementsAreRepeated(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...queue.WorkerOption) {
		s := parleytest.Start(t)
		s.AddTopic("jobs", 1, "g")
		n := 0
		s.Fault(func(method string, _ proto.Message) *parleytest.Fault {
			if method != "Ack" && method != "Nack" {
				return nil
			}
			if n++; n%2 == 0 {
				return nil
			}
			return &parleytest.Fault{
				Err:     parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE),
				Applied: n%4 == 1,
			}
		})
		c := newClient(t, s.Addr())
		produce(t, c, "jobs", keyed("", 0, 50)...)
		w := work(t, c, "jobs", "g", func(_ context.Context, d *queue.Delivery) error {
			if d.Attempt == 1 {
				return errors.New("once more")
			}
			return nil
		}, opts...)
		settledAll(t, s, "jobs", "g", 50)
		eventually(t, func() error {
			if got := w.Stats(); got.Acked != 50 || got.Nacked != 50 || got.Lost != 0 || got.Streams != 1 {
				return fmt.Errorf("stats %+v", got)
			}
			return nil
		})
	})
}

// TestGracefulStop ends the context of Run while handlers run and deliveries wait for a handler.
// The handlers must finish and be acknowledged, the waiting messages must be released, and no
// handler may start.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, opts ...queue.WorkerOption) {
		s := parleytest.Start(t)
		s.AddTopic("jobs", 1, "g")
		c := newClient(t, s.Addr())
		produce(t, c, "jobs", keyed("", 0, 30)...)
		var started atomic.Int32
		finish := make(chan struct{})
		w := work(t, c, "jobs", "g", func(ctx context.Context, _ *queue.Delivery) error {
			started.Add(1)
			<-finish
			return ctx.Err()
		}, append(opts, queue.WithConcurrency(3), queue.WithWindow(10, 0))...)
		eventually(t, func() error {
			if w.Stats().Delivered < 10 || started.Load() < 3 {
				return fmt.Errorf("stats %+v", w.Stats())
			}
			return nil
		})
		w.stop()
		select {
		case err := <-w.done:
			t.Fatalf("it did not wait: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		close(finish)
		if err := w.finish(); err != nil {
			t.Errorf("run: %v", err)
		}
		if got := w.Stats(); started.Load() != 3 || got.Acked != 3 || got.Released != 7 || got.Lost != 0 {
			t.Errorf("%d began, stats %+v", started.Load(), got)
		}
		work(t, c, "jobs", "g", func(_ context.Context, d *queue.Delivery) error {
			if d.Attempt != 1 {
				t.Errorf("%s: attempt %d", d.Payload, d.Attempt)
			}
			return nil
		}, opts...)
		settledAll(t, s, "jobs", "g", 30)
	})
}

// TestHardStop reaches the stop timeout with two handlers. One returns when its context ends and
// must be acknowledged, the other one must be counted as lost.
func TestHardStop(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	c := newClient(t, s.Addr())
	produce(t, c, "jobs", queue.Message{Payload: []byte("good")}, queue.Message{Payload: []byte("deaf")})
	release := make(chan struct{})
	var started sync.WaitGroup
	started.Add(2)
	w := work(t, c, "jobs", "g", func(ctx context.Context, d *queue.Delivery) error {
		started.Done()
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), queue.ErrStopTimeout) {
			t.Errorf("its context ended with %v", context.Cause(ctx))
		}
		if string(d.Payload) == "deaf" {
			<-release
		}
		return nil
	}, queue.WithStopTimeout(10*time.Millisecond))
	started.Wait()
	if err := w.finish(); !errors.Is(err, queue.ErrStopTimeout) {
		t.Errorf("run: %v", err)
	}
	close(release)
	if got := w.Stats(); got.Acked != 1 || got.Lost != 1 {
		t.Errorf("stats %+v", got)
	}
}

// TestRetriesAreLoggedByCall fails the first call of each kind that a worker with unary calls
// makes. The log must name each call.
func TestRetriesAreLoggedByCall(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	calls := []string{"Ack", "Nack", "Extend", "Leave"}
	var mu sync.Mutex
	made := make(map[string]int)
	extended := make(chan struct{})
	s.Fault(func(method string, _ proto.Message) *parleytest.Fault {
		mu.Lock()
		defer mu.Unlock()
		made[method]++
		if method == "Extend" && made[method] == 2 {
			close(extended)
		}
		if made[method] > 1 || !slices.Contains(calls, method) {
			return nil
		}
		return &parleytest.Fault{Err: parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE)}
	})
	var out strings.Builder // slog's handlers write one line at a time
	c := newClient(t, s.Addr(), parley.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
	produce(t, c, "jobs", queue.Message{Payload: []byte("ack")}, queue.Message{Payload: []byte("nack")})
	w := work(t, c, "jobs", "g", func(_ context.Context, d *queue.Delivery) error {
		if string(d.Payload) == "nack" && d.Attempt == 1 {
			<-extended
			return errors.New("once more")
		}
		return nil
	}, queue.WithUnaryCalls(), queue.WithAckTimeout(time.Second))
	settledAll(t, s, "jobs", "g", 2)
	if err := w.finish(); err != nil {
		t.Errorf("run: %v", err)
	}
	for _, call := range calls {
		if !strings.Contains(out.String(), "msg=retrying call="+call+" ") {
			t.Errorf("no retry of %s in the log:\n%s", call, &out)
		}
	}
}
