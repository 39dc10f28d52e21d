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
	"github.com/parleyhq/parley/sdk/go/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patient makes any wait between attempts longer than a test.
var patient = parley.WithBackoff(parley.Backoff{Base: 10 * time.Hour, Max: 10 * time.Hour})

// testContext returns a context that ends a little before a hanging test would.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// newClient creates a client whose retries are fast enough for tests, unless opts say otherwise.
// The test closes it.
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

// eventually polls until check returns nil.
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

// nextEvent returns the next event of one of the kinds; without kinds, of any but states.
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

// wantEntries reads events until the entries first to last of the one channel have come, and fails
// on any that is repeated, missing or out of order.
func wantEntries(t *testing.T, s *parley.Subscription, first, last int64) {
	t.Helper()
	for want := first; want <= last; want++ {
		if e := nextEvent(t, s); e.Kind == parley.EventGap || e.Seq != want {
			t.Fatalf("got %s with seq %d, want entry %d", e.Kind, e.Seq, want)
		}
	}
}

// working is a worker that runs.
type working struct {
	*queue.Worker

	t    *testing.T
	stop context.CancelFunc
	done chan error
	once sync.Once
	err  error
}

// work runs a worker until the test ends, or stop is called.
func work(t *testing.T, c *parley.Client, topic, group string, h queue.Handler, opts ...queue.WorkerOption) *working {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	w := &working{Worker: queue.NewWorker(c, topic, group, h, opts...), t: t, stop: stop, done: make(chan error, 1)}
	go func() { w.done <- w.Run(ctx) }()
	t.Cleanup(func() { _ = w.finish() })
	return w
}

// finish stops the worker and returns what Run returned.
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

// both runs a test with each of the two ways in which a worker settles.
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

// keyed returns n messages of one key.
func keyed(n int) []queue.Message {
	all := make([]queue.Message, n)
	for i := range all {
		all[i] = queue.Message{Key: "k", Payload: fmt.Appendf(nil, "k-%d", i)}
	}
	return all
}
