package parley

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// refusalOf returns why the channels are lost that the positions of e name. ok is false if e does
// not refuse channels.
func refusalOf(e *Error) (reason parleyv1.LostReason, ok bool) {
	switch {
	case len(e.Positions) == 0:
	case errors.Is(e, ErrNotMember):
		return parleyv1.LostReason_LOST_REASON_NOT_MEMBER, true
	case errors.Is(e, ErrChannelNotFound):
		return parleyv1.LostReason_LOST_REASON_DELETED, true
	case errors.Is(e, ErrCapabilityMissing):
		return parleyv1.LostReason_LOST_REASON_CAPABILITY_MISSING, true
	}
	return 0, false
}

// loseRefused marks the channels as lost for which the server refused a stream. It reports
// whether to open the next stream at once without them. It returns false for the first stream of a
// subscription: the program receives that refusal.
func (s *Subscription) loseRefused(ctx context.Context, end *streamEnd) bool {
	e, ok := errors.AsType[*Error](end.err)
	if !ok {
		return false
	}
	reason, ok := refusalOf(e)
	if !ok {
		return false
	}
	var frame []queued
	s.mu.Lock()
	if !s.wasLive {
		s.mu.Unlock()
		return false
	}
	for _, p := range e.Positions {
		ch := s.channels[p.ChannelID]
		if ch == nil || !ch.active() {
			continue
		}
		event := ch.markLost(&parleyv1.ChannelLost{Reason: reason})
		frame = append(frame, queued{Event: event, channel: ch})
	}
	s.mu.Unlock()
	if len(frame) == 0 {
		// The channels were removed meanwhile, or the server refused channels that were not
		// requested. The client waits, so that the server cannot keep it in a busy loop.
		end.err = &Error{
			Code: connect.CodeAborted, Retryable: true, Message: "the server refused channels that are not followed", cause: e,
		}
		return false
	}
	s.client.log.WarnContext(ctx, "subscription lost channels", "channels", len(frame), "addr", end.node.name())
	s.enqueue(ctx, frame)
	return true
}
