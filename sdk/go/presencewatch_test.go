package parley_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// TestPresenceChangesWhileDisconnected changes everything between two streams. The next stream
// starts with it.
func TestPresenceChangesWhileDisconnected(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	adminOf(t, s, "room")
	// The presence stays between two streams until the changes are made.
	waiting, changed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p := online(t, userClient(t, s, "bob"), parley.WatchUsers("ann", "carl"), parley.OnState(func(c parley.StateChange) {
		if c.State == parley.StateWaiting {
			once.Do(func() { close(waiting) })
			<-changed
		}
	}))
	wantStates(t, p, "ann", "carl")
	ctx := testContext(t)
	s.Kill()
	<-waiting
	for _, err := range []error{
		p.Watch(ctx, "dora"), p.Unwatch(ctx, "ann"), p.SetBackground(ctx, true), p.WatchChannel(ctx, "room"), p.UnwatchChannel(ctx, "none"),
	} {
		if err != nil {
			t.Errorf("a change while disconnected: %v", err)
		}
	}
	before := len(parleytest.RequestsOf[*parleyv1.ConnectRequest](s))
	s.Restart()
	close(changed)
	wantStates(t, p, "dora", "room 1 of 3: bob ios(b)")
	r := parleytest.RequestsOf[*parleyv1.ConnectRequest](s)[before]
	if !slices.Equal(r.GetWatch(), []string{"carl", "dora"}) || !slices.Equal(r.GetWatchChannels(), []string{"room"}) || !r.GetBackground() {
		t.Errorf("the next stream began with %v", r)
	}
}

// TestPresenceChangesWithUnknownOutcome loses requests of changes or their answers. The calls
// succeed and the changes are made, on a new stream.
func TestPresenceChangesWithUnknownOutcome(t *testing.T) {
	t.Parallel()
	for method, change := range map[string]func(ctx context.Context, p *parley.Presence) error{
		"UpdateWatch":    func(ctx context.Context, p *parley.Presence) error { return p.Watch(ctx, "ann") },
		"WatchChannel":   func(ctx context.Context, p *parley.Presence) error { return p.WatchChannel(ctx, "room") },
		"UnwatchChannel": func(ctx context.Context, p *parley.Presence) error { return p.UnwatchChannel(ctx, "other") },
		"SetBackground":  func(ctx context.Context, p *parley.Presence) error { return p.SetBackground(ctx, true) },
	} {
		for name, fault := range map[string]parleytest.Fault{
			"lost":        {Drop: true},
			"answer lost": {Drop: true, Applied: true},
			"no stream":   {Err: parleytest.Error(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_STREAM_NOT_FOUND)},
		} {
			t.Run(method+" "+name, func(t *testing.T) {
				t.Parallel()
				s := parleytest.Start(t)
				adminOf(t, s, "room", "other")
				p := online(t, userClient(t, s, "bob"), parley.WatchChannels("other"))
				wantStates(t, p, "other 1 of 3: bob ios")
				s.FaultTimes(1, method, fault)
				if err := change(testContext(t), p); err != nil {
					t.Fatalf("change: %v", err)
				}
				eventually(t, func() error {
					requests := parleytest.RequestsOf[*parleyv1.ConnectRequest](s)
					if len(requests) != 2 {
						return fmt.Errorf("%d streams", len(requests))
					}
					r := requests[1]
					got := fmt.Sprint(r.GetWatch(), r.GetWatchChannels(), r.GetBackground())
					want := map[string]string{
						"UpdateWatch": "[ann] [other] false", "WatchChannel": "[] [other room] false",
						"UnwatchChannel": "[] [] false", "SetBackground": "[] [other] true",
					}[method]
					if got != want {
						t.Errorf("the next stream began with %s, want %s", got, want)
					}
					return nil
				})
			})
		}
	}
}

