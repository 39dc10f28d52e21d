package queue

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// defaultGrace is the resume grace if the server sends none.
const defaultGrace = 10 * time.Second

// session is the worker's registration with the server. It is guarded by the run's lock.
type session struct {
	id string
	// resumes counts the streams that were requested for the session after its first one.
	resumes int64
	// tasks are the deliveries that the worker holds, by token.
	tasks map[string]*task
	// grace is how long the server keeps the deliveries without contact. contact is the latest time
	// at which contact is known to have been confirmed: no later than it was.
	grace   time.Duration
	contact time.Time
	// extended is when the deliveries were last extended: those that came later need it later.
	extended time.Time
	// watch checks whether the grace has passed since the contact. armed is false while nothing is
	// held and watch is not running.
	watch *time.Timer
	armed bool
}

// heldLocked returns the tasks of the current session.
func (r *run) heldLocked() []*task {
	if r.session == nil {
		return nil
	}
	all := make([]*task, 0, len(r.session.tasks))
	for _, t := range r.session.tasks {
		all = append(all, t)
	}
	return all
}

// requestLocked returns the request for the next stream: to resume the session if there is one,
// else to start one. verdicts are the tasks of the request's unanswered verdicts, in order.
func (r *run) requestLocked() (req *parleyv1.ConsumeRequest, verdicts []*task) {
	cfg := &r.w.cfg
	req = &parleyv1.ConsumeRequest{
		Topics: r.topics, Group: r.w.group, Consumer: cfg.consumer,
		Concurrency: int32(cfg.concurrency), MaxInFlight: int32(cfg.messages), //nolint:gosec // at most 10,000
		MaxInFlightBytes: cfg.bytes, AckTimeout: durationpb.New(cfg.ackTimeout), ReportsBegun: true,
	}
	if cfg.messages > 0 {
		req.MaxInFlight = max(req.GetMaxInFlight(), req.GetConcurrency())
	}
	s := r.session
	if s == nil {
		return req, nil
	}
	s.resumes++
	r.marks.pending = nil // the request has them
	req.Resume = &parleyv1.Resume{SessionId: s.id, Resumes: s.resumes}
	for _, t := range s.tasks {
		switch t.stage {
		case settling:
			t.sent++
			verdicts = append(verdicts, t)
			one := &parleyv1.UnansweredVerdict{Verdict: &parleyv1.UnansweredVerdict_Ack{Ack: t.token}}
			if t.nack != nil {
				one.Verdict = &parleyv1.UnansweredVerdict_Nack{Nack: t.nack}
			}
			req.Resume.Unanswered = append(req.Resume.Unanswered, one)
		case waiting, begun:
			req.Resume.Held = append(req.Resume.Held, &parleyv1.HeldDelivery{Token: t.token, Begun: t.stage == begun})
		case over:
		}
	}
	return req, verdicts
}

// started records the first frame of a stream, which is the current one from then on. It returns
// false if the stream's session is not the run's any more.
func (r *run) started(s *stream, first *parleyv1.SessionStarted) bool {
	r.mu.Lock()
	var at time.Time // a resumed session's contact is confirmed by the heartbeats
	if s.session == nil && r.session == nil && !r.closed {
		at = s.asked
		s.session = &session{id: first.GetSessionId(), tasks: make(map[string]*task), extended: time.Now()}
		r.session = s.session
		r.w.counts.sessions.Add(1)
	}
	if r.opening == s {
		r.opening = nil
	}
	r.notifyLocked()
	if s.session == nil || s.session != r.session {
		r.mu.Unlock()
		return false
	}
	s.session.grace = s.grace
	r.mu.Unlock()
	if !r.confirm(s.session, at) {
		return false
	}
	r.lose(s.session, first.GetLost())
	_, _ = r.answered(s.verdicts, first.GetUnanswered(), nil) // the outbox repeats those without a final answer
	r.mu.Lock()
	if r.session != s.session {
		r.mu.Unlock()
		return false
	}
	old := r.retiring
	r.current, r.retiring = s, nil
	r.mu.Unlock()
	if old != nil {
		old.abandon(retryable("the session continues on another stream"))
	}
	return true
}

