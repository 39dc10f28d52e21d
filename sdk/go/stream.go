package parley

import (
	"context"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// Reasons for which a subscription leaves a stream on its own.
var (
	errHole        = &Error{Code: connect.CodeDataLoss, Retryable: true, unanswered: true, Message: "the stream skipped entries"}
	errResubscribe = &Error{Code: connect.CodeAborted, Retryable: true, Message: "a change of the stream may not have arrived"}
)

// stream is one Subscribe call of a subscription. Its fields are guarded by the subscription's
// lock.
type stream struct {
	cancel context.CancelCauseFunc
	// id is the stream's id. It is empty until the first frame.
	id string
	// token is the one with which the stream lives.
	token string
	// removed are the ids of channels that the stream was opened with and that the program removed
	// before the first frame.
	removed []string
	// rider and presence are set if the stream was opened with presence.
	rider    *rider
	presence *presenceStream
}

// run keeps a stream open until ctx ends or a failure is final. If err is not nil, the subscription
// ends at once with it.
func (s *Subscription) run(ctx context.Context, err error) {
	defer close(s.done)
	defer s.cancel()
	if err == nil {
		s.client.carriers.offer(s)
		err = s.keepOpen(ctx)
	}
	s.mu.Lock()
	s.err, s.stream, s.over = err, nil, true
	closed := s.closed
	s.mu.Unlock()
	s.client.carriers.remove(s)
	s.drop(s.carried(), nil)
	s.cancel()
	s.work.Wait()
	if closed {
		err = ErrClosed
	}
	s.setState(StateChange{State: StateEnded, Err: err})
	close(s.queue)
}

func (s *Subscription) keepOpen(life context.Context) error {
	return s.client.keepStreams(life, &streamLoop{
		name: "subscription",
		connecting: func() {
			s.setState(StateChange{State: StateConnecting})
			s.forward(StateChange{State: StateConnecting})
		},
		follow:    func(ctx context.Context, call *streamCall) error { return s.follow(life, ctx, call) },
		reopenNow: s.reopenNow,
		waiting: func(end *streamEnd, wait time.Duration) {
			change := StateChange{State: StateWaiting, Err: end.err, Wait: wait, Addr: end.node.name()}
			s.setState(change)
			s.forward(change)
		},
	})
}

// follow opens one stream and handles its frames until it ends. life is the subscription's context.
func (s *Subscription) follow(life, ctx context.Context, call *streamCall) error {
	current := &stream{cancel: call.cancel, token: call.token}
	defer func() { call.token = s.endStream(current) }()
	req := s.beginStream(current)
	if current.rider != nil {
		current.presence, req.Presence = current.rider.presence.begin(ctx, call.cancel)
	}
	incoming, err := call.node.Message.Subscribe(ctx, req)
	if err != nil {
		return err
	}
	// The context must end before Close, which would otherwise wait for the server to end the stream.
	defer func() {
		call.cancel(nil)
		_ = incoming.Close()
	}()
	for incoming.Receive() {
		// The watchdog pauses: while the program is slow to take events, the silence is not the
		// server's.
		call.Busy()
		frame := incoming.Msg()
		if info := frame.GetInfo(); info != nil && call.liveSince.IsZero() {
			call.Live(info.GetHeartbeatInterval().AsDuration())
			if !s.onLive(ctx, current, call.node, info) {
				return errResubscribe
			}
		}
		if current.presence != nil {
			s.deliverPresence(ctx, current, call.node, frame)
			s.dropUnknown(ctx, current, frame)
		}
		// Events that arrived are kept even if the stream is left now: the next stream starts after
		// them.
		sound := s.deliver(life, frame.GetEvents().GetEvents())
		switch {
		case !sound:
			return errHole
		case frame.GetReconnect() != nil:
			call.advice = new(frame.GetReconnect().GetWithin().AsDuration())
			return nil
		}
		call.Idle()
	}
	return incoming.Err()
}

// deliverPresence passes the presence in a frame to the presence that the stream was opened with.
func (*Subscription) deliverPresence(
	ctx context.Context, current *stream, node *endpoint, frame *parleyv1.SubscribeResponse,
) {
	p := current.rider.presence
	if info := frame.GetPresenceInfo(); info != nil {
		p.live(ctx, current.presence, node, current.id, info)
	}
	if update := frame.GetPresence(); update != nil {
		p.apply(current.presence, update)
	}
}

// dropUnknown takes the presence off the subscription's streams if a frame shows that the server
// ignored it: one that has PresenceService sends the PresenceInfo before all events and heartbeats.
// The presence then receives its server's answer on a stream of its own.
func (s *Subscription) dropUnknown(ctx context.Context, current *stream, frame *parleyv1.SubscribeResponse) {
	if current.presence == nil || frame.GetEvents() == nil && frame.GetHeartbeat() == nil {
		return
	}
	p := current.rider.presence
	p.mu.Lock()
	live := current.presence.id != "" || p.stream != current.presence
	p.mu.Unlock()
	if live {
		return
	}
	s.client.log.WarnContext(ctx, "the server sent no presence on a stream")
	current.presence = nil
	s.drop(current.rider, nil)
}

// beginStream makes current the subscription's stream and returns its request, with each channel's
// current position.
func (s *Subscription) beginStream(current *stream) *parleyv1.SubscribeRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream, current.rider = current, s.rider
	req := &parleyv1.SubscribeRequest{Channels: make([]*parleyv1.ChannelPosition, 0, len(s.order))}
	for _, id := range s.order {
		ch := s.channels[id]
		ch.hasState, ch.onStream = false, ch.active()
		if !ch.onStream {
			continue
		}
		req.Channels = append(req.Channels, ch.request())
	}
	return req
}

// endStream makes the subscription one without a stream until the next one begins, if current is
// still its stream. It returns the token with which the stream lived.
func (s *Subscription) endStream(current *stream) (token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == current {
		s.stream = nil
	}
	return current.token
}

// onLive records the stream's id and requests the changes of channels that were made since the
// stream's request. It returns false if the stream was opened with a token that was replaced
// meanwhile.
func (s *Subscription) onLive(ctx context.Context, current *stream, node *endpoint, info *parleyv1.StreamInfo) bool {
	s.mu.Lock()
	if current.token != "" && current.token == s.outdated {
		s.outdated = "" // once: the source may return that token again
		s.mu.Unlock()
		return false
	}
	current.id, s.wasLive = info.GetStreamId(), true
	late := len(current.removed) > 0
	for _, ch := range s.channels {
		late = late || !ch.onStream && ch.active()
	}
	s.mu.Unlock()
	s.setState(StateChange{State: StateLive, Addr: node.addr})
	if !late {
		return true
	}
	s.work.Go(func() {
		if err := s.catchUp(ctx, current); err != nil {
			current.cancel(err)
		}
	})
	return true
}

// deliver queues a frame's events for the program, and blocks while the queue is full. It returns
// false if entries are missing. Events before the missing ones are delivered in any case.
func (s *Subscription) deliver(ctx context.Context, events []*parleyv1.ChannelEvent) bool {
	frame, sound := s.accept(events)
	s.enqueue(ctx, frame)
	return sound
}

func (s *Subscription) enqueue(ctx context.Context, frame []queued) {
	if len(frame) == 0 {
		return
	}
	select {
	case s.queue <- frame:
	case <-ctx.Done():
	}
}
