package queue

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// Session is one consumer's stream: a member of its group. Next belongs to one goroutine; the other methods may be called by any.
//
// It ends by failure, whoever notices first what ends it. From then on it settles no more and sends no more; what was read and not
// sent is released, the leases are freed and the group is left, in that order and in the background.
type Session struct {
	id      string
	request OpenRequest
	hub     *Hub
	group   *group
	// seal makes tokens; it belongs to Next.
	seal seal
	// wake holds a token when Next may have something to do.
	wake chan struct{}
	// serving counts workers and flushes. ctx bounds their calls: it ends a while after the session.
	serving sync.WaitGroup
	ctx     context.Context //nolint:containedctx // the session's own life, not a call's
	cancel  context.CancelFunc

	// mu guards what follows, and the workers. No call of the store is made under it.
	mu sync.Mutex
	// failure ends the session.
	failure *fault.Error
	// draining is set when the session takes no more partitions; it is how the session ends once it has none.
	draining *fault.Error
	credits
	// workers are those of the partitions that are leased, by partition. turnOf is the one whose messages are sent next.
	workers map[int]*worker
	turnOf  int
	// assigned is set when the consumer is to be told its partitions. welcomed is set once it was told at all.
	assigned, welcomed bool
	serial             uint64
	lastFrame          time.Time
	// timer rings at armed, which is zero while it is not set; nextDue is no later than the first ack deadline.
	timer   *time.Timer
	armed   time.Time
	nextDue time.Time
}

func newSession(h *Hub, r OpenRequest, id string) *Session {
	s := &Session{
		id: id, request: r, hub: h, seal: newSeal(h.cfg.Secret, id, r.Topic, r.Group), wake: make(chan struct{}, 1),
		workers: map[int]*worker{}, lastFrame: time.Now(),
		credits: credits{messages: r.MaxMessages, bytes: r.MaxBytes},
	}
	s.ctx, s.cancel = context.WithCancel(h.ctx)
	return s
}

// ID is the session's unguessable name: 26 of A-Z and 2-7, 130 random bits, and then HubConfig.Node.
func (s *Session) ID() string { return s.id }

// AckTimeout is how long a delivery may go unsettled.
func (s *Session) AckTimeout() time.Duration { return s.request.AckTimeout }

// Close ends the session. What it had goes to other members, soon and in the background; Next fails with LEASE_LOST. Safe twice.
func (s *Session) Close() { s.end(leaseLost()) }

// end ends the session, unless it has ended already.
func (s *Session) end(failure *fault.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(failure)
}

// fail is end under mu.
func (s *Session) fail(failure *fault.Error) {
	if s.failure != nil {
		return
	}
	s.failure = failure
	if s.timer != nil {
		s.timer.Stop()
	}
	for _, w := range s.workers {
		w.poke()
	}
	s.poke()
	s.hub.run.Go(func(context.Context) { s.tearDown() })
}

// tearDown gives back what the session has.
func (s *Session) tearDown() {
	overdue := time.AfterFunc(s.hub.teardownTime(), s.cancel)
	s.group.leaving(s)
	s.serving.Wait()
	overdue.Stop()
	s.cancel()
	s.group.left(s)
	s.hub.forget(s)
}

// errLeft ends a session whose consumer asked for it. Next gives io.EOF.
var errLeft = leaseLost()

// drain has the session take no more, and end by failure once all that it holds is settled. Safe to repeat.
func (s *Session) drain(failure *fault.Error) {
	s.group.leaving(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = failure
	for _, w := range s.workers {
		w.stop()
	}
	s.drained()
}

// drained ends a draining session that has nothing left.
func (s *Session) drained() {
	if s.draining != nil && len(s.workers) == 0 {
		s.fail(s.draining)
	}
}

// takes reports whether the session takes part in its group.
func (s *Session) takes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure == nil && s.draining == nil
}

// start serves a partition whose lease was got by a call that began at sent. It reports whether the session still wants it.
func (s *Session) start(lease Lease, sent time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil || s.draining != nil || s.workers[lease.Partition] != nil {
		return false
	}
	w := newWorker(s, lease, s.hub.until(sent))
	s.workers[lease.Partition] = w
	s.group.serves(w)
	s.hub.metrics.Owned(lease.Topic, lease.Group, 1)
	s.assigned = true
	s.poke()
	s.serving.Go(w.run)
	return true
}

// poke wakes Next.
func (s *Session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// partitions are those of the workers, ascending.
func (s *Session) partitions() []int {
	all := make([]int, 0, len(s.workers))
	for p := range s.workers {
		all = append(all, p)
	}
	slices.Sort(all)
	return all
}

// arm has the timer ring at a time, or sooner.
func (s *Session) arm(at, now time.Time) {
	if s.failure != nil || !s.armed.IsZero() && !at.Before(s.armed) {
		return
	}
	s.armed = at
	if s.timer == nil {
		s.timer = time.AfterFunc(at.Sub(now), s.ring)
		return
	}
	s.timer.Reset(at.Sub(now))
}

// due has the deadline of a delivery kept.
func (s *Session) due(deadline, now time.Time) {
	if s.nextDue.IsZero() || deadline.Before(s.nextDue) {
		s.nextDue = deadline
		s.arm(deadline, now)
	}
}

// ring looks at what is due. A timer that rings too soon does no harm, so it is not moved for every frame and every ack.
func (s *Session) ring() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.armed = time.Time{}
	if s.failure != nil {
		return
	}
	if s.expired(now) {
		return
	}
	if !s.nextDue.IsZero() && !now.Before(s.nextDue) && s.overdue(now) {
		s.fail(fault.New(fault.Aborted, fault.AckTimeout, "a delivery was neither settled nor extended in time; consume again"))
		return
	}
	if !s.nextDue.IsZero() {
		s.arm(s.nextDue, now)
	}
	if !s.request.Expires.IsZero() {
		s.arm(s.request.Expires, now)
	}
	s.poke()
}

// expired ends the session if its token's life is over, and reports whether it is.
func (s *Session) expired(now time.Time) bool {
	if s.request.Expires.IsZero() || now.Before(s.request.Expires) {
		return false
	}
	s.fail(fault.New(fault.Unauthenticated, fault.TokenExpired, "the token's life has ended"))
	return true
}

// overdue reports whether a delivery's time has passed, and else finds when the next one's does. What is being settled is the
// store's to answer for.
func (s *Session) overdue(now time.Time) bool {
	s.nextDue = time.Time{}
	for _, w := range s.workers {
		for _, d := range w.inFlight {
			switch {
			case d.serial == 0 || d.op != nil:
			case !now.Before(d.deadline):
				return true
			case s.nextDue.IsZero() || d.deadline.Before(s.nextDue):
				s.nextDue = d.deadline
			}
		}
	}
	return false
}

func shuttingDown() *fault.Error {
	return fault.New(fault.Unavailable, fault.ShuttingDown, "the server is shutting down")
}
