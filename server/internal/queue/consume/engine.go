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
	// asked is when the service last returned the engine. The service's mutex guards it.
	asked time.Time

	mu   sync.Mutex // guards mail
	mail []func(now time.Time)
	wake chan struct{}

	// The engine's goroutine owns the fields below.
	sessions map[string]*session
	// moved are sessions that other nodes have now: see handOver.
	moved map[string]*session
	// remotes are sessions of other nodes, peers the nodes, seen the deliveries that came from them.
	remotes  map[string]*remoteSession
	peers    map[string]*peer
	seen     seenDeliveries
	nextTick time.Time
	holders  map[partition]*holder
	// order is the order in which holders step; it rotates.
	order  []*holder
	topics map[string]*topic
	logged time.Time
	// draining: the node stops, so that leases are released and none is acquired.
	draining bool
	// cutOff is since when this node may have lost its leases without knowing; zero if it would know.
	cutOff time.Time
	// idleSince is since when it has had nothing to do, zero if it has.
	idleSince time.Time
}

func newEngine(svc *Service, group string, run *lifecycle.Run) *engine {
	return &engine{
		svc: svc, group: group, run: run, wake: make(chan struct{}, 1),
		sessions: map[string]*session{}, moved: map[string]*session{}, remotes: map[string]*remoteSession{}, peers: map[string]*peer{},
		holders: map[partition]*holder{}, topics: map[string]*topic{},
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

// background runs fn, one call of the store or of another node, without the engine's goroutine.
func (e *engine) background(fn func(ctx context.Context)) {
	e.run.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		fn(ctx)
	})
}

// ask has fn called on the engine's goroutine, and returns its result.
func ask[T any](ctx context.Context, e *engine, fn func(now time.Time) T) (T, error) {
	answer := make(chan T, 1)
	e.post(func(now time.Time) { answer <- fn(now) })
	select {
	case a := <-answer:
		return a, nil
	case <-e.run.Context().Done():
		var none T
		return none, outcomeUnknown(lifecycle.ErrStopped)
	case <-ctx.Done():
		var none T
		return none, outcomeUnknown(ctx.Err())
	}
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
		next := e.step(time.Now())
		if e.mayRetire(time.Now()) && e.svc.retire(e) {
			return
		}
		if next.IsZero() {
			next = time.Now().Add(lingerFor)
		}
		timer.Reset(max(0, time.Until(next)))
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
	next = earliest(next, e.tick(now))
	e.flush()
	return next
}

