package consume

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// tickEvery is how often the engine looks after the contact with other nodes.
	tickEvery = 250 * time.Millisecond
	// maxSeen bounds the deliveries of other nodes that are remembered, to recognise repeats.
	maxSeen = 20_000
)

// peer is another node, as an engine deals with it. It belongs to the engine's goroutine.
type peer struct {
	node string
	// reporting: a report is under way; reported is when the latest that was answered was sent, asked
	// when the latest was. heard is when the node's latest report came.
	reporting              bool
	reported, asked, heard time.Time
	// complete are leases of the node that wait for a complete report. gone are sessions that ended.
	complete []Lease
	gone     []SessionReport

	// outbox are deliveries to sessions of the node; delivering: some are under way.
	outbox     []RemoteDelivery
	delivering bool
	// ended are deliveries that ended and whose front node the peer is.
	ended []EndedDelivery
}

// peer returns what the engine knows of a node.
func (e *engine) peer(node string) *peer {
	p := e.peers[node]
	if p == nil {
		p = &peer{node: node}
		e.peers[node] = p
	}
	return p
}

// tick looks after the contact with other nodes, and returns when it is to be called again.
func (e *engine) tick(now time.Time) time.Time {
	if e.svc.cfg.Peers == nil {
		return time.Time{}
	}
	if now.Before(e.nextTick) {
		return e.nextTick
	}
	e.nextTick = now.Add(tickEvery)
	e.lookWhetherCutOff()
	for _, s := range e.sessions {
		if s.expirePromises(now) {
			e.post(func(time.Time) {}) // the room is free for others
		}
		e.confirm(now, s)
	}
	e.losePeersSessions(now)
	maps.DeleteFunc(e.moved, func(_ string, s *session) bool { return now.Sub(s.contact) >= s.Grace+lostAfter })
	for node, p := range e.peers {
		e.report(now, p)
		if p.idle() && now.Sub(p.asked) > time.Minute && now.Sub(p.heard) > time.Minute {
			delete(e.peers, node)
		}
	}
	return e.nextTick
}

func (p *peer) idle() bool {
	return !p.reporting && !p.delivering && len(p.complete)+len(p.gone)+len(p.outbox)+len(p.ended) == 0
}

// lookWhetherCutOff finds out whether this node may have lost its leases without knowing: others take
// them when its beat has ended, and say so.
func (e *engine) lookWhetherCutOff() {
	e.cutOff = time.Time{}
	fleet, self := e.svc.cfg.Fleet, e.svc.cfg.Node
	if !fleet.Alive(self) && !e.svc.cfg.Peers.Connected() {
		e.cutOff = fleet.Until(self)
	}
}

// confirm tells the stream of a session as of when its contact is confirmed by all holders of what the
// session has.
func (e *engine) confirm(now time.Time, s *session) {
	if s.stream == nil || s.Loose {
		return
	}
	oldest := time.Time{}
	if len(s.held) > s.elsewhere && !e.cutOff.IsZero() {
		oldest = e.cutOff
	}
	if s.elsewhere > 0 {
		for token, held := range s.held {
			if !held.counted {
				continue
			}
			t := e.topic(token.Topic)
			t.needed = now
			node := t.holder(token.Partition)
			if node != "" {
				e.peer(node)
			}
			at := s.confirmed[node]
			if at.IsZero() {
				at = unconfirmedAt
			}
			if oldest.IsZero() || at.Before(oldest) {
				oldest = at
			}
		}
	}
	s.stream.confirm(oldest)
}

// report tells a node what it must know of the sessions of this one.
func (e *engine) report(now time.Time, p *peer) {
	if p.reporting {
		return
	}
	r, sessions, due := e.reportOf(now, p)
	if !due || now.Sub(p.asked) < tickEvery/2 && len(p.complete) == 0 {
		return
	}
	gone, leases := len(p.gone), len(p.complete)
	p.reporting, p.asked = true, now
	for _, s := range sessions {
		delete(s.tell, p.node)
	}
	e.background(func(ctx context.Context) {
		answer, err := e.svc.cfg.Peers.Report(ctx, p.node, r)
		e.post(func(now time.Time) {
			p.reporting = false
			if err != nil || len(answer.Sessions) != len(r.Sessions) {
				e.trouble("report", err)
				for _, s := range sessions {
					s.tell[p.node] = true // of one that moved nothing comes of it
				}
				return
			}
			p.reported = p.asked
			p.gone, p.complete = p.gone[gone:], p.complete[leases:]
			e.reported(now, p, sessions, answer.Sessions[gone:])
		})
	})
}

