package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/internal/link"
	"github.com/parleyhq/parley/sdk/go/internal/trace"
)

// haste is how long a worker that stops waits for handlers whose contexts have ended, and for the
// server's answers.
const haste = time.Second

// ErrStopTimeout is the error of Run if handlers were still running after the stop timeout. It is
// then the cause of their contexts' end. Their messages are delivered to other workers, as another
// attempt.
var ErrStopTimeout = errors.New("parley: handlers still running after the stop timeout")

// Worker handles the messages of one topic that are delivered to a consumer group. Several workers
// of a group, in one process or many, share its partitions.
//
// It acknowledges in batches, extends deliveries in flight on its own, and reconnects, to another
// node if one failed. Deliveries that it held when a stream broke are delivered again, to this or
// another worker.
type Worker struct {
	link    link.Link
	topic   string
	group   string
	handler Handler
	cfg     workerConfig
	counts  counters
}

// Stats counts the deliveries of a Worker since it was created.
type Stats struct {
	// Delivered counts all deliveries. Each is then acked, nacked, released or lost.
	Delivered int64
	Acked     int64
	// Nacked counts deliveries whose handler failed. Panicked counts those whose handler panicked.
	Nacked   int64
	Panicked int64
	// Released counts deliveries that the worker released when it stopped, or that a handler
	// released with ErrRelease.
	Released int64
	// Lost counts lost deliveries: see WithOnLost.
	Lost int64
	// Streams counts the streams that became live.
	Streams int64
}

type counters struct{ delivered, acked, nacked, panicked, released, lost, streams atomic.Int64 }

// NewWorker returns a worker of a group. Topic and group must exist when it runs. NewWorker does
// not connect; Run does.
func NewWorker(c *parley.Client, topic, group string, h Handler, opts ...WorkerOption) *Worker {
	cfg := defaultWorkerConfig()
	for _, opt := range opts {
		opt(&cfg)
	}
	if cfg.messages == 0 {
		cfg.messages = min(2*int64(cfg.concurrency), 10_000)
	}
	for _, m := range slices.Backward(cfg.middleware) {
		h = m(h)
	}
	return &Worker{link: link.Of(c), topic: topic, group: group, handler: h, cfg: cfg}
}

// Stats returns the counts so far. It is safe for concurrent use.
func (w *Worker) Stats() Stats {
	c := &w.counts
	return Stats{
		Delivered: c.delivered.Load(), Acked: c.acked.Load(), Nacked: c.nacked.Load(), Panicked: c.panicked.Load(),
		Released: c.released.Load(), Lost: c.lost.Load(), Streams: c.streams.Load(),
	}
}

// Run handles messages until ctx ends or a failure is final, for example parley.ErrGroupNotFound.
// After a retryable failure it reconnects.
//
// When ctx ends it stops gracefully: it starts no more handlers, waits for the running ones,
// settles their deliveries, releases the other deliveries, which does not count as an attempt, and
// returns nil. If handlers still run after the stop timeout, it returns ErrStopTimeout. The
// contexts of handlers do not end with ctx. Run may be called again after it has returned, but not
// concurrently.
func (w *Worker) Run(ctx context.Context) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	r := &run{w: w, asked: ctx, life: life}
	r.pool = newPool(w.cfg.concurrency, r.handle)
	stopped := make(chan error, 1)
	halt := context.AfterFunc(ctx, func() {
		stopped <- r.stop()
		end()
	})
	err := w.link.Keep(life, &link.Keep{Name: "worker", Follow: r.follow, Waiting: r.waiting})
	if halt() {
		// The failure is final: the stream has ended, and with it the contexts of its handlers.
		if waitErr := r.await(w.cfg.stopTimeout); waitErr != nil {
			err = errors.Join(err, waitErr)
		}
	} else {
		err = <-stopped
	}
	w.cfg.onState(parley.StateChange{State: parley.StateEnded, Err: err})
	return err
}

// run is the state of one call of Run.
type run struct {
	w *Worker
	// asked is Run's context. Its end stops the worker.
	asked context.Context //nolint:containedctx // see above
	life  context.Context //nolint:containedctx // the parent of the contexts of streams and handlers
	pool  *pool

	mu       sync.Mutex // guards the fields below
	stream   *stream
	stopping bool
}

func (r *run) waiting(addr string, wait time.Duration, err error) {
	r.w.cfg.onState(parley.StateChange{State: parley.StateWaiting, Addr: addr, Wait: wait, Err: err})
}

// await waits until no handler runs. If one still runs after limit, it returns ErrStopTimeout.
func (r *run) await(limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.pool.quiet():
		return nil
	case <-timer.C:
		return ErrStopTimeout
	}
}

// stop waits for the handlers and settles or releases all deliveries. Once it is called, no handler
// starts. It returns ErrStopTimeout if handlers still ran after the stop timeout.
func (r *run) stop() error {
	r.mu.Lock()
	r.stopping = true
	s := r.stream
	r.mu.Unlock()
	if s != nil {
		go s.leave() // which ends with the stream
	}
	err := r.await(r.w.cfg.stopTimeout)
	switch {
	case s == nil:
	case err == nil:
		// The server ends the stream once all deliveries are settled.
		s.await(5 * haste)
	default:
		s.abandon(ErrStopTimeout)
		// Handlers that return when their context ends are still settled.
		_ = r.await(haste)
		ctx, cancel := context.WithTimeout(r.life, haste)
		defer cancel()
		s.out.flush(ctx)
	}
	return err
}

// enter makes s the run's stream, unless the worker is stopping. It reports whether it did.
func (r *run) enter(s *stream) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return false
	}
	r.stream = s
	return true
}

func (r *run) leave(s *stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stream == s && !r.stopping {
		r.stream = nil
	}
}

func (r *run) isStopping() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopping || r.asked.Err() != nil
}

// handle runs one task, unless the task is no longer pending or the worker is stopping.
func (r *run) handle(t *task) {
	if r.isStopping() {
		return
	}
	ctx, cancel, ok := t.begin()
	if !ok {
		return
	}
	defer cancel(nil)
	if limit := r.w.cfg.handlerTimeout; limit > 0 {
		timeout := time.AfterFunc(limit, func() {
			t.settle(errHandlerTimeout)
			cancel(errHandlerTimeout)
		})
		defer timeout.Stop()
	}
	err := errGoexit
	defer func() { t.settle(err) }()
	err = r.w.handler.call(trace.Extract(ctx, t.d.Headers), t.d)
	if p, ok := errors.AsType[*panicError](err); ok {
		r.w.counts.panicked.Add(1)
		r.w.link.Log().ErrorContext(ctx, "a handler panicked", "message_id", t.d.MessageID, "panic", p.value, "stack", string(p.stack))
	}
}
