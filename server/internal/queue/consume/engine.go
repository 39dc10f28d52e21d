package consume

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/stream"
)

// partition names a partition of a topic.
type partition struct {
	topic  string
	number int
}

// engine runs everything about the consumers of one group name on this node: their sessions, and the
// dispatchers of the partitions that the node holds, of all topics. One goroutine owns all of it, so
// that a session's limits hold across partitions and topics without locks. What others want done
// they post.
type engine struct {
	svc   *Service
	group string
	run   *lifecycle.Run

	mu   sync.Mutex // guards mail
	mail []func(now time.Time)
	wake chan struct{}

	// The engine's goroutine owns the fields below.
	sessions map[string]*session
	holders  map[partition]*holder
	// order is the order in which holders step; it rotates.
	order  []*holder
	topics map[string]*topic
	logged time.Time
}

func newEngine(svc *Service, group string, run *lifecycle.Run) *engine {
	return &engine{
		svc: svc, group: group, run: run, wake: make(chan struct{}, 1),
		sessions: map[string]*session{}, holders: map[partition]*holder{}, topics: map[string]*topic{},
	}
}

// post has fn called on the engine's goroutine. It does not block.
func (e *engine) post(fn func(now time.Time)) {
	e.mu.Lock()
	e.mail = append(e.mail, fn)
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// postAfter posts fn after a wait.
func (e *engine) postAfter(wait time.Duration, fn func(now time.Time)) {
	if wait == 0 {
		e.post(fn)
		return
	}
	time.AfterFunc(wait, func() { e.post(fn) })
}

// work runs the engine until ctx ends.
func (e *engine) work(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-e.wake:
		case <-timer.C:
		case <-ctx.Done():
			e.stop()
			return
		}
		e.mu.Lock()
		mail := e.mail
		e.mail = nil
		e.mu.Unlock()
		for _, fn := range mail {
			fn(time.Now())
		}
		if next := e.step(time.Now()); !next.IsZero() {
			timer.Reset(max(0, time.Until(next)))
		} else {
			timer.Reset(time.Hour)
		}
	}
}

// step lets all dispatchers work, each time beginning with another one: what ends in one partition
// makes room for messages of another.
func (e *engine) step(now time.Time) (next time.Time) {
	if len(e.order) > 1 {
		e.order = append(e.order[1:], e.order[0])
	}
	for _, h := range slices.Clone(e.order) {
		next = earliest(next, h.step(now))
	}
	for _, t := range e.topics {
		next = earliest(next, t.step(now))
	}
	return next
}

// stop ends all streams and all holders. It does not release the leases.
func (e *engine) stop() {
	for _, s := range e.sessions {
		e.forget(s)
		if s.stream != nil {
			s.stream.end(stream.ShuttingDown())
		}
	}
	for _, h := range slices.Clone(e.order) {
		h.end(nil)
	}
	for _, t := range e.topics {
		t.close()
	}
}

// dispatchConfig returns the settings of a dispatcher.
func (e *engine) dispatchConfig(ref qlog.GroupRef) dispatch.Config {
	t := e.topics[ref.Topic]
	if t == nil || t.settings == nil {
		return dispatch.Config{Group: ref.Group, Paused: true, Random: rand.Int64N}
	}
	g := t.settings.Group(ref.Group)
	if g == nil {
		return dispatch.Config{Group: ref.Group, Paused: true, Random: rand.Int64N}
	}
	return dispatch.Config{
		Group: g.Name, Order: dispatch.Order(g.Order), Exclusive: g.Mode == qlog.Exclusive, Paused: g.Paused,
		MaxAttempts: g.Retry.MaxAttempts, MinBackoff: g.Retry.MinBackoff, MaxBackoff: g.Retry.MaxBackoff,
		NonRetryable: g.Retry.NonRetryable, AckTimeout: g.AckTimeout, Timeout: g.Timeout, MaxRunTime: g.MaxRunTime,
		DeleteSettled: len(t.settings.Groups) == 1 && t.settings.RetainAge == 0, Random: rand.Int64N,
	}
}

// deliver hands deliveries to their sessions' streams.
func (e *engine) deliver(ref qlog.GroupRef, deliveries []dispatch.Delivery) {
	bySession := map[*session][]Delivery{}
	for i := range deliveries {
		d := &deliveries[i]
		token := Token{ref.Topic, ref.Partition, d.Entry.ID, d.Gen}
		s := e.sessions[d.Session]
		if s == nil {
			continue // its grace runs in the dispatcher
		}
		s.held[token] = &heldDelivery{messageID: d.Entry.MessageID, since: time.Now(), begun: !s.reportsBegun}
		bySession[s] = append(bySession[s], Delivery{
			Token: token, MessageID: d.Entry.MessageID, Body: d.Body, Attempt: d.Attempt,
			ProducedAt: d.Entry.ProducedAt, Timeout: d.Timeout,
		})
	}
	for s, batch := range bySession {
		if s.stream == nil || !s.stream.deliver(batch) {
			for i := range batch {
				e.release(s, batch[i].Token)
			}
		}
	}
}