// reportOf returns a report, whose sessions are those of p.gone and then sessions, and whether there is a
// reason to make it now.
func (e *engine) reportOf(now time.Time, p *peer) (r Report, sessions []*session, due bool) {
	r = Report{Node: e.svc.cfg.Node, Group: e.group, Complete: p.complete, Sessions: slices.Clone(p.gone)}
	due = len(p.complete)+len(p.gone) > 0
	complete := map[partition]bool{}
	for _, l := range p.complete {
		complete[partition{l.Topic, l.Partition}] = true
	}
	add := func(s *session, sr SessionReport) {
		sr.SessionProfile = s.SessionProfile
		if s.stream == nil || e.sessions[s.ID] != s {
			sr.ContactAge = now.Sub(s.contact)
		}
		r.Sessions, sessions = append(r.Sessions, sr), append(sessions, s)
	}
	for _, s := range e.sessions {
		if s.Loose || s.elsewhere == 0 && !s.tell[p.node] {
			continue
		}
		// The first report after a resume names all that the consumer has.
		all := s.Resumes > 0 && s.confirmed[p.node].IsZero()
		held := s.heldWhere(func(token Token, d *heldDelivery) bool {
			return all || d.counted && (complete[token.partition()] || e.heldBy(token) == p.node)
		})
		if len(held) > 0 || s.tell[p.node] {
			due = due || s.tell[p.node] || now.Sub(s.confirmed[p.node]) >= s.Grace/4
			add(s, SessionReport{State: s.state, Deliveries: held})
		}
	}
	for _, s := range e.moved {
		held := s.heldWhere(func(token Token, _ *heldDelivery) bool { return complete[token.partition()] })
		if len(held) > 0 {
			add(s, SessionReport{State: Detached, Deliveries: held})
		}
	}
	return r, sessions, due
}

// heldWhere returns the deliveries of the session that a function selects.
func (s *session) heldWhere(is func(token Token, d *heldDelivery) bool) (held []HeldDelivery) {
	for token, d := range s.held {
		if is(token, d) {
			held = append(held, HeldDelivery{token, d.begun})
		}
	}
	return held
}

// heldBy returns the other node that holds the lease of a delivery's partition, as far as is known.
func (e *engine) heldBy(token Token) string {
	if t := e.topics[token.Topic]; t != nil {
		return t.holder(token.Partition)
	}
	return ""
}

// reported takes up the answer to a report.
func (e *engine) reported(now time.Time, p *peer, sessions []*session, answers []SessionReportAnswer) {
	for i, s := range sessions {
		a := &answers[i]
		if e.sessions[s.ID] != s {
			continue
		}
		if a.Superseded {
			e.handOver(now, s)
			continue
		}
		wrong := false
		for _, token := range a.Unknown {
			if e.heldBy(token) == p.node {
				wrong = true
				e.topics[token.Topic].doubtHolder(now, token.Partition, p.node)
			}
		}
		if !wrong {
			s.confirmed[p.node] = p.reported
		}
		e.confirm(now, s)
	}
}

// handOver ends the stream of a session that a later stream on another node has. That node reports
// what it holds. A new holder may have heard from that node before the session came to it; so this
// node goes on to name the session's deliveries in complete reports, for as long as the session could
// be without contact. A holder that knows the later stream ignores it.
func (e *engine) handOver(now time.Time, s *session) {
	e.unsend(s)
	if s.stream != nil {
		s.stream.end(superseded())
	}
	e.forget(now, s)
	s.contact = now
	e.moved[s.ID] = s
	e.serving(func(h *holder) { h.d.Detach(s.ID) })
	e.remotes[s.ID] = &remoteSession{SessionProfile: s.SessionProfile, state: Detached, contact: now}
}

// supersede tells the other nodes that this one has the session.
func (e *engine) supersede(s *session) {
	r := SessionRequest{Group: e.group, Session: s.ID, Call: Supersede, Resumes: s.Resumes}
	e.background(func(ctx context.Context) {
		if _, _, err := e.svc.cfg.Peers.Session(ctx, r); err != nil {
			e.post(func(time.Time) { e.trouble("supersede", err) }) // the holders tell it too
		}
	})
}

