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

// stream is a live Subscribe or Connect stream. It is guarded by the server's lock.
type stream struct {
	id string
	// connect is true for a Connect stream, which has no channels' events.
	connect bool
	// presence is nil if the stream has none.
	presence *presence

	node  *Server
	token string
	user  string
	// manages is true if the token has manage: its user need not be a member of members-only
	// channels.
	manages bool
	// barred is true if the token with which the stream was renewed lacks subscribe.
	barred bool
	order  []string
	places map[string]*place
	typing []*parleyv1.ChannelEvent
	end    *end
}

// place is the position of a Subscribe stream in a channel. begun is true once the channel's state
// was sent.
type place struct {
	live  bool
	after int64
	epoch string
	begun bool
	// texts holds what was sent of the texts of open messages.
	texts map[string]openText
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
		if one == nil || one.connect || one.user != h.s.userLocked(ctx) {
			return nil, errNoStream()
		}
		if err := h.s.refusedLocked(ctx, "add", req.GetAdd()); err != nil {
			return nil, err
		}
		if req.GetRenewToken() {
			if one.presence != nil {
				return nil, errorAt(connect.CodeInvalidArgument, parleyv1.ErrorReason_ERROR_REASON_INVALID_FIELD, "renew_token", 0)
			}
			one.token, one.manages, one.barred = tokenOf(ctx), h.s.canLocked(ctx, "manage"), !h.s.canLocked(ctx, "subscribe")
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
	one, err := s.open(ctx, req)
	if err != nil {
		return err
	}
	defer s.closeStream(one)
	outlet := subscribeOutlet{out}
	if err := outlet.begin(s.begun(one)); err != nil {
		return err
	}
	return s.follow(ctx, one, outlet)
}

// follow sends a stream's frames after the first ones until the stream ends.
func (s *Server) follow(ctx context.Context, one *stream, out outlet) error {
	ticker := time.NewTicker(s.interval())
	defer ticker.Stop()
	for {
		due := s.collect(one)
		switch {
		case due.end != nil:
			return due.end.happen(out)
		case !due.silent && !due.empty():
			if err := s.send(out, due); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-due.changed:
		case <-ticker.C:
			if due.silent {
				continue
			}
			if err := out.heartbeat(); err != nil {
				return err
			}
		}
	}
}

func (e *end) happen(out outlet) error {
	if e.advice != nil {
		return out.reconnect(e.advice)
	}
	if e.drop {
		panic(http.ErrAbortHandler)
	}
	return e.err
}

func (s *Server) open(ctx context.Context, req *parleyv1.SubscribeRequest) (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := checkForm(req); err != nil {
		return nil, err
	}
	if err := s.refusedLocked(ctx, "channels", req.GetChannels()); err != nil {
		return nil, err
	}
	if req.GetPresence() != nil {
		if err := s.checkConnectLocked(ctx, "presence.", req.GetPresence()); err != nil {
			return nil, err
		}
	}
	one := s.newStreamLocked(ctx)
	for _, p := range req.GetChannels() {
		one.add(p)
	}
	if req.GetPresence() != nil {
		s.connectLocked(one, req.GetPresence())
	}
	return one, nil
}

// newStreamLocked returns a new live stream of the caller, without channels and presence.
func (s *Server) newStreamLocked(ctx context.Context) *stream {
	s.minted++
	one := &stream{
		id: fmt.Sprintf("stream-%d", s.minted), node: s, token: tokenOf(ctx), user: s.userLocked(ctx), manages: s.canLocked(ctx, "manage"),
		places: make(map[string]*place),
	}
	s.streams[one.id] = one
	return one
}

// interval returns the heartbeat interval.
func (s *Server) interval() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heartbeat
}

// begun returns the contents of a stream's first frames. The PresenceInfo is nil if the stream has
// no presence.
func (s *Server) begun(one *stream) (*parleyv1.StreamInfo, *parleyv1.PresenceInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info := &parleyv1.StreamInfo{StreamId: one.id, HeartbeatInterval: durationpb.New(s.heartbeat)}
	if one.presence == nil {
		return info, nil
	}
	return info, s.presenceInfoLocked(one)
}

func (s *Server) closeStream(one *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(one)
}

// dropLocked removes a stream that has ended. Its user stays online for the time of
// SetOfflineAfter. A repeat has no effect.
func (s *shared) dropLocked(one *stream) {
	if s.streams[one.id] != one {
		return
	}
	delete(s.streams, one.id)
	s.lingerLocked(one)
}

// send sends what is due on a stream.
func (s *Server) send(out outlet, due dueFrames) error {
	for chunk := range slices.Chunk(due.events, s.perFrame) {
		for range 1 + btoi(due.repeat) {
			if err := out.events(chunk); err != nil {
				return err
			}
		}
	}
	if due.update == nil {
		return nil
	}
	for range 1 + btoi(due.repeat) {
		if err := out.presence(due.update); err != nil {
			return err
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

// dueFrames is what a stream sends next.
type dueFrames struct {
	events []*parleyv1.ChannelEvent
	// update is nil if no presence has changed.
	update *parleyv1.PresenceUpdate
	// end is not nil if the stream must end.
	end *end
	// changed is closed when there may be more.
	changed        <-chan struct{}
	silent, repeat bool
}

func (d dueFrames) empty() bool { return len(d.events) == 0 && d.update == nil }

// collect returns what the stream sends next.
func (s *Server) collect(one *stream) dueFrames {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.end != nil {
		return dueFrames{end: one.end}
	}
	due := dueFrames{changed: s.changed, silent: s.silent, repeat: s.repeat}
	if s.silent {
		return due
	}
	for _, id := range slices.Clone(one.order) {
		l := s.logLocked(id)
		if !one.barred && !l.deleted && (one.manages || l.admits(one.user)) {
			due.events = append(due.events, l.advance(one.places[id])...)
			due.events = append(due.events, l.deltas(one.places[id])...)
			continue
		}
		one.remove(id)
		due.events = append(due.events, l.lostEvent(one.barred))
	}
	due.events, one.typing = append(due.events, one.typing...), nil
	due.update = s.presenceUpdateLocked(one)
	return due
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
