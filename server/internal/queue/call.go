package queue

import (
	"context"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// StreamRef names a live consumer stream and who calls about it. Subject, Topic and Group must be those that it was opened
// with.
type StreamRef struct {
	StreamID, Subject, Topic, Group string
}

// Nack gives one delivery back.
type Nack struct {
	// Token is the delivery's.
	Token string
	// Reason and Code say why, for people and for the topic's list of codes that are not retried; both may be empty.
	Reason, Code string
	// Delay is the time until the next attempt; nil means the topic's backoff.
	Delay *time.Duration
	// DeadLetter ends the delivery in the dead letters. Release hands it on at once and does not count the attempt.
	DeadLetter, Release bool
}

// Ack settles deliveries of a stream of this node as done and waits for the store. It returns one error per token, in order:
//   - nil if the delivery is settled, also if it was before in the same way;
//   - DELIVERY_TOKEN_INVALID if the token was not issued to this stream for this topic and group;
//   - LEASE_LOST if the stream or its lease is gone;
//   - ALREADY_SETTLED if the delivery was settled otherwise;
//   - OUTCOME_UNKNOWN or STORE_UNAVAILABLE if the store did not answer in time; the same call may be repeated.
//
// The error beside them is LEASE_LOST, for a call without tokens about a stream that is gone. The field of a fault is that
// of one item.
func (h *Hub) Ack(ctx context.Context, ref StreamRef, tokens []string) ([]error, error) {
	s, bodies, errs := h.unseal(ref, tokens)
	if s == nil {
		return streamGone(errs)
	}
	return s.settleAll(ctx, bodies, errs, func(int, RetryPolicy) Settlement { return Settlement{Verdict: Ack} }), nil
}

// Nack gives deliveries of a stream of this node back and waits for the store. It returns the errors that Ack does, and
// INVALID_FIELD for an item whose parts contradict each other or exceed their limits.
func (h *Hub) Nack(ctx context.Context, ref StreamRef, items []Nack) ([]error, error) {
	tokens := make([]string, len(items))
	for i := range items {
		tokens[i] = items[i].Token
	}
	s, bodies, errs := h.unseal(ref, tokens)
	if s == nil {
		return streamGone(errs)
	}
	for i := range items {
		if errs[i] == nil {
			errs[i] = items[i].check()
		}
	}
	return s.settleAll(ctx, bodies, errs, func(i int, policy RetryPolicy) Settlement {
		return items[i].settlement(policy, bodies[i].attempt)
	}), nil
}

// Extend moves the ack deadlines of deliveries of a stream of this node to timeout from now; 0 means the stream's own ack
// timeout, and no tokens mean all deliveries that the stream holds. It returns the errors that Ack does; one for the call as
// a whole means that nothing was changed.
func (h *Hub) Extend(ctx context.Context, ref StreamRef, tokens []string, timeout time.Duration) ([]error, error) {
	s, bodies, errs := h.unseal(ref, tokens)
	if s == nil {
		return streamGone(errs)
	}
	return s.extend(ctx, timeout, bodies, errs)
}

// Grant grants credits to a stream of this node: how many messages and bytes it may be sent in all since it was opened. It
// fails with LEASE_LOST if the stream is gone.
func (h *Hub) Grant(_ context.Context, ref StreamRef, totalMessages, totalBytes int64) error {
	s := h.session(ref)
	if s == nil {
		return leaseLost()
	}
	return s.grant(totalMessages, totalBytes)
}

// Leave has the consumer of a stream of this node leave its group: it is sent nothing more, and the stream ends once nothing
// of it is in flight. It fails with LEASE_LOST if the stream is gone; a repeated call changes nothing.
func (h *Hub) Leave(_ context.Context, ref StreamRef) error {
	s := h.session(ref)
	if s == nil {
		return leaseLost()
	}
	s.drain(errLeft)
	return nil
}

// unseal opens the tokens of a call about a stream. errs has the errors of tokens that are false, or of all if the stream is
// gone, and then s is nil.
func (h *Hub) unseal(ref StreamRef, tokens []string) (s *Session, bodies []tokenBody, errs []error) {
	s = h.session(ref)
	bodies, errs = make([]tokenBody, len(tokens)), make([]error, len(tokens))
	seal := newSeal(h.cfg.Secret, ref.StreamID, ref.Topic, ref.Group)
	for i, token := range tokens {
		body, ok := seal.open(token)
		bodies[i] = body
		switch {
		case !ok:
			errs[i] = falseToken()
		case s == nil:
			errs[i] = leaseLost()
		}
	}
	return s, bodies, errs
}

// streamGone returns the results of a call about deliveries of a stream that is gone.
func streamGone(errs []error) ([]error, error) {
	if len(errs) == 0 {
		return nil, leaseLost()
	}
	return errs, nil
}

// session returns the session of a stream, or nil if it has ended or is not the caller's.
func (h *Hub) session(ref StreamRef) *Session {
	s, ok := h.streams.Find(ref.StreamID, ref.Subject)
	if !ok || s.request.Topic != ref.Topic || s.request.Group != ref.Group {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.Ended() {
		return nil
	}
	return s
}

// check returns INVALID_FIELD if the parts of a nack contradict each other or exceed their limits.
func (it *Nack) check() error {
	switch {
	case it.Release && (it.DeadLetter || it.Delay != nil || it.Reason != "" || it.Code != ""):
		return fault.Invalid("release", 0, "release: must not have a reason, a code or another outcome")
	case it.Delay != nil && (*it.Delay < 0 || *it.Delay > MaxDelay):
		return fault.Invalid("retry.delay", int64(MaxDelay/time.Second), "retry.delay: must be from 0 to %d s", MaxDelay/time.Second)
	default:
		return nil
	}
}

// settleAll settles the items that have no error yet, as settlement says, and waits for each.
func (s *Session) settleAll(
	ctx context.Context, tokens []tokenBody, errs []error, settlement func(i int, policy RetryPolicy) Settlement,
) []error {
	p := newPendingCall(len(errs))
	s.mu.Lock()
	policy := s.group.topic.Load().Retry
	for i := range tokens {
		if errs[i] != nil {
			p.set(i, errs[i])
			continue
		}
		w, d, err := s.find(&tokens[i])
		what := settlement(i, policy)
		switch {
		case err != nil:
			p.set(i, err)
		case d == nil && w.given.class[tokens[i].serial] == what.Verdict.class():
			p.set(i, nil)
		case d == nil:
			p.set(i, alreadySettled())
		default:
			op := d.op
			if op == nil {
				op = w.settle(d, what)
			}
			other := op.Verdict.class() != what.Verdict.class()
			op.waiters = append(op.waiters, waiter{call: p, item: i, other: other})
		}
	}
	s.mu.Unlock()
	select {
	case <-p.done:
		return p.errs
	case <-ctx.Done():
	}
	return s.unfinished(p, ctx.Err())
}

// unfinished gives the results so far of a call whose caller waits no longer. What it began goes on.
func (s *Session) unfinished(p *pendingCall, cause error) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := make([]error, len(p.errs))
	for i := range errs {
		if errs[i] = p.errs[i]; !p.told[i] {
			errs[i] = notTold(true, cause)
		}
	}
	return errs
}

// find finds the delivery of a token; it is nil if it was settled. The session's mu is held.
func (s *Session) find(t *tokenBody) (*worker, *delivery, error) {
	w := s.workers[t.partition]
	if s.core.Ended() || w == nil || w.lost || w.lease.Epoch != t.epoch {
		return nil, nil, leaseLost()
	}
	if d := w.inFlight[entryKey{t.place, t.id}]; d != nil && d.serial == t.serial {
		return w, d, nil
	}
	return w, nil, nil
}

// settlement returns what a nack asks for.
func (it *Nack) settlement(policy RetryPolicy, attempt int) Settlement {
	switch {
	case it.Release:
		return Settlement{Verdict: Release}
	case it.DeadLetter || policy.Final(attempt, it.Code):
		return Settlement{Verdict: Dead, Reason: it.Reason, Code: it.Code}
	case it.Delay != nil:
		return Settlement{Verdict: Retry, Delay: *it.Delay, Reason: it.Reason, Code: it.Code}
	default:
		return Settlement{Verdict: Retry, Delay: policy.Backoff(attempt), Reason: it.Reason, Code: it.Code}
	}
}

// extend moves deadlines of the items that have no error yet, or of all.
func (s *Session) extend(ctx context.Context, timeout time.Duration, tokens []tokenBody, errs []error) ([]error, error) {
	if err := s.assure(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.Ended() {
		if len(tokens) == 0 {
			return nil, leaseLost()
		}
	}
	now := time.Now()
	if timeout == 0 {
		timeout = s.request.AckTimeout
	}
	deadline := now.Add(timeout)
	if len(tokens) == 0 {
		for _, w := range s.workers {
			for _, d := range w.inFlight {
				d.deadline = deadline
			}
		}
	}
	for i := range tokens {
		if errs[i] != nil {
			continue
		}
		_, d, err := s.find(&tokens[i])
		switch {
		case err != nil:
			errs[i] = err
		case d == nil:
			errs[i] = alreadySettled()
		default:
			d.deadline = deadline
		}
	}
	s.due(deadline, now)
	return errs, nil
}

// assure makes sure of the leases that may have ended meanwhile: this node may have been stopped, and a deadline must not be moved
// that is another's by now. Those that have ended are lost when it returns.
func (s *Session) assure(ctx context.Context) error {
	s.mu.Lock()
	var doubtful []*worker
	now := time.Now()
	for _, w := range s.workers {
		if !now.Before(w.until) {
			doubtful = append(doubtful, w)
		}
	}
	s.mu.Unlock()
	if len(doubtful) == 0 {
		return nil
	}
	ctx, cancel := s.hub.call(ctx)
	defer cancel()
	if err := s.hub.renew(ctx, doubtful); err != nil {
		return notTold(false, err)
	}
	return nil
}
