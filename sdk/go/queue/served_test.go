package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// testContext returns a context that ends after 30 s or with the test.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func newClient(t *testing.T, addr string, opts ...parley.Option) *parley.Client {
	t.Helper()
	quick := parley.WithBackoff(parley.Backoff{Base: 5 * time.Millisecond, Max: 50 * time.Millisecond})
	c, err := parley.New(addr, append([]parley.Option{quick, parley.WithToken("tester")}, opts...)...)
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

// settledAll waits until a group has acknowledged n messages and has no unsettled ones. Dead
// letters count as settled.
func settledAll(t *testing.T, s *parleytest.Server, topic, group string, n int) {
	t.Helper()
	eventually(t, func() error {
		if acked, left := s.Acked(topic, group), s.Unsettled(topic, group); acked != n || left != 0 {
			return fmt.Errorf("acked %d, left %d; want %d and none", acked, left, n)
		}
		return nil
	})
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

// record is a handler that acknowledges and keeps its deliveries. Safe for concurrent use.
type record struct {
	mu  sync.Mutex
	all []*queue.Delivery
}

func (r *record) handle(_ context.Context, d *queue.Delivery) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, d)
	return nil
}

func (r *record) payloads(key string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, d := range r.all {
		if d.Key == key {
			all = append(all, string(d.Payload))
		}
	}
	return all
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

func keyed(key string, from, to int) []queue.Message {
	var all []queue.Message
	for i := from; i < to; i++ {
		all = append(all, queue.Message{Key: key, Payload: fmt.Appendf(nil, "%s-%d", key, i)})
	}
	return all
}

// both runs a test twice: with the bidirectional stream StreamingConsume, and with WithUnaryCalls.
func both(t *testing.T, test func(t *testing.T, opts ...queue.WorkerOption)) {
	t.Helper()
	t.Run("bidi", func(t *testing.T) { t.Parallel(); test(t) })
	t.Run("unary", func(t *testing.T) { t.Parallel(); test(t, queue.WithUnaryCalls()) })
}