// TestRefusedWatchLeavesThePresence refuses changes. The callers get the errors, and nothing
// changes.
func TestRefusedWatchLeavesThePresence(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	remove(t, adminOf(t, s, "secret"), "secret", "bob")
	ctx := testContext(t)
	p := online(t, userClient(t, s, "bob"), parley.WatchUsers("ann"))
	s.SetActions("token of bob", "connect", "watch", "subscribe")
	wantStates(t, p, "ann")
	many := make([]string, 1200)
	for i := range many {
		many[i] = fmt.Sprint("user-", i)
	}
	err := p.Watch(ctx, many...)
	if e := asError(t, err); !errors.Is(err, parley.ErrLimitExceeded) || e.Limit != 1000 || e.Field != "add" {
		t.Errorf("too many users: %+v", e)
	}
	if err := p.WatchChannel(ctx, "open"); !errors.Is(err, parley.ErrChannelOpen) {
		t.Errorf("an open channel: %v", err)
	}
	if err := p.WatchChannel(ctx, "secret"); !errors.Is(err, parley.ErrNotMember) {
		t.Errorf("another's channel: %v", err)
	}
	if err := p.Watch(ctx, "\xff"); !errors.Is(err, parley.ErrInvalidField) {
		t.Errorf("broken text: %v", err)
	}
	s.SetActions("token of bob", "watch")
	if err := p.SetBackground(ctx, true); !errors.Is(err, parley.ErrCapabilityMissing) {
		t.Errorf("background: %v", err)
	}
	s.SetActions("token of bob", "connect", "watch", "subscribe")
	if _, ok := p.User("user-0"); ok {
		t.Error("a user whose watch was refused has a state")
	}
	if err := p.Watch(ctx, many[:999]...); err != nil {
		t.Errorf("as many as allowed: %v", err)
	}
	if n := len(parleytest.RequestsOf[*parleyv1.ConnectRequest](s)); n != 1 {
		t.Errorf("%d streams were opened", n)
	}
}

// TestRefusedChangeIsRepeated refuses a change for now. It is repeated on the same stream.
func TestRefusedChangeIsRepeated(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	adminOf(t, s, "room", "other")
	ctx := testContext(t)
	p := online(t, userClient(t, s, "bob"), parley.WatchChannels("other"))
	wantStates(t, p, "other 1 of 3: bob ios")
	for method, change := range map[string]func() error{
		"UpdateWatch":    func() error { return p.Watch(ctx, "ann") },
		"WatchChannel":   func() error { return p.WatchChannel(ctx, "room") },
		"UnwatchChannel": func() error { return p.UnwatchChannel(ctx, "other") },
		"SetBackground":  func() error { return p.SetBackground(ctx, true) },
	} {
		s.FaultTimes(3, method, parleytest.Fault{
			Err: parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE),
		})
		if err := change(); err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	newest(t, p, "ann", "ann")
	if n := len(parleytest.RequestsOf[*parleyv1.ConnectRequest](s)); n != 1 {
		t.Errorf("%d streams were opened", n)
	}
	if n := len(parleytest.RequestsOf[*parleyv1.SetBackgroundRequest](s)); n != 4 {
		t.Errorf("SetBackground was called %d times", n)
	}
	slow := online(t, userClient(t, s, "bob", parley.WithBackoff(parley.Backoff{Base: time.Hour, Max: time.Hour})))
	s.FaultTimes(1000, "UpdateWatch", parleytest.Fault{
		Err: parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE),
	})
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if err := slow.Watch(short, "carl"); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, parley.ErrStoreUnavailable) {
		t.Errorf("a change that its context ends: %v", err)
	}
	if _, ok := slow.User("carl"); ok {
		t.Error("a user whose watch failed is watched")
	}
}

