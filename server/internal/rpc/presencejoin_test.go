package rpc

import (
	"io"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/presence"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// subscriber returns a token that may subscribe to channels that begin with `room`, connect and
// watch.
func (b *bundle) subscriber() string { return b.mintAs(present("ada", ident.Connect, ident.Watch)) }

// next receives the next frame of a Subscribe stream.
func next(t *testing.T, s *stream) *parleyv1.SubscribeResponse {
	t.Helper()
	if !s.Receive() {
		t.Fatal(s.Err())
	}
	return proto.CloneOf(s.Msg())
}

// joinedStream opens a Subscribe stream of channel `room` with presence, and receives its two first
// frames.
func joinedStream(t *testing.T, b *bundle, protocol int) (*stream, *fakePresenceStream) {
	t.Helper()
	s, err := receiveSubscribe(t, b.client(protocol, b.subscriber()), &parleyv1.SubscribeRequest{
		Channels: []*parleyv1.ChannelPosition{from("room", 0)}, Presence: device(nil),
	})
	if err != nil {
		t.Fatal(err)
	}
	id := s.Msg().GetInfo().GetStreamId()
	live := b.presence.stream()
	if id == "" || live.ID() != id || b.presence.request().Rides.Subject != "ada" {
		t.Errorf("the stream is %q, its presence %q", id, live.ID())
	}
	if info := next(t, s).GetPresenceInfo(); info.GetConnectionId() != "C1" || info.GetLoginToken() == "" {
		t.Errorf("second frame: %v", info)
	}
	return s, live
}

func usersUpdate(ids ...string) presence.Frame {
	return presence.Frame{Update: &presence.Update{Users: statesOf(ids)}}
}

// wantState receives frames until one has the presence of the user.
func wantState(t *testing.T, s *stream, id string) {
	t.Helper()
	want := &parleyv1.PresenceUpdate{Users: []*parleyv1.UserPresence{wireState(id, 0)}}
	for {
		if got := next(t, s).GetPresence(); got != nil {
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
			return
		}
	}
}

// wantEnd receives frames until the stream ends, and returns them and the detail of its error.
func wantEnd(t *testing.T, s *stream, code connect.Code, reason string) ([]*parleyv1.SubscribeResponse, *parleyv1.ErrorDetail) {
	t.Helper()
	var frames []*parleyv1.SubscribeResponse
	for s.Receive() {
		frames = append(frames, proto.CloneOf(s.Msg()))
	}
	return frames, wantRefusal(t, reason, s.Err(), code, reason, "")
}

// One stream carries events and presence, over all protocols. A kick ends all of it, with the
// client's positions.
func TestSubscribeWithPresence(t *testing.T) {
	t.Parallel()
	for i, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			b.presence.first = presence.Update{Users: []presence.UserState{{UserID: "bob", State: onWeb, Revision: 1}}}
			b.log.append("room", nil)
			s, live := joinedStream(t, b, i)
			got := events(t, s, 2)
			if got[0].GetState() == nil || got[1].GetSent() == nil {
				t.Errorf("events %v", got)
			}
			live.send(usersUpdate("bob"))
			wantState(t, s, "bob")
			b.log.append("room", nil)
			if e := events(t, s, 1)[0]; e.GetSeq() != 2 {
				t.Errorf("event %v", e)
			}
			kick := fault.New(fault.FailedPrecondition, fault.Kicked, "kicked")
			kick.Kick = &fault.Kick{Cause: 1, Platform: 1, Device: "d2", Connection: "C2"}
			live.fail(kick)
			_, d := wantEnd(t, s, connect.CodeFailedPrecondition, "KICKED")
			want := &parleyv1.ErrorDetail{
				Reason: parleyv1.ErrorReason_ERROR_REASON_KICKED, RequestId: d.GetRequestId(),
				Positions: []*parleyv1.LastPosition{{ChannelId: "room", Seq: 2, Epoch: "e1"}},
				Kick: &parleyv1.Kick{
					Cause: parleyv1.KickCause_KICK_CAUSE_LOGIN, Platform: parleyv1.Platform_PLATFORM_IOS, DeviceId: "d2", ConnectionId: "C2",
				},
			}
			if diff := cmp.Diff(want, d, protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
			testkit.Eventually(t, 5*time.Second, func() error {
				if !live.isClosed() {
					return io.ErrNoProgress
				}
				return nil
			})
		})
	}
}

