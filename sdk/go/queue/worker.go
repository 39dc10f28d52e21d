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
)

// haste is how long a worker that stops waits for those that it has told to, and for answers.
const haste = time.Second

// ErrStopTimeout is Run's error where handlers were still running when the stop timeout had passed. Their contexts have ended, with
// it as the cause; their messages go to others, and count as tried.
var ErrStopTimeout = errors.New("parley: handlers were still running when the worker had to stop")

// Worker handles what a consumer group is given of one topic. Several workers of a group, in one process or many, share its
// partitions.
//
// It acknowledges in batches, extends what is in flight by itself, and reconnects, at another node if one failed. What it held when
// a stream broke comes again, here or elsewhere.
type Worker struct {
	link    link.Link
	topic   string
	group   string
	handler Handler
	cfg     workerConfig
	counts  counters
}

// Stats counts what a Worker has done since it was made.
type Stats struct {
	// Delivered messages have come in. Each is then acked, nacked, released or lost.
	Delivered int64
	Acked     int64
	// Nacked messages were given back because a handler failed; Panicked counts those among them that panicked.
	Nacked   int64
	Panicked int64
	// Released messages were given back unhandled when the worker stopped.
	Released int64
	// Lost messages: see WithOnLost.
	Lost int64
	// Sessions counts the streams that were live.
	Sessions int64
}

type counters struct{ delivered, acked, nacked, panicked, released, lost, sessions atomic.Int64 }

// NewWorker makes a worker of a group, both of which must exist when it runs. It does not connect; Run does.
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
	return &Worker{link: c.Link(), topic: topic, group: group, handler: h, cfg: cfg}
}

// Stats gives the counts so far. It may be called at any time.
func (w *Worker) Stats() Stats {
	c := &w.counts
	return Stats{
		Delivered: c.delivered.Load(), Acked: c.acked.Load(), Nacked: c.nacked.Load(), Panicked: c.panicked.Load(),
		Released: c.released.Load(), Lost: c.lost.Load(), Sessions: c.sessions.Load(),
	}
}

// Run works until ctx ends or a failure is final, as parley.ErrGroupNotFound; failures that may pass are waited out.
//
// When ctx ends it stops gracefully: it takes nothing more, waits for the handlers that run, settles what they did, gives back the
// rest, which does not count as tried, and returns nil; or ErrStopTimeout, if handlers were still running after the stop timeout.
// The context of handlers does not end with ctx. Run may be called again after it has returned, not at the same time.
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
		// Final: the session is over, and with it the contexts of what it was given.
		if waitErr := r.await(w.cfg.stopTimeout); waitErr != nil {
			err = errors.Join(err, waitErr)
		}
	} else {
		err = <-stopped
	}
	w.cfg.onState(parley.StateChange{State: parley.StateEnded, Err: err})
	return err
}

// run is one Run under way.
type run struct {
	w *Worker
	// asked is Run's context, whose end stops the work.
	asked context.Context //nolint:containedctx // see above
	life  context.Context //nolint:containedctx // what the contexts of sessions and handlers come from
	pool  *pool

	mu       sync.Mutex // guards what follows
	session  *session
	stopping bool
}

func (r *run) waiting(addr string, wait time.Duration, err error) {
	r.w.cfg.onState(parley.StateChange{State: parley.StateWaiting, Addr: addr, Wait: wait, Err: err})
}

// await waits until no handler runs.
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

// stop ends the work. Nothing begins any more from its call on.
func (r *run) stop() error {
	r.mu.Lock()
	r.stopping = true
	s := r.session
	r.mu.Unlock()
	if s != nil {
		go s.leave() // which ends with the session
	}
	err := r.await(r.w.cfg.stopTimeout)
	switch {
	case s == nil:
	case err == nil:
		// The server ends the stream once all is settled.
		s.await(5 * haste)
	default:
		s.abandon(ErrStopTimeout)
		// Those that heed their context are settled still.
		_ = r.await(haste)
		ctx, cancel := context.WithTimeout(r.life, haste)
		defer cancel()
		s.out.flush(ctx)
	}
	return err
}

// enter makes s the session, unless the worker stops.
func (r *run) enter(s *session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return false
	}
	r.session = s
	return true
}

func (r *run) leave(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session == s && !r.stopping {
		r.session = nil
	}
}

func (r *run) isStopping() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopping || r.asked.Err() != nil
}

// handle runs one task, if it is still to be run.
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
	err = r.w.handler.call(tracing(ctx, t.d), t.d)
	if p, ok := errors.AsType[*panicError](err); ok {
		r.w.counts.panicked.Add(1)
		r.w.link.Log().ErrorContext(ctx, "a handler panicked", "message_id", t.d.MessageID, "panic", p.value, "stack", string(p.stack))
	}
}
