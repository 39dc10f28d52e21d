package queue

import (
	"context"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// CallKind says what a Call is.
type CallKind uint8

// The kinds of calls. Their numbers travel between nodes.
const (
	AckCall CallKind = iota + 1
	NackCall
	ExtendCall
	CreditsCall
	LeaveCall
)

// CallItem is what a Call says about one delivery: its Token, and of a nack what else.
type CallItem struct {
	Token, Reason, Code string
	// Delay is when to try again; nil is the topic's backoff.
	Delay               *time.Duration
	DeadLetter, Release bool
}

// Call is something that a session's consumer asks of it. Subject must be the one that opened it.
type Call struct {
	Kind                            CallKind
	StreamID, Subject, Topic, Group string
	// Items are the deliveries. An ExtendCall without any is about all that the session holds.
	Items []CallItem
	// AckTimeout is ExtendCall's; 0 is the session's.
	AckTimeout time.Duration
	// TotalMessages and TotalBytes are CreditsCall's running totals.
	TotalMessages, TotalBytes int64
}

// Do settles or extends deliveries of a session of this node, grants it credits or has it leave. It gives one error per item, nil where
// it is done; the error beside them is of the call as a whole.
//
// An item fails with DELIVERY_TOKEN_INVALID if its token was not given to this session for this topic and group, LEASE_LOST if the
// session or its lease is gone, ALREADY_SETTLED if it was settled otherwise, and OUTCOME_UNKNOWN or STORE_UNAVAILABLE if the store
// did not answer in time: then the same call may be repeated. What was settled the same way before is done. A call without items fails
// as a whole with LEASE_LOST where there is no such session. The field of an item's fault is the item's own: where that stands in
// a request, the caller knows.
func (h *Hub) Do(ctx context.Context, c Call) ([]error, error) {
	if c.Kind < AckCall || c.Kind > LeaveCall {
		return nil, fault.New(fault.InvalidArgument, fault.MalformedRequest, "this node does not know such a call") // it is an older one
	}
	s := h.session(&c)
	if c.Kind == CreditsCall || c.Kind == LeaveCall {
		if s == nil {
			return nil, leaseLost()
		}
		if c.Kind == LeaveCall {
			s.drain(errLeft)
			return nil, nil
		}
		return nil, s.grant(c.TotalMessages, c.TotalBytes)
	}
	errs := make([]error, len(c.Items))
	tokens := make([]tokenBody, len(c.Items))
	seal := newSeal(h.cfg.Secret, c.StreamID, c.Topic, c.Group)
	for i := range c.Items {
		t, ok := seal.open(c.Items[i].Token)
		switch {
		case !ok:
			errs[i] = falseToken()
		case s == nil:
			errs[i] = leaseLost()
		default:
			errs[i] = c.Items[i].check()
		}
		tokens[i] = t
	}
	switch {
	case s == nil && len(c.Items) == 0:
		return nil, leaseLost()
	case s == nil:
		return errs, nil
	case c.Kind == ExtendCall:
		return s.extend(ctx, &c, tokens, errs)
	default:
		return s.settleAll(ctx, &c, tokens, errs), nil
	}
}

// session finds the session that a call is to, unless it has ended. Another's is as good as none.
func (h *Hub) session(c *Call) *Session {
	s, ok := h.streams.Find(c.StreamID, c.Subject)
	if !ok || s.request.Topic != c.Topic || s.request.Group != c.Group {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.Ended() {
		return nil
	}
	return s
}

// check holds a nack's parts against each other and their limits.
func (it *CallItem) check() error {
	switch {
	case it.Release && (it.DeadLetter || it.Delay != nil || it.Reason != "" || it.Code != ""):
		return fault.Invalid("release", 0, "release: must not have a reason, a code or another outcome")
	case it.Delay != nil && (*it.Delay < 0 || *it.Delay > MaxDelay):
		return fault.Invalid("retry.delay", int64(MaxDelay/time.Second), "retry.delay: must be from 0 to %d s", MaxDelay/time.Second)
	default:
		return nil
	}
}

// settleAll settles the items that have no error yet, and waits for each.
func (s *Session) settleAll(ctx context.Context, c *Call, tokens []tokenBody, errs []error) []error {
	p := newPendingCall(len(errs))
	s.mu.Lock()
	policy := s.group.topic.Load().Retry
	for i := range tokens {
		if errs[i] != nil {
			p.set(i, errs[i])
			continue
		}
		w, d, err := s.find(&tokens[i])
		what := c.Items[i].settlement(c.Kind, policy, tokens[i].attempt)
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

// settlement says what a call asks for.
func (it *CallItem) settlement(kind CallKind, policy RetryPolicy, attempt int) Settlement {
	switch {
	case kind == AckCall:
		return Settlement{Verdict: Ack}
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
func (s *Session) extend(ctx context.Context, c *Call, tokens []tokenBody, errs []error) ([]error, error) {
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
	timeout := c.AckTimeout
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
