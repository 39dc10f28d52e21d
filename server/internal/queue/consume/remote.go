package consume

import (
	"context"
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/dispatch"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// Bounds of one Take, and of the deliveries of one Deliver.
const (
	takeMessages = 256
	takeBytes    = 512 << 10
)

// remoteSession is a session of another node that this node's dispatchers know. It belongs to the
// engine's goroutine.
type remoteSession struct {
	SessionProfile

	node  string
	state SessionState
	// unreported: the node is new to the session and has not reported what the consumer has. It gets
	// nothing before.
	unreported bool
	// contact is when the front node last had contact with the consumer.
	contact time.Time
	budget  dispatch.Budget
}

// meet notes what a front node says about one of its sessions. It returns nil if a later stream, on
// another node, has the session.
func (e *engine) meet(now time.Time, node string, profile SessionProfile, contact time.Time) *remoteSession {
	if local := e.sessions[profile.ID]; local != nil {
		if profile.Resumes <= local.Resumes {
			return nil
		}
		e.handOver(now, local)
	}
	rs := e.remotes[profile.ID]
	switch {
	case rs == nil:
		rs = &remoteSession{state: Attached}
		e.remotes[profile.ID] = rs
	case profile.Resumes < rs.Resumes, profile.Resumes == rs.Resumes && rs.node != node:
		return nil
	case rs.node != node:
		rs.unreported = true // what the new front node reports first is all that the consumer has
	}
	rs.SessionProfile, rs.node = profile, node
	if contact.After(rs.contact) {
		rs.contact = contact
	}
	return rs
}

// attachRemote lets a session of another node have messages that it asks for.
func (h *holder) attachRemote(rs *remoteSession) {
	if h.phase == serving && rs.state == Attached {
		h.d.Attach(dispatch.Session{
			ID: rs.ID, Remote: true, AckTimeout: rs.AckTimeout, ReportsBegun: rs.ReportsBegun, Loose: rs.Loose, Budget: &rs.budget,
		})
	}
}

// heard takes up a report of another node.
func (e *engine) heard(now time.Time, r *Report) ReportAnswer {
	e.peer(r.Node).heard = now
	answer := ReportAnswer{Sessions: make([]SessionReportAnswer, len(r.Sessions))}
	for i := range r.Sessions {
		sr, a := &r.Sessions[i], &answer.Sessions[i]
		rs := e.meet(now, r.Node, sr.SessionProfile, now.Add(-sr.ContactAge))
		if rs == nil {
			a.Superseded = true
			continue
		}
		if rs.unreported {
			rs.unreported = false
			e.reconcile(now, rs, sr)
		}
		a.Unknown = e.heardOf(now, rs, sr)
	}
	for _, l := range r.Complete {
		if h := e.holders[partition{l.Topic, l.Partition}]; h != nil && h.phase == serving && h.epoch == l.Epoch {
			delete(h.awaited, r.Node)
			h.endDoubt(now)
		}
	}
	return answer
}

// heardOf takes up the report of one session. It returns the deliveries of partitions that this node
// does not hold.
func (e *engine) heardOf(now time.Time, rs *remoteSession, sr *SessionReport) (unknown []Token) {
	for _, d := range sr.Deliveries {
		h := e.holders[d.Token.partition()]
		if h == nil || h.phase != serving {
			unknown = append(unknown, d.Token)
			continue
		}
		h.attachRemote(rs) // with its ack timeout
		h.d.Held(now, dispatch.Held{ID: d.Token.ID, Gen: d.Token.Gen, Session: rs.ID, Begun: d.Begun})
	}
	e.serving(func(h *holder) {
		switch sr.State {
		case Detached:
			h.d.Detach(rs.ID)
		case Leaving:
			h.d.Leave(now, rs.ID)
		case Gone:
			h.d.Lost(now, rs.ID)
		case Attached:
		}
	})
	if rs.state = sr.State; sr.State == Gone {
		delete(e.remotes, rs.ID)
	}
	return unknown
}

// reconcile releases what a session has according to the dispatchers and its consumer never got: the
// first report after a stream was resumed on another node names all that the consumer has.
func (e *engine) reconcile(now time.Time, rs *remoteSession, sr *SessionReport) {
	has := make(map[Token]bool, len(sr.Deliveries))
	for _, d := range sr.Deliveries {
		has[d.Token] = true
	}
	e.serving(func(h *holder) { h.keepOnly(now, rs.ID, has) })
}

// losePeersSessions ends sessions of other nodes that were without contact for too long. If a node
// lives and cannot be heard, its sessions are kept: their consumers may be fine.
func (e *engine) losePeersSessions(now time.Time) {
	for id, rs := range e.remotes {
		wait := rs.Grace + lostAfter
		if rs.Loose {
			wait = time.Minute
		}
		if now.Sub(rs.contact) < wait {
			continue
		}
		if p := e.peers[rs.node]; !rs.Loose && e.svc.cfg.Fleet.Alive(rs.node) && (p == nil || now.Sub(p.heard) >= wait) {
			continue
		}
		e.serving(func(h *holder) {
			if rs.Loose {
				h.d.Leave(now, id) // what it has it keeps until its ack timeout
			} else {
				h.d.Lost(now, id)
			}
		})
		delete(e.remotes, id)
	}
}

// taken chooses messages of the topic for sessions of another node. It returns how many each gets.
func (e *engine) taken(now time.Time, r *TakeRequest) []int {
	got := make([]int, len(r.Slots))
	for i := range r.Slots {
		slot := &r.Slots[i]
		rs := e.meet(now, r.Node, slot.SessionProfile, now)
		if rs == nil || rs.unreported {
			continue
		}
		rs.state = Attached
		suspects := 0
		if slot.Suspect && rs.budget.Suspects() == 0 {
			suspects = 1
		}
		rs.budget.Add(0, 0, suspects)
		bytes := rs.budget.Bytes()
		for _, h := range slices.Clone(e.order) {
			if h.phase != serving || h.ref.Topic != r.Topic || got[i] >= slot.N || rs.budget.Bytes()-bytes >= slot.Bytes {
				continue
			}
			h.attachRemote(rs)
			before := len(h.d.Holds(rs.ID))
			h.d.Take(rs.ID, slot.N-got[i], slot.Bytes-(rs.budget.Bytes()-bytes))
			h.step(now)
			if h.phase == serving {
				got[i] += len(h.d.Holds(rs.ID)) - before
				h.d.Take(rs.ID, 0, 0)
			}
		}
		rs.budget.Add(0, 0, -suspects)
		if t := e.topics[r.Topic]; t != nil && got[i] > 0 {
			t.answered = true
		}
	}
	return got
}

// sendRemote hands a delivery to the front node of its session, and reports whether it knows the
// session.
func (e *engine) sendRemote(session string, epoch int64, d Delivery) bool {
	rs := e.remotes[session]
	if rs == nil || rs.node == "" {
		return false
	}
	p := e.peer(rs.node)
	p.outbox = append(p.outbox, RemoteDelivery{d, session, epoch})
	return true
}

// flush sends what waits for other nodes.
func (e *engine) flush() {
	for _, p := range e.peers {
		e.flushDeliveries(p)
		e.flushEnded(p)
	}
}

func (e *engine) flushDeliveries(p *peer) {
	if p.delivering || len(p.outbox) == 0 {
		return
	}
	n, bytes := 0, 0
	for n < len(p.outbox) && n < takeMessages {
		if bytes += len(p.outbox[n].Body); n > 0 && bytes > takeBytes {
			break
		}
		n++
	}
	r := DeliverRequest{Node: e.svc.cfg.Node, Group: e.group, Deliveries: slices.Clone(p.outbox[:n])}
	p.delivering = true
	e.background(func(ctx context.Context) {
		refused, err := e.svc.cfg.Peers.Deliver(ctx, p.node, r)
		wait := time.Duration(0)
		if err != nil {
			wait = routeAgain
		}
		e.postAfter(wait, func(now time.Time) {
			p.delivering = false
			if err == nil {
				p.outbox = slices.Delete(p.outbox, 0, n)
				e.refused(now, r.Deliveries, refused)
				return
			}
			e.trouble("deliver", err)
			// The node may have them, so that they are only sent again, to the same node.
			p.outbox = slices.DeleteFunc(p.outbox, func(d RemoteDelivery) bool {
				rs, h := e.remotes[d.Session], e.holders[d.Token.partition()]
				return rs == nil || rs.node != p.node || h == nil || h.phase != serving || h.epoch != d.Epoch
			})
		})
	})
}

// refused returns to the dispatchers what a node could not hand out.
func (e *engine) refused(now time.Time, deliveries []RemoteDelivery, refused []Token) {
	no := make(map[Token]bool, len(refused))
	for _, token := range refused {
		no[token] = true
	}
	for i := range deliveries {
		d := &deliveries[i]
		if h := e.holders[d.Token.partition()]; no[d.Token] && h != nil && h.phase == serving {
			h.d.Settle(now, dispatch.Settlement{ID: d.ID, Gen: d.Gen, Session: d.Session, Verdict: dispatch.Release})
		}
	}
}

// flushEnded tells front nodes what ended. If that is lost, the answers to their next reports tell it.
func (e *engine) flushEnded(p *peer) {
	if len(p.ended) == 0 {
		return
	}
	list := p.ended
	p.ended = nil
	e.background(func(ctx context.Context) {
		for part := range slices.Chunk(list, frameTokens) {
			if err := e.svc.cfg.Peers.Ended(ctx, p.node, EndedNotice{Group: e.group, Deliveries: part}); err != nil {
				e.post(func(time.Time) { e.trouble("ended", err) })
				return
			}
		}
	})
}

// endRemote notes that a delivery to a session of another node ended.
func (e *engine) endRemote(session string, token Token, cause Cause) {
	if rs := e.remotes[session]; rs != nil && rs.node != "" {
		p := e.peer(rs.node)
		p.ended = append(p.ended, EndedDelivery{session, token, cause})
	}
}

// Retry makes messages of a partition that wait for a retry due now. It returns how many there were.
func (s *Service) Retry(ctx context.Context, ref qlog.GroupRef, ids []qlog.ID) (n int, err error) {
	t := &retryTask{topic: ref.Topic, partition: ref.Partition, ids: ids}
	return retried(s.call(ctx, ref.Group, t, len(ids), func(int) partition { return partition{ref.Topic, ref.Partition} }))
}