// stop ends all streams and all holders. It does not release the leases.
func (e *engine) stop() {
	for _, s := range e.sessions {
		e.forget(time.Now(), s)
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
	var g *qlog.Group
	if t != nil && t.settings != nil {
		g = t.settings.Group(ref.Group)
	}
	if g == nil { // it is being deleted
		return dispatch.Config{Group: ref.Group, Paused: true, Random: rand.Int64N}
	}
	return dispatch.Config{
		Group: g.Name, Order: dispatch.Order(g.Order), Exclusive: g.Mode == qlog.Exclusive, Paused: g.Paused,
		MaxAttempts: g.Retry.MaxAttempts, MinBackoff: g.Retry.MinBackoff, MaxBackoff: g.Retry.MaxBackoff,
		NonRetryable: g.Retry.NonRetryable, AckTimeout: g.AckTimeout, Timeout: g.Timeout, MaxRunTime: g.MaxRunTime,
		DeleteSettled: len(t.settings.Groups) == 1 && t.settings.RetainAge == 0, Random: rand.Int64N,
	}
}

// deliver hands deliveries to their sessions' streams, or to the front nodes of the sessions.
func (e *engine) deliver(h *holder, deliveries []dispatch.Delivery) {
	bySession := map[*session][]Delivery{}
	now := time.Now()
	for i := range deliveries {
		d := &deliveries[i]
		token := Token{h.ref.Topic, h.ref.Partition, d.Entry.ID, d.Gen}
		out := Delivery{
			Token: token, MessageID: d.Entry.MessageID, Body: d.Body, Attempt: d.Attempt,
			ProducedAt: d.Entry.ProducedAt, Timeout: d.Timeout, Suspect: d.Suspect,
		}
		s := e.sessions[d.Session]
		if s == nil {
			if !e.sendRemote(d.Session, h.epoch, out) {
				h.release(d.Session, token)
			}
			continue
		}
		s.held[token] = &heldDelivery{
			messageID: d.Entry.MessageID, since: now, size: int64(len(d.Body)), begun: !s.ReportsBegun, suspect: d.Suspect,
		}
		bySession[s] = append(bySession[s], out)
	}
	for s, batch := range bySession {
		if s.stream == nil || !s.stream.deliver(batch) {
			for i := range batch {
				e.release(s, batch[i].Token)
			}
		}
	}
}

// release returns a delivery that the consumer never got to its dispatcher.
func (e *engine) release(s *session, token Token) {
	s.drop(token)
	if h := e.holders[token.partition()]; h != nil && h.phase == serving {
		h.release(s.ID, token)
		return
	}
	// The holder is elsewhere, or is not known yet.
	now := time.Now()
	t := &settleTask{session: s.ID, from: e.svc.cfg.Node, items: []Settlement{{Token: token, Verdict: dispatch.Release}}}
	e.route(now, &errand{call: newCall(1), task: t, at: token.partition(), items: []int{0}, until: now.Add(releaseTime)})
}

// lose tells a session about a delivery that it no longer has.
func (e *engine) lose(ref qlog.GroupRef, end dispatch.Ended) {
	token := Token{ref.Topic, ref.Partition, end.ID, end.Gen}
	cause := CauseNoContact
	switch end.Why {
	case dispatch.EndedTimeout:
		cause = CauseAckTimeout
	case dispatch.EndedMaxRunTime:
		cause = CauseMaxRunTime
	case dispatch.EndedCancelled:
		cause = CauseCancelled
	case dispatch.EndedReleased:
		cause = 0
	case dispatch.EndedLost:
	}
	s := e.sessions[end.Session]
	if s == nil {
		e.endRemote(end.Session, token, cause)
		return
	}
	s.drop(token)
	if s.stream != nil && cause != 0 {
		s.stream.lose(Lost{[]Token{token}, cause})
	}
}

// heldAnswer takes up what a dispatcher says about a delivery that a session reported.
func (e *engine) heldAnswer(ref qlog.GroupRef, a dispatch.HeldAnswer) {
	switch {
	case a.Kept:
	case a.Settled:
		e.dropped(a.Session, "", Token{ref.Topic, ref.Partition, a.ID, a.Gen})
	default:
		e.lose(ref, dispatch.Ended{Session: a.Session, ID: a.ID, Gen: a.Gen, Why: dispatch.EndedLost})
	}
}

// lookTime is how often holders look for messages without a hint.
func (e *engine) lookTime() time.Duration {
	if e.svc.cfg.Hints == nil || !e.svc.cfg.Hints.Connected() {
		return lookEvery / 60
	}
	return lookEvery/2 + rand.N(lookEvery/2)
}

// ended removes a holder that has ended.
func (e *engine) ended(now time.Time, h *holder, err error) {
	delete(e.holders, h.at())
	e.order = slices.DeleteFunc(e.order, func(other *holder) bool { return other == h })
	t := e.topics[h.ref.Topic]
	if t == nil {
		return
	}
	t.doubtHolder(now, h.ref.Partition, e.svc.cfg.Node)
	if err != nil || !e.draining {
		t.reviewSoon(now)
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

// do begins to execute a task for n items, each at the partition that at returns.
func (e *engine) do(now time.Time, c *call, t task, n int, at func(i int) partition) {
	for _, x := range errands(now, c, t, n, at) {
		e.route(now, x)
	}
}

// dropped notes that a session no longer has a delivery, because it was settled. From is the node that
// the settlement came to.
func (e *engine) dropped(sessionID, from string, token Token) {
	if s := e.sessions[sessionID]; s != nil {
		s.drop(token)
		e.finishLeaving(time.Now(), s)
		return
	}
	if rs := e.remotes[sessionID]; rs != nil && rs.node != from && !rs.Loose {
		e.endRemote(sessionID, token, 0)
	}
}
