package queue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// haste is how long a worker that stops waits for handlers whose contexts have ended, and for a
// stream that is being opened. It waits five times as long for the server's answers.
const haste = time.Second

// ErrStopTimeout is the error of Run if handlers were still running after the stop timeout. It is
// then the cause of their contexts' end. Their messages are released.
var ErrStopTimeout = errors.New("parley: handlers still running after the stop timeout")

var errNoTopics = errors.New("parley: the worker has no topics: call Handle before Run")

// Worker handles messages of one or several topics that are delivered to a consumer group. Several
// workers of a group, in one process or many, share its messages.
//
// It has one session with the server, which outlives its streams: if a stream ends, the worker
// opens another one, to another node if one failed, and keeps its deliveries meanwhile. Handlers do
// not notice. If the worker has had no contact for the group's resume grace, the contexts of all
// handlers end, because other workers get their messages then, and a new session starts.
//
// It acknowledges in batches and extends its deliveries on its own.
type Worker struct {
	link     link.Link
	group    string
	handlers map[string]Handler
	cfg      workerConfig
	counts   counters
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
	// Streams counts the streams that became live, Sessions those that started a session.
	Streams, Sessions int64
}

type counters struct {
	delivered, acked, nacked, panicked, released, lost, streams, sessions atomic.Int64
}

// NewWorker returns a worker of a group. Handle adds its topics. NewWorker does not connect; Run
// does.
func NewWorker(c *parley.Client, group string, opts ...WorkerOption) *Worker {
	cfg := defaultWorkerConfig()
	for _, opt := range opts {
		opt(&cfg)
	}
	return &Worker{link: link.Of(c), group: group, handlers: make(map[string]Handler), cfg: cfg}
}

// Handle sets the handler of a topic and returns the worker. A worker has up to 16 topics. Each
// must exist and have the group when the worker runs. Handle must not be called after Run.
func (w *Worker) Handle(topic string, h Handler) *Worker {
	for _, m := range slices.Backward(w.cfg.middleware) {
		h = m(h)
	}
	w.handlers[topic] = h
	return w
}

// Stats returns the counts so far. It is safe for concurrent use.
func (w *Worker) Stats() Stats {
	c := &w.counts
	return Stats{
		Delivered: c.delivered.Load(), Acked: c.acked.Load(), Nacked: c.nacked.Load(), Panicked: c.panicked.Load(),
		Released: c.released.Load(), Lost: c.lost.Load(), Streams: c.streams.Load(), Sessions: c.sessions.Load(),
	}
}

// Run handles messages until ctx ends or a failure is final, for example parley.ErrGroupNotFound.
// After a retryable failure it reconnects.
//
// When ctx ends it stops gracefully: it starts no more handlers, returns the deliveries that no
// handler has begun, which does not count as an attempt, waits for the running handlers, settles
// their deliveries and returns nil. If handlers still run after the stop timeout, it ends their
// contexts, releases their messages and returns ErrStopTimeout. The contexts of handlers do not end
// with ctx. Run may be called again after it has returned, but not concurrently.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.handlers) == 0 {
		return errNoTopics
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	r := &run{
		w: w, topics: slices.Sorted(maps.Keys(w.handlers)), asked: ctx, life: life,
		marking: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	r.pool = newPool(w.cfg.concurrency, r.handle)
	stopped := make(chan error, 1)
	halt := context.AfterFunc(ctx, func() {
		stopped <- r.stop()
		end()
	})
	err := w.link.Keep(life, &link.Keep{Name: "worker", Follow: r.follow, Waiting: r.waiting})
	if halt() {
		// The failure is final: nothing can be settled any more.
		r.giveUp(nil, lost("the worker has ended: "+err.Error()))
		if waitErr := r.await(w.cfg.stopTimeout); waitErr != nil {
			err = errors.Join(err, waitErr)
		}
	} else {
		err = <-stopped
	}
	end()
	r.close()
	w.cfg.onState(parley.StateChange{State: parley.StateEnded, Err: err})
	return err
}

