package consume

import (
	"context"
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
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
	e.run.Go(func(ctx context.Context) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		refused, err := e.svc.cfg.Peers.Deliver(call, p.node, r)
		cancel()
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
	e.run.Go(func(ctx context.Context) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		for part := range slices.Chunk(list, frameTokens) {
			if err := e.svc.cfg.Peers.Ended(call, p.node, EndedNotice{Group: e.group, Deliveries: part}); err != nil {
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

// HandleSettle implements PeerHandler.
func (s *Service) HandleSettle(ctx context.Context, r SettleRequest) ([]error, error) {
	t := &settleTask{session: r.Session, from: r.Node, items: r.Items}
	return s.here(ctx, r.Group, t, len(r.Items), func(i int) partition { return r.Items[i].Token.partition() })
}

// HandleExtend implements PeerHandler.
func (s *Service) HandleExtend(ctx context.Context, r ExtendRequest) ([]error, error) {
	t := &extendTask{session: r.Session, tokens: r.Tokens, timeout: r.AckTimeout, begun: r.Begun}
	return s.here(ctx, r.Group, t, len(r.Tokens), func(i int) partition { return r.Tokens[i].partition() })
}

// HandleCancel implements PeerHandler.
func (s *Service) HandleCancel(ctx context.Context, r CancelRequest) ([]error, error) {
	t := &cancelTask{topic: r.Topic, partition: r.Partition, items: r.Items}
	return s.here(ctx, r.Group, t, len(r.Items), func(int) partition { return partition{r.Topic, r.Partition} })
}

// HandleRetry implements PeerHandler.
func (s *Service) HandleRetry(ctx context.Context, r RetryRequest) (n int, err error) {
	t := &retryTask{topic: r.Topic, partition: r.Partition, ids: r.IDs}
	results, err := s.here(ctx, r.Group, t, len(r.IDs), func(int) partition { return partition{r.Topic, r.Partition} })
	if err != nil {
		return 0, err
	}
	for _, err := range results {
		if err == nil {
			n++
		} else if unsettled(err) {
			return 0, err
		}
	}
	return n, nil
}

// here executes a task at the holders of this node, and nowhere else.
func (s *Service) here(ctx context.Context, group string, t task, n int, at func(i int) partition) ([]error, error) {
	e := s.existing(group)
	if e == nil {
		return nil, errMoved
	}
	c := newCall(n)
	e.post(func(now time.Time) {
		for _, x := range errands(now, c, t, n, at) {
			x.here = true
			e.route(now, x)
		}
	})
	return c.wait(ctx, e)
}

// HandleReport implements PeerHandler.
func (s *Service) HandleReport(ctx context.Context, r Report) (answer ReportAnswer, err error) {
	e := s.existing(r.Group)
	if e == nil {
		answer.Sessions = make([]SessionReportAnswer, len(r.Sessions))
		for i := range r.Sessions {
			for _, d := range r.Sessions[i].Deliveries {
				answer.Sessions[i].Unknown = append(answer.Sessions[i].Unknown, d.Token)
			}
		}
		return answer, nil
	}
	return ask(ctx, e, func(now time.Time) ReportAnswer { return e.heard(now, &r) })
}

// HandleTake implements PeerHandler.
func (s *Service) HandleTake(ctx context.Context, r TakeRequest) (got []int, err error) {
	e := s.existing(r.Group)
	if e == nil {
		return make([]int, len(r.Slots)), nil
	}
	return ask(ctx, e, func(now time.Time) []int { return e.taken(now, &r) })
}

// HandleDeliver implements PeerHandler.
func (s *Service) HandleDeliver(ctx context.Context, r DeliverRequest) (refused []Token, err error) {
	e := s.existing(r.Group)
	if e == nil {
		for i := range r.Deliveries {
			refused = append(refused, r.Deliveries[i].Token)
		}
		return refused, nil
	}
	return ask(ctx, e, func(now time.Time) []Token { return e.delivered(now, &r) })
}

// HandleEnded implements PeerHandler.
func (s *Service) HandleEnded(r EndedNotice) {
	if e := s.existing(r.Group); e != nil {
		e.post(func(now time.Time) { e.endedElsewhere(now, r.Deliveries) })
	}
}

// HandleSession implements PeerHandler.
func (s *Service) HandleSession(ctx context.Context, r SessionRequest) (answer SessionAnswer, found bool) {
	e := s.existing(r.Group)
	if e == nil {
		return answer, false
	}
	front, err := ask(ctx, e, func(now time.Time) frontAnswer { return e.atFront(now, &r) })
	if err == nil && front.all != nil {
		_, err = front.all.wait(ctx, e)
	}
	if err != nil {
		front.Err = err
	}
	return front.SessionAnswer, front.found
}

// frontAnswer is what a node answers about a session. The caller waits for all, unless it is nil.
type frontAnswer struct {
	SessionAnswer

	found bool
	all   *call
}

// atFront executes a call about a session, if this is its front node.
func (e *engine) atFront(now time.Time, r *SessionRequest) (a frontAnswer) {
	s := e.sessions[r.Session]
	if a.found = s != nil; !a.found {
		return a
	}
	switch r.Call {
	case ExtendAll:
		tokens := make([]Token, 0, len(s.held))
		for token := range s.held {
			tokens = append(tokens, token)
		}
		a.all = newCall(len(tokens))
		e.do(now, a.all, &extendTask{session: s.ID, tokens: tokens, timeout: r.AckTimeout}, len(tokens),
			func(i int) partition { return tokens[i].partition() })
	case UpdateLimits:
		a.Expires = e.update(s, r.Update)
	case LeaveGroup:
		e.leave(now, s)
	case Supersede:
		if r.Resumes > s.Resumes {
			e.handOver(now, s)
		}
	default:
		a.Err = fault.New(fault.Unimplemented, fault.UnimplementedCall, "the node does not know the call")
	}
	return a
}

// HandleSessions implements PeerHandler.
func (s *Service) HandleSessions(ctx context.Context, topic, group string) (list []qlog.SessionInfo) {
	e := s.existing(group)
	if e == nil {
		return nil
	}
	list, _ = ask(ctx, e, func(time.Time) (found []qlog.SessionInfo) {
		for _, s := range e.sessions {
			if s.hasTopic(topic) && !s.Loose {
				found = append(found, e.info(s, topic))
			}
		}
		return found
	})
	return list
}

// HandleHolder implements PeerHandler.
func (s *Service) HandleHolder(n HolderNotice) {
	if n.Node == s.cfg.Node {
		return
	}
	if e := s.existing(n.Group); e != nil {
		e.post(func(now time.Time) { e.announced(now, n) })
		return
	}
	s.mu.Lock()
	run := s.run
	s.mu.Unlock()
	if run == nil || n.Node == "" {
		return
	}
	run.Go(func(ctx context.Context) { // a node without sessions of the group has nothing
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		_, _ = s.cfg.Peers.Report(call, n.Node, Report{Node: s.cfg.Node, Group: n.Group, Complete: []Lease{n.Lease}})
	})
}

// HandleSpare implements PeerHandler.
func (s *Service) HandleSpare(n SpareNotice) {
	if e := s.existing(n.Group); e != nil && n.Node != s.cfg.Node {
		e.post(func(now time.Time) { e.offered(now, n) })
	}
}

var _ PeerHandler = (*Service)(nil)

// Retry makes messages of a partition that wait for a retry due now. It returns how many there were.
func (s *Service) Retry(ctx context.Context, ref qlog.GroupRef, ids []qlog.ID) (n int, err error) {
	t := &retryTask{topic: ref.Topic, partition: ref.Partition, ids: ids}
	results, err := s.call(ctx, ref.Group, t, len(ids), func(int) partition { return partition{ref.Topic, ref.Partition} })
	if err != nil {
		return 0, err
	}
	for _, err := range results {
		if err == nil {
			n++
		} else if unsettled(err) {
			return n, err
		}
	}
	return n, nil
}
