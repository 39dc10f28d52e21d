package rpc

import (
	"context"
	"errors"
	"io"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fanout"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/presence"
)

// subscribeWithPresence serves a Subscribe whose request has presence.
func (s *messageService) subscribeWithPresence(
	ctx context.Context, req *parleyv1.SubscribeRequest, stream *connect.ServerStream[parleyv1.SubscribeResponse],
) error {
	events, err := s.open(ctx, req.GetChannels())
	if err != nil {
		return err
	}
	defer events.Close()
	// What the stream watches was allowed by the tokens of several calls, so no token can replace
	// them.
	events.KeepToken(fault.Invalid("renew_token", 0, "renew_token: a stream with presence keeps its token"))
	live, update, err := s.presence.open(ctx, req.GetPresence(), inPresence, events)
	if err != nil {
		return err
	}
	defer live.Close()
	defer s.presence.leaveIfEnded(ctx, live.ID())
	showLogin(ctx, live, req.GetPresence())
	out, err := s.writeInfo(ctx, stream, events.ID())
	if err == nil {
		err = s.writePresenceInfo(ctx, out, live, update)
	}
	if err != nil {
		return err
	}
	return writeFrames(ctx, out, &joined{events: events, states: live, poll: live}, writeJoinedFrame)
}

// writePresenceInfo writes the second frame, and more if the first states do not fit into it.
func (s *messageService) writePresenceInfo(
	ctx context.Context, out *frameWriter[*frame], live PresenceStream, first *presence.Update,
) error {
	info, rest := s.presence.presenceInfo(ctx, live, first)
	err := out.write(ctx, &frame{head: encoded(&parleyv1.SubscribeResponse{
		Frame: &parleyv1.SubscribeResponse_PresenceInfo{PresenceInfo: info},
	})})
	for ; err == nil && len(rest) > 0; rest = rest[1:] {
		err = out.write(ctx, presenceFrame(rest[0]))
	}
	return err
}

func presenceFrame(u *parleyv1.PresenceUpdate) *frame {
	return &frame{head: encoded(&parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Presence{Presence: u}})}
}

func writeJoinedFrame(ctx context.Context, out *frameWriter[*frame], f joinedFrame) error {
	if f.update == nil {
		return writeHubFrame(ctx, out, f.Frame)
	}
	for _, u := range updatesToWire(f.update) {
		if err := out.write(ctx, presenceFrame(u)); err != nil {
			return err
		}
	}
	return nil
}

// joined is a Subscribe stream with presence: a stream of events, and the presence that rides on
// it. Heartbeats, the advice to reconnect and the end are those of the events.
//
//   - If the presence ends without a failure, the events continue.
//
//   - If it fails, which a replaced login is too, the stream of events ends for the same reason,
//     with the client's positions.
//
//   - If it must continue on another node, or its node shuts down, the stream of events drains.
type joined struct {
	events *fanout.Stream
	states PresenceStream
	// poll is states until the presence has ended, and then nil.
	poll PresenceStream
	// statesFirst alternates, so that neither holds up the other.
	statesFirst bool
}

// joinedFrame is a frame of either.
type joinedFrame struct {
	fanout.Frame

	update *presence.Update // nil for a frame of the events
}

// reconnectSpread is the time over which clients reconnect whose presence has ended because of a
// shutdown, without advice.
const reconnectSpread = time.Second

// Next implements frameSource.
func (j *joined) Next(ctx context.Context) (f joinedFrame, err error) {
	for {
		if j.step(&f, &err) {
			return f, err
		}
		// Only this select is on the stack of an idle stream.
		select {
		case <-j.events.Wakeup():
		case <-j.states.Wakeup():
		case <-ctx.Done():
			return f, ctx.Err()
		}
	}
}

// step returns true if there is a frame or the stream has ended, and sets f and err.
func (j *joined) step(f *joinedFrame, err *error) bool {
	if j.statesFirst && j.stepStates(f) {
		return true
	}
	var ok bool
	if f.Frame, ok, *err = j.events.Poll(); ok || *err != nil {
		j.statesFirst = true
		return true
	}
	// If this ends the events, their Wakeup is ready.
	return !j.statesFirst && j.stepStates(f)
}

// stepStates returns true if there is an update, and sets f.
func (j *joined) stepStates(f *joinedFrame) bool {
	for j.poll != nil {
		state, ok, err := j.poll.Poll(time.Now())
		switch {
		case err != nil:
			j.ended(err)
		case !ok:
			return false
		case state.Reconnect > 0:
			j.ended(nil)
			j.events.Drain(state.Reconnect)
		case state.Update != nil:
			j.statesFirst = false
			j.events.Sent()
			f.update = state.Update
			return true
		}
	}
	return false
}

// ended ends the presence, and with it the events unless it ended on purpose.
func (j *joined) ended(err error) {
	j.poll.Close()
	j.poll = nil
	f, ok := fault.As(err)
	switch {
	case err == nil, errors.Is(err, io.EOF):
	case ok && f.Reason == fault.ShuttingDown:
		j.events.Drain(reconnectSpread)
	case ok:
		j.events.End(f)
	default:
		j.events.End(fault.Wrap(err, fault.Internal, fault.InternalError, "internal error"))
	}
}
