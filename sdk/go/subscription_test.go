package parley_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

func post(s *parleytest.Server, channel string, n int) {
	for i := range n {
		s.Post(channel, "bob", fmt.Sprint(i))
	}
}

// states records a subscription's states.
type states struct {
	mu  sync.Mutex
	all []parley.StateChange
}

func (r *states) option() parley.SubscribeOption {
	return parley.OnState(func(c parley.StateChange) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all = append(r.all, c)
	})
}

func (r *states) list() []parley.StateChange {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// TestResumeAfterStreamEnds ends streams repeatedly: reset, with an error, with the advice to
// reconnect, or by a restart of the server. Entries that are posted before, meanwhile and after
// must be delivered once, in order.
func TestResumeAfterStreamEnds(t *testing.T) {
	t.Parallel()
	for name, breakIt := range map[string]func(s *parleytest.Server){
		"broken off": func(s *parleytest.Server) { s.EndStreams(nil) },
		"slow consumer": func(s *parleytest.Server) {
			s.EndStreams(parleytest.Error(connect.CodeResourceExhausted, parleyv1.ErrorReason_ERROR_REASON_SLOW_CONSUMER))
		},
		"shutting down": func(s *parleytest.Server) {
			s.EndStreams(parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN))
		},
		"a reason of the future": func(s *parleytest.Server) { s.EndStreams(parleytest.Error(connect.CodeUnknown, 999)) },
		"advice":                 func(s *parleytest.Server) { s.Advise(20 * time.Millisecond) },
		"killed":                 func(s *parleytest.Server) { s.Kill(); s.Restart() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := parleytest.Start(t)
			post(s, "room", 4)
			sub := subscribe(t, newClient(t, s.Addr()), parley.After(parley.Position{ChannelID: "room", Seq: 1}), parley.Live("idle"))
			wantEntries(t, sub, "room", 2, 4)
			next := int64(5)
			for range 3 {
				breakIt(s)
				post(s, "room", 5)
				wantEntries(t, sub, "room", next, next+4)
				next += 5
				waitStreams(t, s, 1)
			}
			wantQuiet(t, sub)
		})
	}
}

// TestRepeatedFramesAreDropped makes the server send each frame twice. Each entry must be delivered
// once, on the same stream.
func TestRepeatedFramesAreDropped(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.SetRepeat(true)
	post(s, "room", 10)
	sub := subscribe(t, newClient(t, s.Addr()), parley.FromStart("room"))
	wantEntries(t, sub, "room", 1, 10)
	post(s, "room", 3)
	wantEntries(t, sub, "room", 11, 13)
	wantQuiet(t, sub)
	if n := len(parleytest.RequestsOf[*parleyv1.SubscribeRequest](s)); n != 1 {
		t.Errorf("%d streams, want 1: a repeated frame must not end the stream", n)
	}
}

// TestLiveStartResumesFromFirstState breaks the stream of a live subscription after the
// ChannelState, before the first entry. Entries that are posted before the next stream must be
// delivered.
func TestLiveStartResumesFromFirstState(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	post(s, "room", 3)
	sub := subscribe(t, newClient(t, s.Addr()), parley.Live("room"))
	if e := nextEvent(t, sub, parley.EventChannelState); e.Seq != 3 || e.Channel.GetCount() != 3 {
		t.Fatalf("state: %+v", e)
	}
	s.Kill()
	post(s, "room", 2)
	s.Restart()
	wantEntries(t, sub, "room", 4, 5)
}

// TestSilentStreamIsDead makes the server silent. The subscription must open another stream after
// 2.5 heartbeat intervals, and not before.
func TestSilentStreamIsDead(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	const interval = 80 * time.Millisecond
	s.SetHeartbeat(interval)
	var seen states
	sub := subscribe(t, newClient(t, s.Addr()), parley.Live("room"), seen.option())
	nextEvent(t, sub, parley.EventChannelState)
	// Heartbeats without events must keep the stream alive.
	<-time.After(4 * interval)
	for _, c := range seen.list() {
		if c.State == parley.StateWaiting {
			t.Fatalf("a stream with heartbeats ended: %v", c.Err)
		}
	}
	s.SetSilent(true)
	s.Post("room", "bob", "unheard")
	eventually(t, func() error {
		for _, c := range seen.list() {
			if c.State == parley.StateWaiting {
				return nil
			}
		}
		return errors.New("the subscription is still live")
	})
	s.SetSilent(false)
	wantEntries(t, sub, "room", 1, 1)
	var waited error
	for _, c := range seen.list() {
		if c.State == parley.StateWaiting && waited == nil {
			waited = c.Err
		}
	}
	if e := asError(t, waited); e.Code != connect.CodeUnavailable || !e.Retryable {
		t.Errorf("the silent stream ended with %+v", e)
	}
}

