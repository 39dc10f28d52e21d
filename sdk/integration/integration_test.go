// Package integration_test runs the Go SDK against a real server. The SDK's module cannot hold
// these tests: they would add everything that the server requires to what the SDK's users inherit.
package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patient makes waits between attempts last for hours, so that a test with it fails if the client
// waits.
var patient = parley.WithBackoff(parley.Backoff{Base: 10 * time.Hour, Max: 10 * time.Hour})

// testContext returns a context that ends after 30 s or with the test.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// newClient creates a client with waits of at most 50 ms between attempts, unless opts set others.
// It is closed when the test ends.
func newClient(t *testing.T, addr string, opts ...parley.Option) *parley.Client {
	t.Helper()
	quick := parley.WithBackoff(parley.Backoff{Base: 5 * time.Millisecond, Max: 50 * time.Millisecond})
	c, err := parley.New(addr, append([]parley.Option{quick}, opts...)...)
	if err != nil {
		t.Fatalf("new client: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

// eventually polls until check returns nil. After 20 s it fails the test.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(2 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("not in time: %v", err)
}

func subscribe(t *testing.T, c *parley.Client, opts ...parley.SubscribeOption) *parley.Subscription {
	t.Helper()
	s := c.Subscribe(testContext(t), opts...)
	t.Cleanup(s.Close)
	return s
}

// nextEvent returns the next event of one of the kinds. Without kinds it returns any event except
// an EventChannelState. It drops the others.
func nextEvent(t *testing.T, s *parley.Subscription, kinds ...parley.EventKind) parley.Event {
	t.Helper()
	for {
		e, err := s.Next(testContext(t))
		if err != nil {
			t.Fatalf("next event: %v", err)
		}
		if len(kinds) == 0 && e.Kind != parley.EventChannelState || slices.Contains(kinds, e.Kind) {
			return e
		}
	}
}

// wantEntries takes events until the entries first to last have come, both inclusive. It fails the
// test if one is repeated, missing or out of order. The subscription must follow one channel only.
func wantEntries(t *testing.T, s *parley.Subscription, first, last int64) {
	t.Helper()
	for want := first; want <= last; want++ {
		if e := nextEvent(t, s); e.Kind == parley.EventGap || e.Seq != want {
			t.Fatalf("got %s with seq %d, want entry %d", e.Kind, e.Seq, want)
		}
	}
}

// working is a running worker.
type working struct {
	*queue.Worker

	t    *testing.T
	stop context.CancelFunc
	done chan error
	once sync.Once
	err  error
}

// work runs a worker until the test ends or finish is called.
func work(t *testing.T, c *parley.Client, topic, group string, h queue.Handler, opts ...queue.WorkerOption) *working {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	w := &working{Worker: queue.NewWorker(c, group, opts...).Handle(topic, h), t: t, stop: stop, done: make(chan error, 1)}
	go func() { w.done <- w.Run(ctx) }()
	t.Cleanup(func() { _ = w.finish() })
	return w
}

// finish stops the worker, waits for it and returns the error of Run. It can be called again.
func (w *working) finish() error {
	w.once.Do(func() {
		w.stop()
		select {
		case w.err = <-w.done:
		case <-time.After(20 * time.Second):
			w.t.Error("Run does not return")
		}
	})
	return w.err
}

// both runs a test twice: with the bidirectional stream StreamingConsume, and with WithUnaryCalls.
func both(t *testing.T, test func(t *testing.T, opts ...queue.WorkerOption)) {
	t.Helper()
	t.Run("bidi", func(t *testing.T) { t.Parallel(); test(t) })
	t.Run("unary", func(t *testing.T) { t.Parallel(); test(t, queue.WithUnaryCalls()) })
}

func produce(t *testing.T, c *parley.Client, topic string, messages ...queue.Message) {
	t.Helper()
	results, err := queue.NewProducer(c, topic).Produce(testContext(t), messages...)
	for _, r := range results {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		t.Fatalf("produce: %v", err)
	}
}

// keyed returns n messages of the key k, with the payloads k-0, k-1 and so on.
func keyed(n int) []queue.Message {
	all := make([]queue.Message, n)
	for i := range all {
		all[i] = queue.Message{Key: "k", Payload: fmt.Appendf(nil, "k-%d", i)}
	}
	return all
}
