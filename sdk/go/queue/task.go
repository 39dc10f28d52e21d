package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/internal/trace"
)

// patience is how long a handler may run after its context has ended at its timeout. Then its
// delivery is no longer extended.
const patience = 10 * time.Second

// stage is the state of a task. It only increases:
//
//	waiting   waits for a handler                begun (a handler starts); over (released, lost)
//	begun     a handler runs                     settling (it returned, or is abandoned); over (lost)
//	settling  its verdict has no final answer    over (answered, or lost)
//	over      the worker no longer holds it
type stage uint8

const (
	waiting stage = iota
	begun
	settling
	over
)

// task is a delivery that the worker holds until it is settled or lost.
type task struct {
	d       *Delivery
	token   string
	session *session

	// The fields below are guarded by the run's lock.
	stage stage
	// cancel ends the handler's context. It is nil until the handler begins.
	cancel context.CancelCauseFunc
	// stuck is true for a handler that ignores the end of its context.
	stuck bool
	// nack is the verdict of a task that is settling or over; nil means an ack. sent counts how
	// often it was sent.
	nack *parleyv1.NackItem
	sent int
}

func (t *task) lane() lane { return lane{topic: t.d.Topic, partition: t.d.Partition, key: t.d.Key} }

// timeLimit returns how long the handler of a delivery may take.
func (w *Worker) timeLimit(d *Delivery) time.Duration {
	limit := d.Timeout
	if limit <= 0 {
		limit = defaultHandlerTimeout
	}
	if own := w.cfg.handlerTimeout; own > 0 {
		limit = min(limit, own)
	}
	return limit
}

// handle runs the handler of a task, unless the task is over or the worker is stopping.
func (r *run) handle(t *task) {
	ctx, ok := r.begin(t)
	if !ok {
		return
	}
	limit := r.w.timeLimit(t.d)
	timeout := time.AfterFunc(limit, func() { t.cancel(errHandlerTimeout) })
	ignored := time.AfterFunc(limit+patience, func() { r.stick(t) })
	err := errGoexit
	defer func() {
		timeout.Stop()
		ignored.Stop()
		cause := context.Cause(ctx)
		t.cancel(nil)
		r.finish(t, verdict(t.token, err, cause))
	}()
	err = r.w.handlers[t.d.Topic].call(trace.Extract(ctx, t.d.Headers), t.d)
	if p, ok := errors.AsType[*panicError](err); ok {
		r.w.counts.panicked.Add(1)
		r.w.link.Log().ErrorContext(ctx, "a handler panicked", "message_id", t.d.MessageID, "panic", p.value, "stack", string(p.stack))
	}
}

// verdict returns the nack for the error of a handler, or nil for an ack. cause is why the
// handler's context ended, or nil.
func verdict(token string, err, cause error) *parleyv1.NackItem {
	switch {
	case err == nil:
		return nil
	case errors.Is(cause, ErrStopTimeout):
		return release(token)
	case errors.Is(cause, errHandlerTimeout):
		if errors.Is(err, ErrRelease) {
			// A released message would be delivered again at once, and time out again.
			err = errors.New(err.Error())
		}
		return nackOf(token, Code(fmt.Errorf("%w: %w", errHandlerTimeout, err), CodeTimeout))
	default:
		return nackOf(token, err)
	}
}

// begin returns the handler's context. It returns false if the task must not be handled.
func (r *run) begin(t *task) (context.Context, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.stage != waiting || r.stopping || r.asked.Err() != nil {
		return nil, false
	}
	t.stage = begun
	var ctx context.Context
	ctx, t.cancel = context.WithCancelCause(r.life)
	r.markLocked(t)
	return ctx, true
}

// stick records that a handler ignores the end of its context.
func (r *run) stick(t *task) {
	r.mu.Lock()
	held := t.stage == begun
	t.stuck = held
	r.mu.Unlock()
	if held {
		r.w.link.Log().WarnContext(r.life, "a handler ignores its timeout; its delivery is no longer extended",
			"topic", t.d.Topic, "message_id", t.d.MessageID)
	}
}

// finish queues the verdict of a task, an ack if nack is nil. Only the first call after begin has
// an effect.
func (r *run) finish(t *task, nack *parleyv1.NackItem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finishLocked(t, nack)
}

func (r *run) finishLocked(t *task, nack *parleyv1.NackItem) {
	if t.stage != begun {
		return
	}
	t.stage, t.nack = settling, nack
	r.addLocked(t)
}

// endLocked makes a task over and counts it: as lost if err is not nil, else by its verdict. The
// caller must call report afterwards if err is not nil.
func (r *run) endLocked(t *task, err error) {
	decided := t.stage == settling
	t.stage = over
	delete(t.session.tasks, t.token)
	c := &r.w.counts
	switch {
	case err != nil:
		c.lost.Add(1)
		if t.cancel != nil {
			t.cancel(err)
		}
	case !decided || t.nack.GetRelease() != nil:
		c.released.Add(1)
	case t.nack == nil:
		c.acked.Add(1)
	default:
		c.nacked.Add(1)
	}
	r.notifyLocked()
}

// report passes lost deliveries to the log and to the program.
func (r *run) report(tasks []*task, err error) {
	for _, t := range tasks {
		r.w.link.Log().WarnContext(r.life, "delivery lost",
			"topic", t.d.Topic, "message_id", t.d.MessageID, "attempt", t.d.Attempt, "error", err)
		r.w.cfg.onLost(t.d, err)
	}
}

// dropWaiting ends the tasks that no handler has begun. The server returns their messages when the
// session is left.
func (r *run) dropWaiting() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.heldLocked() {
		if t.stage == waiting {
			r.endLocked(t, nil)
		}
	}
}

// cancelAll ends the contexts of the running handlers with a cause. It does not wait for them.
func (r *run) cancelAll(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.heldLocked() {
		if t.stage == begun {
			t.cancel(cause)
		}
	}
}

// releaseBegun releases the messages of the handlers that still run.
func (r *run) releaseBegun() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.heldLocked() {
		r.finishLocked(t, release(t.token))
	}
}
