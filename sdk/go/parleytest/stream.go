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

// stream is a live Subscribe stream. It is guarded by the server's lock.
type stream struct {
	id    string
	node  *Server
	token string
	user  string
	// manages is true if the token has manage: its user need not be a member of members-only
	// channels.
	manages bool
	order   []string
	places  map[string]*place
	typing  []*parleyv1.ChannelEvent
	end     *end
}

// place is the position of a Subscribe stream in a channel. begun is true once the channel's state
// was sent.
type place struct {
	live  bool
	after int64
	epoch string
	begun bool
}

// end describes how a stream ends: with the advice to reconnect, reset if drop is set, or with err,
// which may be nil.
type end struct {
	err    error
	drop   bool
	advice *parleyv1.Reconnect
}

func asConnect(err error, target **connect.Error) bool { return errors.As(err, target) }

func (one *stream) add(p *parleyv1.ChannelPosition) {
	id := p.GetChannelId()
	if one.places[id] == nil {
		one.order = append(one.order, id)
	}
	one.places[id] = &place{live: p.AfterSeq == nil, after: p.GetAfterSeq(), epoch: p.GetEpoch()}
}

func (one *stream) remove(id string) {
	delete(one.places, id)
	one.order = slices.DeleteFunc(one.order, func(other string) bool { return other == id })
}

// UpdateSubscription implements the service.
func (h handler) UpdateSubscription(
	ctx context.Context, req *parleyv1.UpdateSubscriptionRequest,
) (*parleyv1.UpdateSubscriptionResponse, error) {
	return do(ctx, h.s, "UpdateSubscription", req, func() (*parleyv1.UpdateSubscriptionResponse, error) {
		one := h.s.streams[req.GetStreamId()]
		if one == nil || one.user != h.s.userLocked(ctx) {
			return nil, Error(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_STREAM_NOT_FOUND)
		}
		if err := h.s.refusedLocked(ctx, "add", req.GetAdd()); err != nil {
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
	defer s.closeStream(one)
	first := &parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Info{Info: &parleyv1.StreamInfo{
		StreamId: one.id, HeartbeatInterval: durationpb.New(heartbeat),
	}}}
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
			beat := &parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Heartbeat{Heartbeat: &parleyv1.Heartbeat{}}}
			if err := out.Send(beat); err != nil {
				return err
			}
		}
	}
}

func (e *end) happen(out *connect.ServerStream[parleyv1.SubscribeResponse]) error {
	if e.advice != nil {
		return out.Send(&parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Reconnect{Reconnect: e.advice}})
	}
	if e.drop {
		panic(http.ErrAbortHandler)
	}
	return e.err
}

func (s *Server) open(ctx context.Context, req *parleyv1.SubscribeRequest) (*stream, time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := checkForm(req); err != nil {
		return nil, 0, err
	}
	if err := s.refusedLocked(ctx, "channels", req.GetChannels()); err != nil {
		return nil, 0, err
	}
	s.minted++
	one := &stream{
		id: fmt.Sprintf("stream-%d", s.minted), node: s, token: tokenOf(ctx), user: s.userLocked(ctx), manages: s.canLocked(ctx, "manage"),
		places: make(map[string]*place),
	}
	for _, p := range req.GetChannels() {
		one.add(p)
	}
	s.streams[one.id] = one
	return one, s.heartbeat, nil
}

func (s *Server) closeStream(one *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, one.id)
}

func (s *Server) send(out *connect.ServerStream[parleyv1.SubscribeResponse], events []*parleyv1.ChannelEvent, repeat bool) error {
	for chunk := range slices.Chunk(events, s.perFrame) {
		frame := &parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Events{Events: &parleyv1.EventBatch{Events: chunk}}}
		for range 1 + btoi(repeat) {
			if err := out.Send(frame); err != nil {
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

// collect returns the events that the stream sends next, or in ended how it must end. changed is
// closed when there may be more.
func (s *Server) collect(one *stream) (events []*parleyv1.ChannelEvent, ended *end, changed <-chan struct{}, silent, repeat bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.end != nil {
		return nil, one.end, nil, false, false
	}
	if !s.silent {
		for _, id := range slices.Clone(one.order) {
			if l := s.logLocked(id); one.manages || l.admits(one.user) {
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

// advance returns a channel's events from a stream's position to the end of the log, and moves the
// position.
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

// start returns the ChannelState event that begins a channel on a stream. If the stream cannot
// continue from the requested position, a gap follows.
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
	case p.after < l.oldestSeq()-1:
		reason, p.after = parleyv1.GapReason_GAP_REASON_HISTORY_GONE, l.oldestSeq()-1
	}
	lost := reason != parleyv1.GapReason_GAP_REASON_UNSPECIFIED
	state := &parleyv1.ChannelState{
		Epoch: l.epoch, OldestSeq: l.oldestSeq(), HeadSeq: l.head(), Count: l.count, ExpiredCount: l.expired(),
		Recovered: !p.live && !lost,
	}
	events := []*parleyv1.ChannelEvent{{
		ChannelId: l.id, Seq: p.after, Event: &parleyv1.ChannelEvent_State{State: state},
	}}
	if lost {
		gap := &parleyv1.ChannelGap{AfterSeq: from, ToSeq: p.after, Epoch: l.epoch, Reason: reason}
		events = append(events, &parleyv1.ChannelEvent{
			ChannelId: l.id, Seq: p.after, Event: &parleyv1.ChannelEvent_Gap{Gap: gap},
		})
	}
	return events
}
