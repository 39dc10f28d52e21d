package rpc

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/fanout"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/rpc/authn"
	"github.com/parleyhq/parley/server/internal/testkit"
)

type stream = connect.ServerStreamForClient[parleyv1.SubscribeResponse]

// subscribe opens a Subscribe stream that is closed when the test ends. It returns the stream and
// the StreamInfo in its first frame.
func subscribe(
	t *testing.T, c parleyv1connect.MessageServiceClient, channels ...*parleyv1.ChannelPosition,
) (*stream, *parleyv1.StreamInfo) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	s, err := c.Subscribe(ctx, &parleyv1.SubscribeRequest{Channels: channels})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // the cancel has ended it
	if !s.Receive() {
		t.Fatal(s.Err())
	}
	if s.Msg().GetInfo().GetStreamId() == "" {
		t.Fatalf("first frame is %v", s.Msg())
	}
	return s, proto.CloneOf(s.Msg().GetInfo())
}

// events receives events until it has n of them, in any number of frames.
func events(t *testing.T, s *stream, n int) []*parleyv1.ChannelEvent {
	t.Helper()
	var out []*parleyv1.ChannelEvent
	for len(out) < n {
		if !s.Receive() {
			t.Fatalf("after %d events: %v", len(out), s.Err())
		}
		for _, e := range s.Msg().GetEvents().GetEvents() {
			out = append(out, proto.CloneOf(e))
		}
	}
	return out
}

func from(channel string, seq int64) *parleyv1.ChannelPosition {
	return &parleyv1.ChannelPosition{ChannelId: channel, AfterSeq: &seq}
}

// Over all four protocols a stream has the same frames: state, replay and live events, also for
// channels that another call adds and removes.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	for i, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			b.log.append("a", nil)
			b.log.append("a", nil)
			c := b.client(i, b.token)
			s, info := subscribe(t, c, from("a", 1))
			if info.GetHeartbeatInterval().AsDuration() != 15*time.Second {
				t.Errorf("info is %v", info)
			}
			state := func(channel string, seq, head int64) *parleyv1.ChannelEvent {
				return &parleyv1.ChannelEvent{ChannelId: channel, Seq: seq, Event: &parleyv1.ChannelEvent_State{
					State: &parleyv1.ChannelState{Epoch: "e1", OldestSeq: 1, HeadSeq: head, Count: head, Recovered: true},
				}}
			}
			sent := func(channel string, seq int64) *parleyv1.ChannelEvent {
				return &parleyv1.ChannelEvent{ChannelId: channel, Seq: seq, FromSeq: seq, Event: &parleyv1.ChannelEvent_Sent{Sent: wireMessage(channel, seq)}}
			}
			check := func(got []*parleyv1.ChannelEvent, want ...*parleyv1.ChannelEvent) {
				t.Helper()
				if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
					t.Fatal(diff)
				}
			}
			check(events(t, s, 2), state("a", 1, 2), sent("a", 2))
			b.log.append("a", nil)
			check(events(t, s, 1), sent("a", 3))
			update := &parleyv1.UpdateSubscriptionRequest{
				StreamId: info.GetStreamId(), Add: []*parleyv1.ChannelPosition{from("b", 0)}, Remove: []string{"a", "never-had"},
			}
			if _, err := c.UpdateSubscription(t.Context(), update); err != nil {
				t.Fatal(err)
			}
			check(events(t, s, 1), state("b", 0, 0))
			b.log.append("a", nil)
			b.log.append("b", nil)
			check(events(t, s, 1), sent("b", 1))
		})
	}
}

