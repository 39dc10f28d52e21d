package parleytest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// session is a live stream. It is guarded by the server's lock.
type session struct {
	id     string
	node   *Server
	token  string
	user   string
	order  []string
	places map[string]*place
	typing []*parleyv1.ChannelEvent
	end    *end
}

// place is where a stream is in a channel.
type place struct {
	live  bool
	after int64
	epoch string
	begun bool
}

// end is how the test wants a stream to end.
type end struct {
	err    error
	drop   bool
	advice *parleyv1.Reconnect
}

func asConnect(err error, target **connect.Error) bool { return errors.As(err, target) }

func (one *session) add(p *parleyv1.ChannelPosition) {
	id := p.GetChannelId()
	if one.places[id] == nil {
		one.order = append(one.order, id)
	}
	one.places[id] = &place{live: p.AfterSeq == nil, after: p.GetAfterSeq(), epoch: p.GetEpoch()}
}

func (one *session) remove(id string) {
	delete(one.places, id)
	one.order = slices.DeleteFunc(one.order, func(other string) bool { return other == id })
}

// UpdateSubscription implements the service.
func (h handler) UpdateSubscription(
	ctx context.Context, req *parleyv1.UpdateSubscriptionRequest,
) (*parleyv1.UpdateSubscriptionResponse, error) {
	return do(ctx, h.s, "UpdateSubscription", req, func() (*parleyv1.UpdateSubscriptionResponse, error) {
		one := h.s.sessions[req.GetSessionId()]
		if one == nil {
			return nil, Error(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND)
		}
		if err := h.s.refusedLocked(ctx, req.GetAdd()); err != nil {
			return nil, err
		}
		for _, id := range req.GetRemove() {
			one.remove(id)
		}
		for _, p := range req.GetAdd() {
			one.add(p)
		}
		h.s.wakeLocked()
		return &parleyv1.UpdateSubscriptionResponse{}, nil
	})
}

// Subscribe implements the service.
func (h handler) Subscribe(
	ctx context.Context, req *parleyv1.SubscribeRequest, out *connect.ServerStream[parleyv1.SubscribeResponse],
) error {
	s := h.s
	fault, err := s.begin("Subscribe", tokenOf(ctx), req)
	if err != nil {
		return err
	}
	if fault != nil {
		return fault.happen()
	}
	one, heartbeat, err := s.open(ctx, req)
	if err != nil {
		return err
	}
	defer s.closeSession(one)
	first := &parleyv1.SubscribeResponse{Session: &parleyv1.Session{
		SessionId: one.id, HeartbeatInterval: durationpb.New(heartbeat),
	}}
	if err := out.Send(first); err != nil {
		return err
	}
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		events, ended, changed, silent, repeat := s.collect(one)
		switch {
		case ended != nil:
			return ended.happen(out)
		case !silent && len(events) > 0:
			if err := s.send(out, events, repeat); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-ticker.C:
			if silent {
				continue
			}
			if err := out.Send(&parleyv1.SubscribeResponse{Heartbeat: &parleyv1.Heartbeat{}}); err != nil {
				return err
			}
		}
	}
}

func (e *end) happen(out *connect.ServerStream[parleyv1.SubscribeResponse]) error {
	if e.advice != nil {
		return out.Send(&parleyv1.SubscribeResponse{Reconnect: e.advice})
	}
	if e.drop {
		panic(http.ErrAbortHandler)
	}
	return e.err
}

func (s *Server) open(ctx context.Context, req *parleyv1.SubscribeRequest) (*session, time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refusedLocked(ctx, req.GetChannels()); err != nil {
		return nil, 0, err
	}
	s.minted++
	one := &session{
		id: fmt.Sprintf("session-%d", s.minted), node: s, token: tokenOf(ctx), user: s.userLocked(ctx),
		places: make(map[string]*place),
	}
	for _, p := range req.GetChannels() {
		one.add(p)
	}
	s.sessions[one.id] = one
	return one, s.heartbeat, nil
}

func (s *Server) closeSession(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, one.id)
}

func (s *Server) send(out *connect.ServerStream[parleyv1.SubscribeResponse], events []*parleyv1.ChannelEvent, repeat bool) error {
	for chunk := range slices.Chunk(events, s.perFrame) {
		for range 1 + btoi(repeat) {
			if err := out.Send(&parleyv1.SubscribeResponse{Events: chunk}); err != nil {
				return err
			}
		}
	}
	return nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// collect takes what the stream is to send next. The channel that it gives is closed when there may be more.
func (s *Server) collect(one *session) (events []*parleyv1.ChannelEvent, ended *end, changed <-chan struct{}, silent, repeat bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.end != nil {
		return nil, one.end, nil, false, false
	}
	if !s.silent {
		for _, id := range slices.Clone(one.order) {
			if l := s.logLocked(id); l.admits(one.user) {
				events = append(events, l.advance(one.places[id])...)
				continue
			}
			one.remove(id)
			events = append(events, lostEvent(id))
		}
		events, one.typing = append(events, one.typing...), nil
	}
	return events, nil, s.changed, s.silent, s.repeat
}

// advance gives a channel's events from where a stream is to the log's end.
func (l *log) advance(p *place) []*parleyv1.ChannelEvent {
	var events []*parleyv1.ChannelEvent
	if !p.begun {
		events = l.start(p)
	}
	for p.after < l.head() {
		p.after++
		if l.skip[p.after] > 0 {
			l.skip[p.after]--
			continue
		}
		events = append(events, l.eventLocked(p.after))
	}
	return events
}

// start gives a channel's state, and the gap that follows it where the position is lost.
func (l *log) start(p *place) []*parleyv1.ChannelEvent {
	p.begun = true
	from, reason := p.after, parleyv1.GapReason_GAP_REASON_UNSPECIFIED
	switch {
	case p.live:
		p.after = l.head()
	case p.epoch != "" && p.epoch != l.epoch:
		reason, p.after = parleyv1.GapReason_GAP_REASON_EPOCH_CHANGED, l.head()
	case p.after > l.head():
		reason, p.after = parleyv1.GapReason_GAP_REASON_AHEAD_OF_LOG, l.head()
	case p.after < l.oldest-1:
		reason, p.after = parleyv1.GapReason_GAP_REASON_HISTORY_GONE, l.oldest-1
	}
	lost := reason != parleyv1.GapReason_GAP_REASON_UNSPECIFIED
	state := &parleyv1.ChannelState{
		Epoch: l.epoch, OldestSeq: min(l.oldest, l.head()), HeadSeq: l.head(), Count: l.count, Recovered: !p.live && !lost,
	}
	events := []*parleyv1.ChannelEvent{{
		ChannelId: l.id, Seq: p.after, Event: &parleyv1.ChannelEvent_State{State: state},
	}}
	if lost {
		gap := &parleyv1.ChannelGap{FromSeq: from, ToSeq: p.after, Epoch: l.epoch, Reason: reason}
		events = append(events, &parleyv1.ChannelEvent{
			ChannelId: l.id, Seq: p.after, Event: &parleyv1.ChannelEvent_Gap{Gap: gap},
		})
	}
	return events
}
