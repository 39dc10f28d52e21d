package consume

import (
	"cmp"
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// SessionState is the state of a session on its front node.
//
//	Attached  has a stream                       Detached (the stream ended); Leaving (Leave); Gone
//	Detached  has none, keeps what it holds      Attached (resume); Leaving (Leave); Gone (grace passed)
//	Leaving   settles what it has, gets no more  Gone when it holds nothing, or the grace passed
//	Gone      what it held goes to others        (forgotten)
type SessionState uint8

// The states; an operator never sees Gone.
const (
	Attached = SessionState(qlog.Attached)
	Detached = SessionState(qlog.Detached)
	Leaving  = SessionState(qlog.Leaving)
	Gone     = Leaving + 1
)

// reservedFor is how long room is kept for deliveries that another node promised.
const reservedFor = 5 * time.Second

// session is one consumer's registration on its front node. It belongs to the goroutine of its
// engine.
type session struct {
	SessionProfile

	subject string
	topics  []string
	state   SessionState
	// since is when the state began. contact is when the stream ended, if there is none.
	since, contact time.Time

	concurrency, maxInFlight int
	maxBytes                 int64
	// budget counts what the session has from all partitions, and what was promised.
	budget dispatch.Budget

	// stream is nil if the session has none.
	stream *Stream
	// held are the deliveries that the session has, as far as this node knows.
	held map[Token]*heldDelivery
	// promises is the room kept for deliveries that other nodes will send, the oldest first.
	promises []promise
	// confirmed is when each holder of deliveries last confirmed that it knows of the contact. tell are
	// those that must be told of a change.
	confirmed map[string]time.Time
	tell      map[string]bool
	// elsewhere counts the held deliveries that no dispatcher of this node has.
	elsewhere int
	// grace ends a session without a stream.
	grace *time.Timer
}

// heldDelivery is a delivery that a session has.
type heldDelivery struct {
	messageID      string
	since          time.Time
	size           int64
	begun, suspect bool
	// counted: it is counted in the budget by this engine, and not by a dispatcher of this node.
	counted bool
}

func (s *session) hasTopic(topic string) bool { return slices.Contains(s.topics, topic) }

// live reports whether the session can be given deliveries.
func (s *session) live() bool { return s.state == Attached && s.stream != nil }

// free is how many more messages idle handlers of the session can take, and of how many bytes.
func (s *session) free() (n int, bytes int64) {
	if !s.live() {
		return 0, 0
	}
	room := s.stream.room()
	for _, p := range s.promises {
		room -= p.bytes
	}
	n = min(s.concurrency-s.budget.Busy(), s.maxInFlight-s.budget.Held())
	if bytes = min(s.maxBytes-s.budget.Bytes(), room); bytes <= 0 {
		return 0, 0
	}
	return n, bytes
}

// promise is room for n deliveries of so many bytes together, until a time.
type promise struct {
	n     int
	bytes int64
	until time.Time
}

// promise keeps room for n deliveries of another node.
func (s *session) promise(now time.Time, n int, bytes int64) {
	s.promises = append(s.promises, promise{n, bytes, now.Add(reservedFor)})
	s.budget.Add(n, bytes, 0)
}

// unpromise frees the room for up to n deliveries, of the oldest promises first.
func (s *session) unpromise(n int) {
	for n > 0 && len(s.promises) > 0 {
		p := &s.promises[0]
		some := min(n, p.n)
		p.n, n = p.n-some, n-some
		s.budget.Add(-some, 0, 0)
		if p.n == 0 {
			s.budget.Add(0, -p.bytes, 0)
			s.promises = s.promises[1:]
		}
	}
}

// expirePromises frees room that was kept for too long, and reports whether there was any.
func (s *session) expirePromises(now time.Time) (expired bool) {
	for len(s.promises) > 0 && !now.Before(s.promises[0].until) {
		s.unpromise(s.promises[0].n)
		expired = true
	}
	return expired
}

// count counts a delivery in the budget, because no dispatcher of this node does.
func (s *session) count(d *heldDelivery) {
	if !d.counted {
		d.counted = true
		s.elsewhere++
		s.budget.Add(1, d.size, d.suspects())
	}
}

// uncount takes a delivery out of the budget.
func (s *session) uncount(d *heldDelivery) {
	if d.counted {
		d.counted = false
		s.elsewhere--
		s.budget.Add(-1, -d.size, -d.suspects())
	}
}

func (d *heldDelivery) suspects() int {
	if d.suspect {
		return 1
	}
	return 0
}

// drop notes that the session no longer has a delivery, and reports whether it had.
func (s *session) drop(token Token) bool {
	held := s.held[token]
	if held == nil {
		return false
	}
	s.uncount(held)
	delete(s.held, token)
	return true
}

// tellAll has all holders that know the session be told of a change.
func (s *session) tellAll() {
	for node := range s.confirmed {
		s.tell[node] = true
	}
}

// attach lets a session have messages of the holder's partition, as far as its state allows.
func (h *holder) attach(s *session) {
	if h.phase != serving || !s.hasTopic(h.ref.Topic) || !s.live() {
		return
	}
	h.d.Attach(dispatch.Session{
		ID: s.ID, Concurrency: s.concurrency, MaxInFlight: s.maxInFlight, MaxBytes: s.maxBytes,
		AckTimeout: s.AckTimeout, ReportsBegun: s.ReportsBegun, Loose: s.Loose, Budget: &s.budget,
	})
}

// serving calls fn with every holder in the phase serving.
func (e *engine) serving(fn func(h *holder)) {
	for _, h := range slices.Clone(e.order) {
		if h.phase == serving {
			fn(h)
		}
	}
}

// add registers a session.
func (e *engine) add(now time.Time, s *session) {
	s.confirmed, s.tell = map[string]time.Time{}, map[string]bool{}
	s.since = now
	s.budget.Room = func() int64 {
		if s.stream == nil {
			return 0
		}
		return s.stream.room()
	}
	delete(e.moved, s.ID)
	delete(e.remotes, s.ID) // it came back, and must not be lost for what its earlier node does not report
	e.sessions[s.ID] = s
	for _, name := range s.topics {
		e.topic(name).join(now, s)
	}
}

// resume continues a session on another stream. It fails with SESSION_LOST if a later stream has it.
func (e *engine) resume(now time.Time, s *session, r *Resume) *fault.Error {
	s.Resumes = r.Resumes
	old := e.sessions[s.ID]
	switch {
	case old == nil:
		e.add(now, s)
		if e.svc.cfg.Peers != nil {
			e.supersede(s)
			// Any node may have deliveries that never reached the consumer.
			for _, node := range e.svc.cfg.Fleet.Others() {
				s.tell[node] = true
				e.peer(node)
			}
		}
		e.present(now, s, r)
	case s.Resumes <= old.Resumes, old.Loose:
		return superseded()
	default:
		e.replace(now, old, s)
		e.present(now, old, r)
	}
	return nil
}

// replace gives a session the stream and the limits of its next stream.
func (e *engine) replace(now time.Time, old, s *session) {
	if old.stream != nil {
		e.unsend(old)
		old.stream.end(superseded())
	}
	if old.grace != nil {
		old.grace.Stop()
	}
	old.stream, old.Resumes = s.stream, s.Resumes
	old.concurrency, old.maxInFlight, old.maxBytes = s.concurrency, s.maxInFlight, s.maxBytes
	old.AckTimeout = s.AckTimeout
	for _, name := range old.topics {
		delete(e.topic(name).assigned, old.ID) // its consumer is told again
	}
	if old.state == Detached {
		old.state, old.since = Attached, now
	}
}

// present takes up what a consumer says it has. What else it had never reached it.
func (e *engine) present(now time.Time, s *session, r *Resume) {
	has := make(map[Token]bool, len(r.Held)+len(r.Unanswered))
	for _, held := range r.Held {
		has[held.Token] = true
		e.claim(now, s, held)
	}
	for i := range r.Unanswered {
		has[r.Unanswered[i].Token] = true
		e.claim(now, s, HeldDelivery{r.Unanswered[i].Token, true})
	}
	for token := range s.held {
		if !has[token] {
			e.release(s, token)
		}
	}
	e.serving(func(h *holder) {
		if s.hasTopic(h.ref.Topic) {
			h.keepOnly(now, s.ID, has)
			h.attach(s)
		}
	})
	s.tellAll()
	s.stream.confirm(unconfirmedAt) // so that the consumer is told at once
	e.confirm(now, s)
}

// claim notes a delivery that a consumer says it has, and asks the holder.
func (e *engine) claim(now time.Time, s *session, c HeldDelivery) {
	if t := e.topic(c.Token.Topic); t.settings != nil && c.Token.Partition >= t.settings.Partitions {
		s.stream.lose(Lost{[]Token{c.Token}, CauseNoContact})
		return
	}
	held := s.held[c.Token]
	if held == nil {
		held = &heldDelivery{since: now}
		s.held[c.Token] = held
	}
	held.begun = held.begun || c.Begun
	if h := e.holders[c.Token.partition()]; h != nil && h.phase == serving {
		s.uncount(held)
		h.d.Held(now, dispatch.Held{ID: c.Token.ID, Gen: c.Token.Gen, Session: s.ID, Begun: held.begun})
		return
	}
	s.count(held)
	e.topic(c.Token.Topic).needed = now
}

// keepOnly releases what the session has of the partition and the consumer never got.
func (h *holder) keepOnly(now time.Time, session string, has map[Token]bool) {
	for _, m := range h.d.Holds(session) {
		token := Token{h.ref.Topic, h.ref.Partition, m.ID, m.Gen}
		if !has[token] {
			h.d.Settle(now, dispatch.Settlement{ID: m.ID, Gen: m.Gen, Session: session, Verdict: dispatch.Release})
		}
	}
}

// unsend returns what a session's stream did not send yet.
func (e *engine) unsend(s *session) {
	if s.stream == nil {
		return
	}
	for _, token := range s.stream.takeBack() {
		e.release(s, token)
	}
}

// detach notes that the stream of a session ended.
func (e *engine) detach(now time.Time, st *Stream) {
	s := e.sessions[st.ID()]
	if s == nil || s.stream != st {
		return
	}
	e.unsend(s)
	if s.Loose {
		e.finishReceive(now, s)
		return
	}
	s.stream, s.contact = nil, now
	if s.state == Attached {
		s.state, s.since = Detached, now
	}
	e.serving(func(h *holder) { h.d.Detach(s.ID) })
	s.tellAll()
	s.grace = time.AfterFunc(s.Grace+lostAfter, func() {
		e.post(func(now time.Time) {
			if s.stream == nil && now.Sub(s.contact) >= s.Grace+lostAfter {
				e.lost(now, s)
			}
		})
	})
}

// lost ends a session that was without contact for too long.
func (e *engine) lost(now time.Time, s *session) {
	if e.sessions[s.ID] != s {
		return
	}
	s.state = Gone
	e.serving(func(h *holder) { h.d.Lost(now, s.ID) })
	e.tellGone(s)
	e.forget(now, s)
}

// tellGone has the holders that know the session told that it has ended.
func (e *engine) tellGone(s *session) {
	for node := range s.confirmed {
		p := e.peer(node)
		p.gone = append(p.gone, SessionReport{SessionProfile: s.SessionProfile, State: Gone})
	}
}

// forget removes a session.
func (e *engine) forget(now time.Time, s *session) {
	delete(e.sessions, s.ID)
	if s.grace != nil {
		s.grace.Stop()
	}
	for _, name := range s.topics {
		if t := e.topics[name]; t != nil {
			t.leave(now, s)
		}
	}
}

// leave ends a session gracefully.
func (e *engine) leave(now time.Time, s *session) {
	if s.state == Leaving {
		return
	}
	s.state, s.since = Leaving, now
	e.unsend(s)
	e.serving(func(h *holder) { h.d.Leave(now, s.ID) })
	for _, name := range s.topics {
		e.topic(name).reviewSoon(now)
	}
	s.tellAll()
	e.post(func(now time.Time) { e.finishLeaving(now, s) }) // after what is not begun was released
}

// finishLeaving ends the session of a consumer that left and holds nothing more.
func (e *engine) finishLeaving(now time.Time, s *session) {
	if s.state != Leaving || len(s.held) > 0 || e.sessions[s.ID] != s {
		return
	}
	s.state = Gone
	e.tellGone(s)
	e.forget(now, s)
	if s.stream != nil {
		s.stream.end(errLeft)
	}
}

// update changes the limits of a session.
func (e *engine) update(s *session, u Update) (expires time.Time) {
	s.concurrency = cmp.Or(u.Concurrency, s.concurrency)
	s.maxInFlight = max(cmp.Or(u.MaxInFlight, s.maxInFlight), s.concurrency)
	s.maxBytes = cmp.Or(u.MaxBytes, s.maxBytes)
	e.serving(func(h *holder) { h.attach(s) })
	if s.stream == nil {
		return expires
	}
	if u.Renewal != nil {
		s.stream.renew(*u.Renewal)
	}
	return s.stream.expires()
}

// info describes a session and what it has of a topic to operators.
func (e *engine) info(s *session, topic string) qlog.SessionInfo {
	i := qlog.SessionInfo{
		Session: Digest(s.ID), Consumer: s.Consumer, Node: e.svc.cfg.Node, Subject: s.subject, State: qlog.SessionState(s.state),
		Since: s.since, Concurrency: s.concurrency,
	}
	loads := map[int]*qlog.PartitionLoad{}
	load := func(number int) *qlog.PartitionLoad {
		if loads[number] == nil {
			loads[number] = &qlog.PartitionLoad{Partition: number}
		}
		return loads[number]
	}
	if t := e.topics[topic]; t != nil {
		for _, number := range t.assigned[s.ID] {
			load(number).Assigned = true
		}
	}
	for token, held := range s.held {
		if token.Topic != topic {
			continue
		}
		if l := load(token.Partition); held.begun {
			l.Running++
		} else {
			l.Sent++
		}
		i.Held = append(i.Held, qlog.HeldInfo{
			Partition: token.Partition, ID: token.ID, MessageID: held.messageID, Gen: token.Gen, Begun: held.begun, Since: held.since,
		})
	}
	for _, l := range loads {
		i.Loads = append(i.Loads, *l)
	}
	slices.SortFunc(i.Loads, func(a, b qlog.PartitionLoad) int { return cmp.Compare(a.Partition, b.Partition) })
	slices.SortFunc(i.Held, func(a, b qlog.HeldInfo) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID)) })
	i.Held = i.Held[:min(len(i.Held), qlog.MaxHeld)]
	return i
}

func superseded() *fault.Error {
	return fault.New(fault.FailedPrecondition, fault.SessionLost, "another stream resumed the session")
}

func sessionGone() *fault.Error {
	return fault.New(fault.FailedPrecondition, fault.SessionLost, "the session has ended, or is not one of the caller")
}
