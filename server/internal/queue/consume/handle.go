package consume

import (
	"context"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

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
	return retried(s.here(ctx, r.Group, t, len(r.IDs), func(int) partition { return partition{r.Topic, r.Partition} }))
}

// retried counts the messages of a retryTask that are due now.
func retried(results []error, err error) (n int, _ error) {
	for _, result := range results {
		if result == nil {
			n++
		} else if unsettled(result) {
			err = result
		}
	}
	return n, err
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