// confirm records that contact was confirmed at a time, or that none was if that is zero. If none
// was confirmed for the grace time before now, the server may have ended the session. Then confirm
// ends it too and returns false: a process that was stopped may read a frame that was sent long
// ago.
func (r *run) confirm(s *session, at time.Time) bool {
	r.mu.Lock()
	if r.session != s {
		r.mu.Unlock()
		return false
	}
	if len(s.tasks) > 0 && age(s.contact) >= s.grace {
		r.mu.Unlock()
		r.giveUp(s, lost(noContact))
		return false
	}
	s.contactedLocked(at)
	r.mu.Unlock()
	return true
}

// contactedLocked records that contact was confirmed at a time. It does nothing if a later contact
// is known.
func (s *session) contactedLocked(at time.Time) {
	if now := time.Now(); at.After(now) {
		at = now
	}
	if at.After(s.contact) {
		s.contact = at
	}
}

// age returns the time since then, by the clock that says it is longer: the monotonic one may stand
// still while the computer sleeps, and the other one may be set.
func age(at time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(at), now.Round(0).Sub(at.Round(0)))
}

const noContact = "the session had no confirmed contact for its resume grace"

// hold adds tasks for deliveries to the stream's session. It returns false if that is not the run's
// any more. If the worker is stopping, the server returns the deliveries on its own.
func (r *run) hold(from *stream, deliveries []*parleyv1.Delivery) ([]*task, bool) {
	s := from.session
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session != s {
		return nil, false
	}
	r.w.counts.delivered.Add(int64(len(deliveries)))
	if r.stopping {
		r.w.counts.released.Add(int64(len(deliveries)))
		return nil, true
	}
	if len(s.tasks) == 0 {
		// What sent the first delivery knows of the contact as of then. It was sent after the last
		// heartbeat.
		s.contactedLocked(from.known)
	}
	tasks := make([]*task, 0, len(deliveries))
	for _, one := range deliveries {
		t := &task{d: newDelivery(r.w.group, one), token: one.GetToken(), session: s}
		s.tasks[t.token] = t
		tasks = append(tasks, t)
	}
	if !s.armed {
		s.armed = true
		if s.watch == nil {
			s.watch = time.AfterFunc(s.grace/lookParts, func() { r.checkContact(s) })
		} else {
			s.watch.Reset(s.grace / lookParts)
		}
	}
	return tasks, true
}

// lookParts is how often in a grace time the contact is checked. A check at its end would come late
// after the computer has slept, because timers stand still then.
const lookParts = 10

// checkContact ends the session if no contact was confirmed for its grace time.
func (r *run) checkContact(s *session) {
	r.mu.Lock()
	if r.session != s || len(s.tasks) == 0 {
		s.armed = false
		r.mu.Unlock()
		return
	}
	if left := s.grace - age(s.contact); left > 0 {
		s.watch.Reset(min(left, s.grace/lookParts))
		r.mu.Unlock()
		return
	}
	r.mu.Unlock()
	r.giveUp(s, lost(noContact))
}

// lose ends the tasks of deliveries that the server says are lost. A task that is settling goes on:
// the answer to its verdict reports the outcome.
func (r *run) lose(s *session, l *parleyv1.LostDeliveries) {
	if len(l.GetTokens()) > 0 {
		r.loseTokens(s, l.GetTokens(), lostBy(l.GetCause()))
	}
}

func (r *run) loseTokens(s *session, tokens []string, err error) {
	var gone []*task
	r.mu.Lock()
	for _, token := range tokens {
		if t := s.tasks[token]; t != nil && t.stage < settling {
			r.endLocked(t, err)
			gone = append(gone, t)
		}
	}
	r.mu.Unlock()
	r.report(gone, err)
}

// giveUp ends a session, or the current one if s is nil: its deliveries are lost, the contexts of
// their handlers end, and the next stream starts a new session. It does nothing if s is not the
// current session.
func (r *run) giveUp(s *session, err error) {
	r.mu.Lock()
	if r.session == nil || s != nil && r.session != s {
		r.mu.Unlock()
		return
	}
	gone := r.heldLocked()
	for _, t := range gone {
		r.endLocked(t, err)
	}
	if r.session.watch != nil {
		r.session.watch.Stop()
	}
	streams := []*stream{r.current, r.retiring, r.opening}
	r.session, r.current, r.retiring, r.opening = nil, nil, nil, nil
	r.notifyLocked()
	r.mu.Unlock()
	for _, one := range slices.DeleteFunc(streams, func(s *stream) bool { return s == nil }) {
		one.abandon(retryable("the session has ended: " + err.Error()))
	}
	r.report(gone, err)
}