// TestInterruptedChange ends the context of a change while its answer is on the way. The caller
// gets the error, and the user is not watched. The end of the presence ends a change, too.
func TestInterruptedChange(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	hc := h2cClient(t)
	hc.Transport = heldTransport{hc.Transport, "UpdateWatch", nil}
	c := userClient(t, s, "bob", parley.WithHTTPClient(hc))
	p := online(t, c)
	ctx, cancel := context.WithTimeout(testContext(t), 100*time.Millisecond)
	defer cancel()
	if err := p.Watch(ctx, "ann"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a change that its context ends: %v", err)
	}
	eventually(t, func() error {
		requests := parleytest.RequestsOf[*parleyv1.ConnectRequest](s)
		if len(requests) != 2 || p.State() != parley.StateLive {
			return fmt.Errorf("%d streams, state %s", len(requests), p.State())
		}
		if got := requests[1].GetWatch(); len(got) > 0 {
			t.Errorf("the next stream watches %v", got)
		}
		return nil
	})
	ended := make(chan error)
	go func() { ended <- p.Watch(testContext(t), "carl") }()
	eventually(t, func() error {
		if n := len(parleytest.RequestsOf[*parleyv1.UpdateWatchRequest](s)); n != 2 {
			return fmt.Errorf("%d changes", n)
		}
		return nil
	})
	p.Close()
	if err := <-ended; !errors.Is(err, parley.ErrClosed) {
		t.Errorf("a change that Close ends: %v", err)
	}
}

// TestUsersRefusedOnReconnect has the server refuse users when the presence reconnects. It loses
// them, and continues with the others.
func TestUsersRefusedOnReconnect(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	bob := userClient(t, s, "bob")
	s.SetStrangers("bob", "stranger")
	first := bob.Presence(testContext(t), phone, parley.WatchUsers("stranger"))
	t.Cleanup(first.Close)
	_, err := first.Next(testContext(t))
	if e := asError(t, err); !errors.Is(err, parley.ErrNoSharedChannel) || !slices.Equal(e.UserIDs, []string{"stranger"}) || e.Field != "watch[0]" {
		t.Errorf("a first stream with a stranger: %+v", e)
	}
	many := []string{"ann"}
	for i := range 120 {
		many = append(many, fmt.Sprintf("user-%03d", i))
	}
	p := online(t, bob, parley.WatchUsers(many...))
	wantStates(t, p, many...)
	s.SetStrangers("bob", many[1:]...)
	before := len(parleytest.RequestsOf[*parleyv1.ConnectRequest](s))
	s.EndStreams(parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN))
	for _, id := range many[1:] {
		wantStates(t, p, "user_lost "+id)
	}
	waitLive(t, p)
	requests := parleytest.RequestsOf[*parleyv1.ConnectRequest](s)[before:]
	if n := len(requests); n != 4 || !slices.Equal(requests[3].GetWatch(), []string{"ann"}) {
		t.Errorf("%d streams, the last one watches %v", n, requests[n-1].GetWatch())
	}
	// A loss that was not taken is dropped when the user is watched again.
	if err := p.Watch(testContext(t), "user-000"); !errors.Is(err, parley.ErrNoSharedChannel) {
		t.Errorf("watch a stranger: %v", err)
	}
	s.SetStrangers("bob")
	if err := p.Watch(testContext(t), "user-000"); err != nil {
		t.Errorf("watch an acquaintance: %v", err)
	}
	wantStates(t, p, "user-000")
}

// TestLostChannelOfPresence removes the user from a watched channel while the stream lives. The
// watch ends with an event, and the channel can be watched again on the same stream.
func TestLostChannelOfPresence(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	admin := adminOf(t, s, "room", "other")
	ctx := testContext(t)
	bob := userClient(t, s, "bob")
	s.SetActions("token of bob", "connect", "watch", "subscribe")
	p := online(t, bob, parley.WatchChannels("room", "other"))
	wantStates(t, p, "other 1 of 3: bob ios", "room 1 of 3: bob ios")
	remove(t, admin, "room", "bob")
	wantStates(t, p, "channel_lost room")
	if _, ok := p.Channel("room"); ok {
		t.Error("a lost channel has a state")
	}
	if err := admin.AddMembers(ctx, "room", "bob"); err != nil {
		t.Fatalf("add member: %v", err)
	}
	if err := p.WatchChannel(ctx, "room"); err != nil {
		t.Fatalf("watch again: %v", err)
	}
	wantStates(t, p, "room 1 of 3: bob ios")
	// The program does not take the loss before it watches the channel again.
	remove(t, admin, "room", "bob")
	eventually(t, func() error {
		if _, ok := p.Channel("room"); ok {
			return errors.New("the channel is still watched")
		}
		return nil
	})
	if err := admin.AddMembers(ctx, "room", "bob", "carl"); err != nil {
		t.Fatalf("add member: %v", err)
	}
	if err := p.WatchChannel(ctx, "room"); err != nil {
		t.Fatalf("watch again: %v", err)
	}
	wantStates(t, p, "room 1 of 4: bob ios")
	if n := len(parleytest.RequestsOf[*parleyv1.ConnectRequest](s)); n != 1 {
		t.Errorf("%d streams were opened", n)
	}
}