// The events of a stream continue after Disconnect.
func TestDisconnectLeavesTheEvents(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	s, live := joinedStream(t, b, 2)
	events(t, s, 1)
	live.send(usersUpdate("bob"))
	live.fail(io.EOF)
	wantState(t, s, "bob")
	b.log.append("room", nil)
	if e := events(t, s, 1)[0]; e.GetSeq() != 1 || !live.isClosed() {
		t.Errorf("event %v, presence closed %v", e, live.isClosed())
	}
}

// If the presence must continue on another node, the whole stream does.
func TestPresenceMovesTheWholeStream(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for name, end := range map[string]func(live *fakePresenceStream){
		"advice":   func(live *fakePresenceStream) { live.send(presence.Frame{Reconnect: time.Second}) },
		"shutdown": func(live *fakePresenceStream) { live.fail(fault.New(fault.Unavailable, fault.ShuttingDown, "away")) },
	} {
		s, live := joinedStream(t, b, 1)
		events(t, s, 1)
		end(live)
		frames, d := wantEnd(t, s, connect.CodeUnavailable, "SHUTTING_DOWN")
		if n := len(frames); n != 1 || frames[0].GetReconnect().GetWithin().AsDuration() != time.Second || len(d.GetPositions()) != 1 {
			t.Errorf("%s: %v, %v", name, frames, d)
		}
	}
	s, live := joinedStream(t, b, 0)
	live.fail(fault.New(fault.Unauthenticated, fault.TokenExpired, "expired"))
	if _, d := wantEnd(t, s, connect.CodeUnauthenticated, "TOKEN_EXPIRED"); len(d.GetPositions()) != 1 {
		t.Errorf("positions %v", d.GetPositions())
	}
}

// Neither events nor states hold up the other.
func TestJoinedStreamAlternates(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	s, live := joinedStream(t, b, 2)
	events(t, s, 1)
	frames := make([]presence.Frame, 2000)
	for i := range frames {
		frames[i] = usersUpdate("bob")
	}
	live.send(frames...)
	b.log.append("room", nil)
	states := 0
	for {
		f := next(t, s)
		if f.GetEvents() != nil {
			break
		}
		states++
	}
	if states == 2000 {
		t.Error("the event came after all states")
	}
	live.fail(io.EOF)
}

// A frame of presence defers the heartbeat.
func TestPresenceDefersHeartbeats(t *testing.T) {
	t.Parallel()
	b := setup(t, func(s *settings) { s.cfg.HeartbeatInterval = 300 * time.Millisecond })
	s, live := joinedStream(t, b, 2)
	events(t, s, 1)
	began := time.Now()
	for range 20 {
		live.send(usersUpdate("bob"))
		if f := next(t, s); f.GetPresence() == nil && time.Since(began) < 300*time.Millisecond {
			t.Fatalf("got %v", f)
		}
	}
	last := time.Now()
	f := next(t, s)
	for f.GetHeartbeat() == nil {
		f = next(t, s)
	}
	if waited := time.Since(last); waited < 100*time.Millisecond {
		t.Errorf("a heartbeat after %v", waited)
	}
}

// First states that do not fit into a frame of 1 MiB follow in more frames, in order.
func TestFirstStatesAreSplit(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for range 20 {
		c := presence.ChannelState{ChannelID: "room", Online: 1000, Members: 1000, Complete: true}
		for range 1000 {
			c.Users = append(c.Users, presence.UserState{UserID: strings.Repeat("u", 120), State: onWeb})
		}
		b.presence.first.Channels = append(b.presence.first.Channels, c)
	}
	token := b.subscriber()
	s := connectTo(t, b.presenceClient(2, token), device(nil))
	channels := 0
	for frames := 0; channels < 20; frames++ {
		f := receive(t, s)
		u := f.GetPresence()
		if frames == 0 {
			u = f.GetInfo().GetPresence().GetPresence()
		}
		if size := proto.Size(f); size > 1<<20+4096 || len(u.GetChannels()) == 0 {
			t.Fatalf("frame %d: %d bytes, %d channels", frames, size, len(u.GetChannels()))
		}
		channels += len(u.GetChannels())
	}
	sub, err := receiveSubscribe(t, b.client(0, token), &parleyv1.SubscribeRequest{Presence: device(nil)})
	if err != nil {
		t.Fatal(err)
	}
	for channels = len(next(t, sub).GetPresenceInfo().GetPresence().GetChannels()); channels < 20; {
		channels += len(next(t, sub).GetPresence().GetChannels())
	}
	if channels != 20 {
		t.Errorf("%d channels", channels)
	}
}
