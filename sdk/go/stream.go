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
	errResubscribe = &Error{Code: connect.CodeAborted, Retryable: true, Message: "a change of channels may not have arrived"}
)

// stream is one Subscribe call of a subscription. Its fields are guarded by the subscription's
// lock.
type stream struct {
	cancel context.CancelCauseFunc
	// id is the stream's id. It is empty until the first frame.
	id string
	// removed are the ids of channels that the stream was opened with and that the program removed
	// before the first frame.
	removed []string
}

// run keeps a stream open until ctx ends or a failure is final. If err is not nil, the subscription
// ends at once with it.
func (s *Subscription) run(ctx context.Context, err error) {
	defer close(s.done)
	defer s.cancel()
	if err == nil {
		err = s.keepOpen(ctx)
	}
	s.mu.Lock()
	s.err, s.stream = err, nil
	closed := s.closed
	s.mu.Unlock()
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
		name:       "subscription",
		connecting: func() { s.setState(StateChange{State: StateConnecting}) },
		follow:     func(ctx context.Context, call *streamCall) error { return s.follow(life, ctx, call) },
		reopenNow:  s.loseRefused,
		waiting: func(end *streamEnd, wait time.Duration) {
			s.setState(StateChange{State: StateWaiting, Err: end.err, Wait: wait, Addr: end.node.name()})
		},
	})
}

// follow opens one stream and handles its frames until it ends. life is the subscription's context.
func (s *Subscription) follow(life, ctx context.Context, call *streamCall) error {
	current := &stream{cancel: call.cancel}
	defer s.endStream(current)
	incoming, err := call.node.Message.Subscribe(ctx, s.beginStream(current))
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
			s.onLive(ctx, current, call.node, info)
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

// beginStream makes current the subscription's stream and returns its request, with each channel's
// current position.
func (s *Subscription) beginStream(current *stream) *parleyv1.SubscribeRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = current
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
// still its stream.
func (s *Subscription) endStream(current *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == current {
		s.stream = nil
	}
}

// onLive records the stream's id and requests the changes of channels that were made since the
// stream's request.
func (s *Subscription) onLive(ctx context.Context, current *stream, node *endpoint, info *parleyv1.StreamInfo) {
	s.mu.Lock()
	current.id, s.wasLive = info.GetStreamId(), true
	late := len(current.removed) > 0
	for _, ch := range s.channels {
		late = late || !ch.onStream && ch.active()
	}
	s.mu.Unlock()
	s.setState(StateChange{State: StateLive, Addr: node.addr})
	if !late {
		return
	}
	s.work.Go(func() {
		if err := s.catchUp(ctx, current); err != nil {
			current.cancel(err)
		}
	})
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