// release returns a delivery that the consumer never got to the dispatcher.
func (e *engine) release(s *session, token Token) {
	delete(s.held, token)
	if h := e.holders[partition{token.Topic, token.Partition}]; h != nil && h.phase == serving {
		h.d.Settle(time.Now(), dispatch.Settlement{ID: token.ID, Gen: token.Gen, Session: s.id, Verdict: dispatch.Release})
		e.post(func(time.Time) {}) // another step
	}
}

// lose tells a session about a delivery that it no longer has.
func (e *engine) lose(ref qlog.GroupRef, end dispatch.Ended) {
	s := e.sessions[end.Session]
	if s == nil {
		return
	}
	token := Token{ref.Topic, ref.Partition, end.ID, end.Gen}
	delete(s.held, token)
	if s.stream == nil || end.Why == dispatch.EndedReleased {
		return
	}
	cause := CauseNoContact
	switch end.Why {
	case dispatch.EndedTimeout:
		cause = CauseAckTimeout
	case dispatch.EndedCancelled:
		cause = CauseCancelled
	case dispatch.EndedLost, dispatch.EndedReleased:
	}
	s.stream.lose(Lost{[]Token{token}, cause})
}

// heldAnswer takes up what a dispatcher says about a delivery that a session reported.
func (e *engine) heldAnswer(ref qlog.GroupRef, a dispatch.HeldAnswer) {
	if !a.Kept {
		e.lose(ref, dispatch.Ended{Session: a.Session, ID: a.ID, Gen: a.Gen, Why: dispatch.EndedLost})
	}
}

// doubtTime is how long entries in doubt wait for a session to report them: not at all if no other
// node can have one.
func (e *engine) doubtTime(ref qlog.GroupRef) time.Duration {
	t := e.topics[ref.Topic]
	if t == nil || t.settings == nil || t.alone {
		return 0
	}
	if g := t.settings.Group(ref.Group); g != nil {
		return g.ResumeGrace + 5*time.Second
	}
	return 0
}

// lookTime is how often holders look for messages without a hint.
func (e *engine) lookTime() time.Duration {
	if e.svc.cfg.Hints == nil || !e.svc.cfg.Hints.Connected() {
		return lookEvery / 60
	}
	return lookEvery/2 + rand.N(lookEvery/2)
}

// ended removes a holder that has ended.
func (e *engine) ended(h *holder) {
	delete(e.holders, partition{h.ref.Topic, h.ref.Partition})
	e.order = slices.DeleteFunc(e.order, func(other *holder) bool { return other == h })
	e.changed(h.ref.Topic)
}

// changed has the leases of a topic looked at soon.
func (e *engine) changed(name string) {
	if t := e.topics[name]; t != nil {
		t.review = time.Now()
	}
}

// trouble logs a failed call of the store, one a second: a store that is away fails for every
// partition.
func (e *engine) trouble(what string, err error) {
	if now := time.Now(); now.Sub(e.logged) >= time.Second {
		e.logged = now
		e.svc.cfg.Logger.Warn("the consumers of a queue retry", slog.String("group", e.group), slog.String("call", what),
			slog.Any("error", err))
	}
}

// forget removes a session.
func (e *engine) forget(s *session) {
	delete(e.sessions, s.id)
	if s.grace != nil {
		s.grace.Stop()
	}
	for _, name := range s.topics {
		if t := e.topics[name]; t != nil {
			t.leave(s)
		}
	}
}

// settle ends deliveries of a session.
func (e *engine) settle(now time.Time, sessionID string, items []Settlement, c *call) {
	for i := range items {
		it := &items[i]
		h := e.holders[partition{it.Token.Topic, it.Token.Partition}]
		if h == nil || h.phase != serving {
			c.done(i, errMoved)
			continue
		}
		p := &pending{c, i, sessionID, it.Token}
		h.calls[p] = true
		h.d.Settle(now, dispatch.Settlement{
			ID: it.Token.ID, Gen: it.Token.Gen, Session: sessionID, Verdict: it.Verdict, Delay: it.Delay,
			Code: it.Code, Reason: it.Reason, Token: p,
		})
	}
}

// dropped notes that a session no longer has a delivery. Until a settlement is durable the session has
// it: the next holder of the lease must be told.
func (e *engine) dropped(sessionID string, token Token) {
	if s := e.sessions[sessionID]; s != nil {
		delete(s.held, token)
		e.finishLeaving(s)
	}
}

// extend restarts the ack timeouts of deliveries, and notes that handlers began them.
func (e *engine) extend(now time.Time, sessionID string, tokens []Token, begun bool, c *call) {
	s := e.sessions[sessionID]
	for i, token := range tokens {
		h := e.holders[partition{token.Topic, token.Partition}]
		if h == nil || h.phase != serving {
			c.done(i, errMoved)
			continue
		}
		m := dispatch.Mark{ID: token.ID, Gen: token.Gen}
		ok := h.d.Extend(now, sessionID, m)
		if begun {
			ok = h.d.Begun(now, sessionID, m)
			if s != nil && s.held[token] != nil {
				s.held[token].begun = true
			}
		}
		if ok {
			c.done(i, nil)
		} else {
			c.done(i, settleError(dispatch.ErrLost))
		}
	}
}

// finishLeaving ends the session of a consumer that left and holds nothing more.
func (e *engine) finishLeaving(s *session) {
	if s.state != Leaving || len(s.held) > 0 {
		return
	}
	e.forget(s)
	if s.stream != nil {
		s.stream.end(errLeft)
	}
}