// TestPresenceOfChannel follows members of a channel on one stream and over a reconnect, and
// loses a channel whose membership ends between two streams.
func TestPresenceOfChannel(t *testing.T) {
	t.Parallel()
	fleet := parleytest.StartFleet(t, 2)
	bobs, others := fleet[0], fleet[1]
	others.SetOfflineAfter(0)
	admin := adminOf(t, others, "room", "gone")
	ann := online(t, userClient(t, others, "ann"))
	bob := userClient(t, bobs, "bob")
	bobs.SetActions("token of bob", "connect", "watch", "subscribe")
	p := online(t, bob, parley.WatchChannels("gone", "room"), parley.WatchUsers("ann"))
	wantStates(t, p, "ann ios", "gone 1 of 3: bob ios", "room 1 of 3: bob ios")
	if err := admin.AddMembers(testContext(t), "room", "ann"); err != nil {
		t.Fatalf("add member: %v", err)
	}
	wantStates(t, p, "room 2 of 4: ann ios, bob ios")
	if err := ann.SetBackground(testContext(t), true); err != nil {
		t.Fatalf("background: %v", err)
	}
	wantStates(t, p, "ann ios(b)", "room 2 of 4: ann ios(b), bob ios")
	if ch, ok := p.Channel("room"); !ok || !ch.GetComplete() || len(ch.GetOnline()) != 2 {
		t.Errorf("the channel's state: %v", ch)
	}
	bobs.Kill()
	remove(t, admin, "gone", "bob")
	ann.Close()
	bobs.Restart()
	wantStates(t, p, "channel_lost gone", "ann", "room 1 of 4: bob ios")
	if _, ok := p.Channel("gone"); ok {
		t.Error("a lost channel has a state")
	}
	requests := parleytest.RequestsOf[*parleyv1.ConnectRequest](bobs)
	if got := requests[len(requests)-1].GetWatchChannels(); !slices.Equal(got, []string{"room"}) {
		t.Errorf("the last stream watches %v", got)
	}
	first := bob.Presence(testContext(t), phone, parley.WatchChannels("gone"))
	t.Cleanup(first.Close)
	if _, err := first.Next(testContext(t)); !errors.Is(err, parley.ErrNotMember) {
		t.Errorf("a first stream with another's channel: %v", err)
	}
}

// TestPresenceOfLargeChannel watches a channel that grows beyond the size up to which members are
// listed, and shrinks again.
func TestPresenceOfLargeChannel(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	admin := adminOf(t, s, "room")
	p := online(t, userClient(t, s, "bob"), parley.WatchChannels("room"))
	wantStates(t, p, "room 1 of 3: bob ios")
	many := make([]string, 998)
	for i := range many {
		many[i] = fmt.Sprint("user-", i)
	}
	if err := admin.AddMembers(testContext(t), "room", many[:400]...); err != nil {
		t.Fatalf("add members: %v", err)
	}
	wantStates(t, p, "room 1 of 403: bob ios")
	if err := admin.AddMembers(testContext(t), "room", many[400:800]...); err != nil {
		t.Fatalf("add members: %v", err)
	}
	wantStates(t, p, "room 1 of 803: bob ios")
	if err := admin.AddMembers(testContext(t), "room", many[800:]...); err != nil {
		t.Fatalf("add members: %v", err)
	}
	wantStates(t, p, "room 1 of 1001: ")
	if ch, _ := p.Channel("room"); ch.GetComplete() {
		t.Error("the list of a large channel is complete")
	}
	remove(t, admin, "room", many[0])
	wantStates(t, p, "room 1 of 1000: bob ios")
}