func TestSubscribeRefusals(t *testing.T) {
	t.Parallel()
	for i, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(s *settings) {
				s.hub.MaxChannelsPerStream, s.hub.MaxStreamsPerSubject = 3, 2
			})
			rooms := b.mint("bob", []ident.Capability{
				{Pattern: "room-*", Actions: []ident.Action{ident.Subscribe}}, {Pattern: "*", Actions: []ident.Action{ident.History}},
			})
			ada, bob := b.client(i, b.token), b.client(i, rooms)
			refused := func(c parleyv1connect.MessageServiceClient, req *parleyv1.SubscribeRequest) (*parleyv1.ErrorDetail, error) {
				t.Helper()
				s, err := c.Subscribe(t.Context(), req)
				if err == nil {
					if s.Receive() {
						t.Errorf("got frame %v", s.Msg())
					}
					err = s.Err()
					_ = s.Close()
				}
				detail, _ := details(t, err)
				b.logged.oneLine(t)
				return detail, err
			}
			d, err := refused(bob, &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{
				from("room-1", 0), from("hall", 0), from("attic", 0),
			}})
			named := d.GetPositions()
			if connect.CodeOf(err) != connect.CodePermissionDenied || d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING ||
				d.GetField() != "channels[1].channel_id" || len(named) != 2 || named[0].GetChannelId() != "hall" || named[1].GetChannelId() != "attic" {
				t.Errorf("two channels not allowed: %v, %v", err, d)
			}
			d, err = refused(ada, &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{from("a", 0), from("a.*", 0)}})
			if connect.CodeOf(err) != connect.CodeInvalidArgument || d.GetField() != "channels[1].channel_id" {
				t.Errorf("bad channel: %v, %v", err, d)
			}
			d, err = refused(ada, &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{from("a", 0), {ChannelId: "b", Epoch: "\x00"}}})
			if connect.CodeOf(err) != connect.CodeInvalidArgument || d.GetField() != "channels[1].epoch" {
				t.Errorf("NUL: %v, %v", err, d)
			}
			d, err = refused(ada, &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{from("a", 0), from("b", 0), from("c", 0), from("d", 0)}})
			if connect.CodeOf(err) != connect.CodeResourceExhausted || d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED || d.GetLimit() != 3 {
				t.Errorf("too many channels: %v, %v", err, d)
			}
			s1, info := subscribe(t, bob, from("room-1", 0))
			s2, _ := subscribe(t, bob)
			d, err = refused(bob, &parleyv1.SubscribeRequest{})
			if connect.CodeOf(err) != connect.CodeResourceExhausted || d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_NODE_FULL || d.GetLimit() != 2 {
				t.Errorf("too many streams: %v, %v", err, d)
			}
			update := func(c parleyv1connect.MessageServiceClient, id, add string) (connect.Code, parleyv1.ErrorReason) {
				t.Helper()
				_, err := c.UpdateSubscription(t.Context(), &parleyv1.UpdateSubscriptionRequest{
					StreamId: id, Add: []*parleyv1.ChannelPosition{from(add, 0)}, Remove: []string{"room-1"},
				})
				d, _ := details(t, err)
				b.logged.oneLine(t)
				return connect.CodeOf(err), d.GetReason()
			}
			notFound := parleyv1.ErrorReason_ERROR_REASON_STREAM_NOT_FOUND
			if code, reason := update(ada, info.GetStreamId(), "room-2"); code != connect.CodeNotFound || reason != notFound {
				t.Errorf("another's stream: %v %v", code, reason)
			}
			if code, reason := update(ada, "nobodys", "room-2"); code != connect.CodeNotFound || reason != notFound {
				t.Errorf("no stream: %v %v", code, reason)
			}
			if code, _ := update(bob, info.GetStreamId(), "hall"); code != connect.CodePermissionDenied {
				t.Errorf("channel not allowed: %v", code)
			}
			events(t, s1, 1)
			b.log.append("room-1", nil)
			events(t, s1, 1) // the refused calls have not removed it
			for _, s := range []*stream{s1, s2} {
				_ = s.Close()
			}
			testkit.Eventually(t, 5*time.Second, func() error { // a client that leaves releases everything
				s, err := b.hub.Open("bob", time.Time{})
				if err != nil {
					return err
				}
				defer s.Close()
				other, err := b.hub.Open("bob", time.Time{})
				if err != nil {
					return err
				}
				other.Close()
				return nil
			})
		})
	}
}

func TestStreamEnds(t *testing.T) {
	t.Parallel()
	for i, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			b.log.append("a", nil)
			short, err := authn.Mint(secret, &ident.Principal{Subject: "bob", Channels: everything}, 2*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			expiring, _ := subscribe(t, b.client(i, short), from("a", 0))
			events(t, expiring, 2)
			if expiring.Receive() {
				t.Errorf("got %v", expiring.Msg())
			}
			d, _ := details(t, expiring.Err())
			if connect.CodeOf(expiring.Err()) != connect.CodeUnauthenticated || !d.GetRetryable() ||
				d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_TOKEN_EXPIRED || len(d.GetPositions()) != 1 || d.GetPositions()[0].GetSeq() != 1 {
				t.Errorf("at the token's end: %v, %v", expiring.Err(), d)
			}
			draining, _ := subscribe(t, b.client(i, b.token), from("a", 1))
			events(t, draining, 1)
			if err := b.hub.Drain(t.Context(), 3*time.Second); err != nil {
				t.Fatal(err)
			}
			if !draining.Receive() || draining.Msg().GetReconnect().GetWithin().AsDuration() != 3*time.Second {
				t.Errorf("advice is %v, %v", draining.Msg(), draining.Err())
			}
			if draining.Receive() {
				t.Errorf("got %v", draining.Msg())
			}
			d, _ = details(t, draining.Err())
			if connect.CodeOf(draining.Err()) != connect.CodeUnavailable || d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN {
				t.Errorf("at the drain: %v, %v", draining.Err(), d)
			}
		})
	}
}

// A stream lives longer than all timeouts of unary calls and of idle connections.
func TestStreamOutlivesTimeouts(t *testing.T) {
	t.Parallel()
	for i, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(s *settings) {
				s.cfg.HeartbeatInterval, s.cfg.FrameTimeout = 50*time.Millisecond, 300*time.Millisecond
				s.cfg.BodyTimeout, s.cfg.UnaryTimeout = 200*time.Millisecond, 200*time.Millisecond
				s.tweak = func(hs *http.Server) {
					hs.ReadHeaderTimeout, hs.IdleTimeout = 200*time.Millisecond, 200*time.Millisecond
				}
			})
			s, _ := subscribe(t, b.client(i, b.token))
			for start := time.Now(); time.Since(start) < time.Second; {
				if !s.Receive() {
					t.Fatalf("ended after %v: %v", time.Since(start), s.Err())
				}
				if s.Msg().GetHeartbeat() == nil {
					t.Errorf("got %v", s.Msg())
				}
			}
		})
	}
}