// run is the state of one call of Run. Handlers, verdicts and the session belong to it; streams
// only carry their frames.
type run struct {
	w      *Worker
	topics []string
	// asked is Run's context. Its end stops the worker.
	asked context.Context //nolint:containedctx // see above
	life  context.Context //nolint:containedctx // the parent of the contexts of streams and handlers
	pool  *pool
	// work tracks the run's goroutines, except handlers. See spawn.
	work sync.WaitGroup
	// marking holds a value while begun marks are sent, so that Leave comes after them.
	marking chan struct{}

	mu sync.Mutex // guards the fields below, the session and the tasks
	// session is nil before the first stream is live and after the session was lost.
	session *session
	// current is the stream for requests, nil if none is live. retiring is the one that the server
	// asked to replace; it is current too until the next one is live.
	current, retiring *stream
	// opening is a stream that was requested and is not live, or nil.
	opening *stream
	out     outbox
	marks   marks
	// stopping is set when asked ends. left is set when the server has ended the session since.
	stopping, left bool
	closed         bool
	// changed is closed and replaced when a task is over, and when a stream or the session ends.
	changed chan struct{}
}

func (r *run) waiting(addr string, wait time.Duration, err error) {
	r.w.cfg.onState(parley.StateChange{State: parley.StateWaiting, Addr: addr, Wait: wait, Err: err})
}

// spawn starts a goroutine that ends with life. It does nothing after close.
func (r *run) spawn(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spawnLocked(f)
}

func (r *run) spawnLocked(f func()) {
	if !r.closed {
		r.work.Go(f)
	}
}

// close gives up what the run still holds and waits for its goroutines. life has ended.
func (r *run) close() {
	r.giveUp(nil, lost("the worker has stopped"))
	r.mu.Lock()
	r.closed = true
	r.out.stopLocked()
	r.mu.Unlock()
	r.work.Wait()
}

// notifyLocked wakes what waits for a change.
func (r *run) notifyLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// until waits until done, which is called with the lock held, returns true, or ctx ends. It reports
// whether done did.
func (r *run) until(ctx context.Context, done func() bool) bool {
	for {
		r.mu.Lock()
		is, changed := done(), r.changed
		r.mu.Unlock()
		if is {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
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

// stop leaves the session and waits until its deliveries are settled. Once it is called, no handler
// starts. It returns ErrStopTimeout if handlers still ran after the stop timeout.
func (r *run) stop() error {
	r.mu.Lock()
	r.stopping = true
	s := r.current
	r.mu.Unlock()
	r.dropWaiting()
	if s != nil {
		r.spawn(s.leave)
	}
	err := r.await(r.w.cfg.stopTimeout)
	if err != nil {
		r.cancelAll(ErrStopTimeout)
		// Handlers that return when their context ends are still settled.
		_ = r.await(haste)
		r.releaseBegun()
	}
	limit := 5 * haste
	if err != nil {
		limit = haste
	}
	ctx, cancel := context.WithTimeout(r.life, limit)
	defer cancel()
	r.leaveSession(ctx)
	return err
}

// leaveSession waits until the server has ended the session. It makes the call Leave if the worker
// holds nothing and no stream is open, on which the worker would leave.
func (r *run) leaveSession(ctx context.Context) {
	opened, cancel := context.WithTimeout(ctx, haste)
	defer cancel()
	if !r.until(opened, func() bool { return r.session != nil || r.opening == nil }) {
		return
	}
	var left *session
	r.until(ctx, func() bool {
		if r.session == nil || r.left {
			return true
		}
		if r.current == nil && r.opening == nil && len(r.session.tasks) == 0 {
			left = r.session
		}
		return left != nil
	})
	if left == nil {
		return
	}
	err := r.w.link.Retry(ctx, "Leave", func(ctx context.Context, s *link.Services) error {
		_, err := s.Queue.Leave(ctx, &parleyv1.LeaveRequest{SessionId: left.id})
		return err
	})
	if err != nil && !errors.Is(err, parley.ErrSessionLost) {
		r.w.link.Log().WarnContext(r.life, "leave group failed", "group", r.w.group, "error", err)
	}
}