// TestSlowProgramKeepsStream takes no events for longer than the silence after which a stream
// counts as dead. The client must not end the stream.
func TestSlowProgramKeepsStream(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	const interval = 200 * time.Millisecond
	s.SetHeartbeat(interval)
	var seen states
	post(s, "room", 100)
	sub := subscribe(t, newClient(t, s.Addr()), parley.FromStart("room"), seen.option())
	waitStreams(t, s, 1)
	<-time.After(8 * interval)
	wantEntries(t, sub, "room", 1, 100)
	for _, c := range seen.list() {
		if c.State == parley.StateWaiting {
			t.Errorf("the stream ended: %v", c.Err)
		}
	}
}

// TestExpiredTokenIsReplacedOnTheStream ends the stream with TOKEN_EXPIRED. The subscription must
// continue with a new token.
func TestExpiredTokenIsReplacedOnTheStream(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	var minted atomic.Int32
	s.SetTokens("token-1")
	c := newClient(t, s.Addr(), parley.WithTokenSource(func(context.Context) (string, error) {
		return fmt.Sprintf("token-%d", minted.Add(1)), nil
	}))
	sub := subscribe(t, c, parley.Live("room"))
	nextEvent(t, sub, parley.EventChannelState)
	for i := int64(2); i <= 4; i++ {
		s.SetTokens(fmt.Sprintf("token-%d", i))
		s.Post("room", "bob", "after the token's end")
		wantEntries(t, sub, "room", i-1, i-1)
	}
	if got := minted.Load(); got != 4 {
		t.Errorf("%d tokens, want 4", got)
	}
}

func TestFinalErrorsEndTheSubscription(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	post(s, "room", 2)
	var seen states
	sub := subscribe(t, newClient(t, s.Addr()), parley.FromStart("room"), seen.option())
	wantEntries(t, sub, "room", 1, 2)
	s.EndStreams(parleytest.Error(connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING))
	var got error
	for _, err := range sub.Events() {
		got = err
	}
	if !errors.Is(got, parley.ErrCapabilityMissing) || !errors.Is(sub.Err(), parley.ErrCapabilityMissing) {
		t.Errorf("ended with %v, Err gives %v", got, sub.Err())
	}
	var names []string
	for _, c := range seen.list() {
		names = append(names, c.State.String())
	}
	if want := []string{"connecting", "live", "ended"}; !slices.Equal(names, want) {
		t.Errorf("states %v, want %v", names, want)
	}
	expired := newClient(t, s.Addr())
	s.SetTokens("another")
	if _, err := subscribe(t, expired, parley.Live("room")).Next(testContext(t)); !errors.Is(err, parley.ErrTokenExpired) {
		t.Errorf("an expired token without a source: %v", err)
	}
}

// TestPositionFollowsTakenEvents checks that Position covers the events that Next has returned, not
// those that only arrived.
func TestPositionFollowsTakenEvents(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	post(s, "room", 9)
	c := newClient(t, s.Addr())
	sub := subscribe(t, c, parley.FromStart("room"), parley.Live("idle"))
	wantEntries(t, sub, "room", 1, 4)
	p, ok := sub.Position("room")
	if want := (parley.Position{ChannelID: "room", Seq: 4, Epoch: "epoch-1"}); !ok || p != want {
		t.Fatalf("position %+v, %v; want %+v", p, ok, want)
	}
	sub.Close()
	if _, err := sub.Next(testContext(t)); !errors.Is(err, parley.ErrClosed) {
		t.Errorf("next after close: %v", err)
	}
	for range sub.Events() {
		t.Errorf("an event after close")
	}
	wantEntries(t, subscribe(t, c, parley.After(p)), "room", 5, 9)
}

func TestSubscriptionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	sub := newClient(t, s.Addr()).Subscribe(ctx, parley.Live("room"))
	nextEvent(t, sub, parley.EventChannelState)
	cancel()
	if _, err := sub.Next(testContext(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("next: %v", err)
	}
	sub.Close()
	if sub.State() != parley.StateEnded {
		t.Errorf("state is %s", sub.State())
	}
	waitStreams(t, s, 0)
}

// TestManyStreamsOneConnection checks that a client uses one connection for all its streams and
// calls.
func TestManyStreamsOneConnection(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	c := newClient(t, s.Addr())
	if _, err := c.Send(testContext(t), "room", "hello"); err != nil {
		t.Fatalf("send: %v", err)
	}
	for range 20 {
		nextEvent(t, subscribe(t, c, parley.FromStart("room")), parley.EventSent)
	}
	if got := s.Connections(); got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
}