// A stream ends if its client stays connected and does not read. The time limit for writing a frame
// ends it, long before its queue is full.
func TestStalledReaderEndsStream(t *testing.T) {
	t.Parallel()
	for i, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(s *settings) {
				s.cfg.HeartbeatInterval, s.cfg.FrameTimeout = 100*time.Millisecond, 2*time.Second
				s.hub.QueueBytes, s.hub.QueueEvents = 1<<30, 1<<20
			})
			s, info := subscribe(t, b.client(i, b.token), from("a", 0))
			events(t, s, 1)
			for range 500 { // 30 MB: more than the buffers in between hold
				b.log.append("a", func(e *message.Event) { e.Message.Content = strings.Repeat("x", 60_000) })
			}
			line := b.logged.oneLine(t)
			if text, _ := line["error"].(string); line["code"] != "unavailable" || !strings.Contains(text, "not read for 2s") {
				t.Errorf("logged %v", line)
			}
			if err := b.hub.Update(info.GetStreamId(), "ada", fanout.Change{}); err == nil {
				t.Error("the stream still lives")
			}
			for s.Receive() { // frames that were in flight
			}
			if s.Err() == nil {
				t.Error("the stream ended well")
			}
		})
	}
}

// Every entry of a log is covered by exactly one event of a stream: the events of a replay and the
// live ones after them are consecutive. Events of other kinds, such as a state, cover no entry.
func TestEventsCoverEveryEntry(t *testing.T) {
	t.Parallel()
	for i, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			kinds := []message.Kind{message.KindSend, message.KindEdit, message.KindRecall, message.KindComplete}
			write := func(n int) {
				for range n {
					b.log.append("a", func(e *message.Event) { e.Kind = kinds[e.Seq%4] })
				}
			}
			write(7)
			s, _ := subscribe(t, b.client(i, b.token), from("a", 2))
			got := events(t, s, 3) // the replay has begun
			write(5)
			got = append(got, events(t, s, 1+12-2-len(got))...)
			if got[0].GetState() == nil || got[0].GetFromSeq() != 0 {
				t.Fatalf("first: %v", got[0])
			}
			position := got[0].GetSeq()
			for _, e := range got[1:] {
				m := [...]*parleyv1.ChannelMessage{e.GetSent(), e.GetEdited(), e.GetRecalled(), e.GetClosed()}[e.GetSeq()%4]
				if e.GetFromSeq() != position+1 || e.GetSeq() != e.GetFromSeq() || m == nil {
					t.Fatalf("after %d: %v", position, e)
				}
				position = e.GetSeq()
			}
			if position != 12 {
				t.Errorf("the events end at %d", position)
			}
			b.log.typing("a", "bob")
			if e := events(t, s, 1)[0]; e.GetTyping() == nil || e.GetFromSeq() != 0 || e.GetSeq() != 0 {
				t.Errorf("typing: %v", e)
			}
			s, _ = subscribe(t, b.client(i, b.token), from("a", 99))
			if got := events(t, s, 2); got[1].GetGap().GetAfterSeq() != 99 || got[1].GetGap().GetToSeq() != 12 || got[1].GetSeq() != 12 || got[1].GetFromSeq() != 0 {
				t.Errorf("ahead of the log: %v", got)
			}
		})
	}
}

func TestSlowReaderGetsLastPosition(t *testing.T) {
	t.Parallel()
	for i, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(s *settings) { s.hub.QueueBytes, s.hub.QueueEvents = 256<<10, 8 })
			s, info := subscribe(t, b.client(i, b.token), from("a", 0))
			events(t, s, 1)
			big := func(e *message.Event) { e.Message.Content = strings.Repeat("x", 60_000) }
			testkit.Eventually(t, 10*time.Second, func() error {
				b.log.append("a", big)
				if err := b.hub.Update(info.GetStreamId(), "ada", fanout.Change{}); err == nil {
					return errors.New("the stream was not cut")
				}
				return nil
			})
			last := int64(0)
			for s.Receive() {
				for _, e := range s.Msg().GetEvents().GetEvents() {
					if e.GetSeq() != last+1 {
						t.Fatalf("event %d follows %d", e.GetSeq(), last)
					}
					last = e.GetSeq()
				}
			}
			d, _ := details(t, s.Err())
			if connect.CodeOf(s.Err()) != connect.CodeResourceExhausted || d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_SLOW_CONSUMER ||
				len(d.GetPositions()) != 1 || d.GetPositions()[0].GetSeq() != last || last == 0 {
				t.Errorf("read up to %d, then %v, %v", last, s.Err(), d)
			}
		})
	}
}
