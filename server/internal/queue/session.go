package queue

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/stream"
)

// Session is one consumer's stream: a member of its group. Next belongs to one goroutine; the other methods may be called by any.
//
// It ends by failure, whoever notices first what ends it. From then on it settles no more and sends no more; what was read and not
// sent is released, the leases are freed and the group is left, in that order and in the background.
type Session struct {
	request OpenRequest
	hub     *Hub
	group   *group
	// seal makes tokens; it belongs to Next.
	seal seal
	// serving counts workers and flushes. ctx bounds their calls: it ends a while after the session.
	serving sync.WaitGroup
	ctx     context.Context //nolint:containedctx // the session's own life, not a call's
	cancel  context.CancelFunc

	// mu guards what follows, and the workers. No call of the store is made under it.
	mu sync.Mutex
	// core's state is Draining while the session takes no more partitions and ends once it has none.
	core stream.Core
	credits
	// workers are those of the partitions that are leased, by partition. turnOf is the one whose messages are sent next.
	workers map[int]*worker
	turnOf  int
	// assigned is set when the consumer is to be told its partitions. welcomed is set once it was told at all.
	assigned, welcomed bool
	serial             uint64
	// nextDue is no later than the first ack deadline.
	nextDue time.Time
}

func newSession(h *Hub, r OpenRequest, id stream.Identity) *Session {
	s := &Session{
		request: r, hub: h, seal: newSeal(h.cfg.Secret, id.ID, r.Topic, r.Group), workers: map[int]*worker{},
		credits: credits{messages: r.MaxMessages, bytes: r.MaxBytes},
	}
	s.core = stream.NewCore(id, h.cfg.HeartbeatInterval, &s.mu, s.onTimer)
	s.ctx, s.cancel = context.WithCancel(h.ctx)
	return s
}

// ID returns the stream's id; see stream.Identity.
func (s *Session) ID() string { return s.core.ID }

// AckTimeout is how long a delivery may go unsettled.
func (s *Session) AckTimeout() time.Duration { return s.request.AckTimeout }

// Close ends the session. What it had goes to other members, soon and in the background; Next fails with LEASE_LOST. Safe twice.
func (s *Session) Close() { s.end(leaseLost()) }

// end ends the session, unless it has ended already.
func (s *Session) end(cause *fault.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(cause)
}

// fail is end under mu.
func (s *Session) fail(cause *fault.Error) {
	if !s.core.End(cause) {
		return
	}
	for _, w := range s.workers {
		w.poke()
	}
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
	s.hub.streams.Remove(s.core.ID)
}

// errLeft ends a session whose consumer asked for it. Next gives io.EOF.
var errLeft = leaseLost()

// drain has the session take no more, and end with cause once all that it holds is settled. Safe to repeat.
func (s *Session) drain(cause *fault.Error) {
	s.group.leaving(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.Drain(cause)
	for _, w := range s.workers {
		w.stop()
	}
	s.drained()
}

// drained ends a draining session that has nothing left.
func (s *Session) drained() {
	if s.core.State() == stream.Draining && len(s.workers) == 0 {
		s.fail(s.core.Cause())
	}
}

// takes reports whether the session takes part in its group.
func (s *Session) takes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.State() == stream.Live
}

// start serves a partition whose lease was got by a call that began at sent. It reports whether the session still wants it.
func (s *Session) start(lease Lease, sent time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.State() != stream.Live || s.workers[lease.Partition] != nil {
		return false
	}
	w := newWorker(s, lease, s.hub.until(sent))
	s.workers[lease.Partition] = w
	s.group.serves(w)
	s.hub.metrics.Owned(lease.Topic, lease.Group, 1)
	s.assigned = true
	s.core.Wake()
	s.serving.Go(w.run)
	return true
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

// due has the deadline of a delivery kept.
func (s *Session) due(deadline, now time.Time) {
	if s.nextDue.IsZero() || deadline.Before(s.nextDue) {
		s.nextDue = deadline
		s.core.Arm(deadline, now)
	}
}

// onTimer ends the session if its token has expired or an ack deadline has passed, and else sets the timer to the next of the two.
// The session's mu is held.
func (s *Session) onTimer(now time.Time) {
	if s.expired(now) {
		return
	}
	if !s.nextDue.IsZero() && !now.Before(s.nextDue) && s.overdue(now) {
		s.fail(fault.New(fault.Aborted, fault.AckTimeout, "a delivery was neither settled nor extended in time; consume again"))
		return
	}
	if !s.nextDue.IsZero() {
		s.core.Arm(s.nextDue, now)
	}
	if !s.core.Expires.IsZero() {
		s.core.Arm(s.core.Expires, now)
	}
}

// expired ends the session if its token has expired, and reports whether it has.
func (s *Session) expired(now time.Time) bool {
	if !s.core.Expired(now) {
		return false
	}
	s.fail(stream.TokenExpired())
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