// announced notes who holds a lease, and has that node told what sessions of this node have there.
func (e *engine) announced(now time.Time, n HolderNotice) {
	t := e.topics[n.Topic]
	if n.Node == "" {
		if t != nil && n.Partition < len(t.leases) && t.leases[n.Partition].epoch <= n.Epoch {
			t.leases[n.Partition].node = ""
			t.reviewSoon(now)
		}
		return
	}
	if t != nil && !t.learn(now, n.Partition, n.Node, n.Epoch) {
		return // an earlier holder
	}
	if h := e.holders[partition{n.Topic, n.Partition}]; h != nil && h.phase == serving && h.epoch < n.Epoch {
		h.end(qlog.ErrFenced)
	}
	p := e.peer(n.Node)
	if !slices.Contains(p.complete, n.Lease) {
		p.complete = append(p.complete, n.Lease)
	}
	e.report(now, p)
}

// delivered takes deliveries of another node for sessions of this one. It returns those that it
// cannot hand out.
func (e *engine) delivered(now time.Time, r *DeliverRequest) (refused []Token) {
	for i := range r.Deliveries {
		d := &r.Deliveries[i]
		s, t := e.sessions[d.Session], e.topics[d.Topic]
		if e.seen.has(d.Session, d.Token) {
			continue // a repeat
		}
		if s == nil || t == nil || !s.live() || !t.learn(now, d.Partition, r.Node, d.Epoch) ||
			!s.stream.deliver([]Delivery{d.Delivery}) {
			refused = append(refused, d.Token)
			continue
		}
		e.seen.add(d.Session, d.Token)
		held := &heldDelivery{
			messageID: d.MessageID, since: now, size: int64(len(d.Body)), begun: !s.ReportsBegun, suspect: d.Suspect,
		}
		s.held[d.Token] = held
		s.count(held)
		s.unpromise(1)
	}
	return refused
}

// offered takes messages from a node that has more than idle handlers.
func (e *engine) offered(now time.Time, n SpareNotice) {
	r := TakeRequest{Node: e.svc.cfg.Node, Group: e.group, Topic: n.Topic}
	var takers []*session
	left := min(n.Count, takeMessages)
	for _, s := range e.sessions {
		free, bytes := s.free()
		if n := min(free, left); n > 0 && s.hasTopic(r.Topic) {
			r.Slots = append(r.Slots, Slot{
				SessionProfile: s.SessionProfile, N: n, Bytes: min(bytes, takeBytes), Suspect: s.budget.Suspects() > 0,
			})
			s.promise(now, n, min(bytes, takeBytes))
			takers = append(takers, s)
			left -= n
		}
	}
	if len(takers) == 0 {
		return
	}
	e.background(func(ctx context.Context) {
		got, err := e.svc.cfg.Peers.Take(ctx, n.Node, r)
		e.post(func(time.Time) {
			for i, s := range takers {
				if err != nil || len(got) != len(takers) {
					s.unpromise(r.Slots[i].N)
					continue
				}
				s.unpromise(r.Slots[i].N - got[i])
				if s.Resumes == 0 || !s.confirmed[n.Node].IsZero() { // else the first report names all, see report
					s.confirmed[n.Node] = now
				}
			}
		})
	})
}

// endedElsewhere notes that deliveries of sessions of this node ended.
func (e *engine) endedElsewhere(now time.Time, list []EndedDelivery) {
	for _, d := range list {
		s := e.sessions[d.Session]
		if s == nil {
			continue
		}
		if !s.drop(d.Token) {
			e.seen.add(d.Session, d.Token) // it may be on its way
			continue
		}
		if s.stream != nil && d.Cause != 0 {
			s.stream.lose(Lost{[]Token{d.Token}, d.Cause})
		}
		e.finishLeaving(now, s)
	}
}

// seenDeliveries remembers the latest deliveries of other nodes: between maxSeen and twice as many.
type seenDeliveries struct{ newer, older map[seenDelivery]bool }

type seenDelivery struct {
	session string
	token   Token
}

func (s *seenDeliveries) has(session string, token Token) bool {
	d := seenDelivery{session, token}
	return s.newer[d] || s.older[d]
}

func (s *seenDeliveries) add(session string, token Token) {
	if s.newer == nil || len(s.newer) >= maxSeen {
		s.newer, s.older = map[seenDelivery]bool{}, s.newer
	}
	s.newer[seenDelivery{session, token}] = true
}
