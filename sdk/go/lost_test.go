package parley_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
)

// adminOf returns a client of the user admin, who has created the channels as members-only with the
// members tester and bob. It takes the action manage from tester's token.
func adminOf(t *testing.T, s *parleytest.Server, channels ...string) *parley.Client {
	t.Helper()
	s.SetUser("admin's token", "admin")
	s.SetActions("tester", "send", "history", "subscribe")
	c := newClient(t, s.Addr(), parley.WithToken("admin's token"))
	for _, id := range channels {
		if _, err := c.CreateChannel(testContext(t), id, parley.MembersOnly(), parley.WithMembers("tester", "bob")); err != nil {
			t.Fatalf("create: %v", err)
		}
	}
	return c
}

func remove(t *testing.T, c *parley.Client, channel string, users ...string) {
	t.Helper()
	if err := c.RemoveMembers(testContext(t), channel, users...); err != nil {
		t.Fatalf("remove: %v", err)
	}
}

// lastChannels returns the channels of the last Subscribe request that a server received.
func lastChannels(s *parleytest.Server) []string {
	requests := parleytest.RequestsOf[*parleyv1.SubscribeRequest](s)
	var ids []string
	for _, p := range requests[len(requests)-1].GetChannels() {
		ids = append(ids, p.GetChannelId())
	}
	return ids
}

// TestLostChannel removes a subscriber from a channel. Events that arrived must come first, then
// the loss. The other channel must continue, the next stream must not request the lost one, and the
// lost one can be followed again.
func TestLostChannel(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	admin := adminOf(t, s, "secret")
	sub := subscribe(t, newClient(t, s.Addr()), parley.FromStart("secret"), parley.FromStart("open"))
	post(s, "secret", 3)
	wantEntries(t, sub, "secret", 1, 1)
	eventually(t, func() error {
		if p, _ := sub.Position("secret"); p.Seq != 1 || p.Epoch == "" {
			return errors.New("no position yet")
		}
		return nil
	})
	remove(t, admin, "secret", "tester")
	wantEntries(t, sub, "secret", 2, 3)
	e := nextEvent(t, sub)
	if e.Kind != parley.EventLost || e.ChannelID != "secret" || e.Seq != 3 || e.Epoch != "epoch-1" ||
		e.Lost.GetReason() != parleyv1.LostReason_LOST_REASON_NOT_MEMBER {
		t.Fatalf("got %s %+v, want the loss", e.Kind, e)
	}
	if p, ok := sub.Position("secret"); ok {
		t.Errorf("a lost channel has the position %+v", p)
	}
	post(s, "secret", 1)
	post(s, "open", 1)
	wantEntries(t, sub, "open", 1, 1)
	s.EndStreams(nil)
	post(s, "open", 1)
	wantEntries(t, sub, "open", 2, 2)
	if got := lastChannels(s); !slices.Equal(got, []string{"open"}) {
		t.Errorf("the next stream requested %v", got)
	}
	again := parley.After(parley.Position{ChannelID: "secret", Seq: e.Seq, Epoch: e.Epoch})
	if err := sub.Add(testContext(t), again); !errors.Is(err, parley.ErrNotMember) {
		t.Errorf("add without being a member: %v", err)
	}
	if err := admin.AddMembers(testContext(t), "secret", "tester"); err != nil {
		t.Fatalf("add member: %v", err)
	}
	if err := sub.Add(testContext(t), again); err != nil {
		t.Fatalf("add: %v", err)
	}
	wantEntries(t, sub, "secret", 4, 4)
	wantQuiet(t, sub)
}

// TestAddLostChannelBeforeLossIsTaken adds a channel while its EventLost is queued. If the
// server refuses it, the loss must still be delivered. Otherwise the channel must restart without
// the loss.
func TestAddLostChannelBeforeLossIsTaken(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		s := parleytest.Start(t)
		admin := adminOf(t, s, "secret")
		post(s, "secret", 2)
		sub := subscribe(t, newClient(t, s.Addr()), parley.FromStart("secret"), parley.FromStart("open"))
		wantEntries(t, sub, "secret", 1, 1) // the second one came in the same frame
		remove(t, admin, "secret", "tester")
		eventually(t, func() error {
			// Until the EventLost arrives, the channel counts as followed, and Add does nothing.
			if err := sub.Add(testContext(t), parley.FromStart("secret")); !errors.Is(err, parley.ErrNotMember) {
				return fmt.Errorf("add: %w", err)
			}
			return nil
		})
		post(s, "open", 1)
		if !again {
			wantEntries(t, sub, "secret", 2, 2)
			if e := nextEvent(t, sub); e.Kind != parley.EventLost {
				t.Errorf("got %s, want the loss", e.Kind)
			}
			wantEntries(t, sub, "open", 1, 1)
			continue
		}
		if err := admin.AddMembers(testContext(t), "secret", "tester"); err != nil {
			t.Fatalf("add member: %v", err)
		}
		if err := sub.Add(testContext(t), parley.FromStart("secret")); err != nil {
			t.Fatalf("add: %v", err)
		}
		var got []string
		for range 3 {
			e := nextEvent(t, sub)
			got = append(got, fmt.Sprint(e.Kind, " ", e.ChannelID, " ", e.Seq))
		}
		slices.Sort(got)
		if want := []string{"sent open 1", "sent secret 1", "sent secret 2"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		wantQuiet(t, sub)
	}
}

// TestLossIsTakenDuringAdd takes a channel's EventLost while a request to add the channel again is
// in flight. When that is refused, the channel must stay lost.
func TestLossIsTakenDuringAdd(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	admin := adminOf(t, s, "secret")
	post(s, "secret", 2)
	var sub *parley.Subscription
	hooked := &hookClient{next: h2cClient(t), method: "UpdateSubscription", hook: func() {
		wantEntries(t, sub, "secret", 2, 2)
		if e := nextEvent(t, sub); e.Kind != parley.EventLost {
			t.Errorf("got %s, want the loss", e.Kind)
		}
	}}
	sub = subscribe(t, newClient(t, s.Addr(), parley.WithHTTPClient(hooked)), parley.FromStart("secret"), parley.FromStart("open"))
	wantEntries(t, sub, "secret", 1, 1)
	remove(t, admin, "secret", "tester")
	eventually(t, func() error {
		if err := sub.Add(testContext(t), parley.FromStart("secret")); !errors.Is(err, parley.ErrNotMember) {
			return fmt.Errorf("add: %w", err)
		}
		return nil
	})
	post(s, "open", 1)
	wantEntries(t, sub, "open", 1, 1)
	if _, ok := sub.Position("secret"); ok {
		t.Errorf("the lost channel has a position")
	}
	wantQuiet(t, sub)
}

// TestChannelRefusedOnReconnect ends memberships between two streams. Those channels must be lost,
// the other channels must continue.
func TestChannelRefusedOnReconnect(t *testing.T) {
	t.Parallel()
	fleet := parleytest.StartFleet(t, 2)
	c := newClient(t, parleytest.Addrs(fleet...), patient)
	sub := subscribe(t, c, parley.FromStart("open"), parley.FromStart("kept"), parley.FromStart("gone"), parley.FromStart("gone-too"))
	for range 4 {
		nextEvent(t, sub, parley.EventChannelState)
	}
	node := streaming(t, fleet)
	other := fleet[0]
	if other == node {
		other = fleet[1]
	}
	node.SetSilent(true)
	admin := adminOf(t, other, "kept", "gone", "gone-too")
	post(other, "kept", 1)
	post(other, "open", 1)
	remove(t, admin, "gone", "tester")
	remove(t, admin, "gone-too", "tester")
	node.Kill()
	var lost []string
	for range 2 {
		e := nextEvent(t, sub)
		if e.Kind != parley.EventLost {
			t.Fatalf("got %s of %s, want the losses", e.Kind, e.ChannelID)
		}
		lost = append(lost, e.ChannelID)
	}
	if slices.Sort(lost); !slices.Equal(lost, []string{"gone", "gone-too"}) {
		t.Errorf("lost %v", lost)
	}
	got := []string{nextEvent(t, sub).ChannelID, nextEvent(t, sub).ChannelID}
	if slices.Sort(got); !slices.Equal(got, []string{"kept", "open"}) {
		t.Errorf("events of %v", got)
	}
	if got := lastChannels(other); !slices.Equal(got, []string{"open", "kept"}) {
		t.Errorf("the last stream requested %v", got)
	}
}

// TestChannelRefusedOnFirstStream subscribes to a channel without permission. The subscription must
// end with the error.
func TestChannelRefusedOnFirstStream(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	remove(t, adminOf(t, s, "secret"), "secret", "tester")
	sub := subscribe(t, newClient(t, s.Addr()), parley.Live("open"), parley.Live("secret"))
	_, err := sub.Next(testContext(t))
	e := asError(t, err)
	if !errors.Is(err, parley.ErrNotMember) || len(e.Positions) != 1 || e.Positions[0].ChannelID != "secret" {
		t.Errorf("got %+v", e)
	}
}

// TestRefusalOfUnrequestedChannel makes a server refuse streams because of a channel that the
// client did not request. The subscription must retry, and no channel must be lost.
func TestRefusalOfUnrequestedChannel(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	sub := subscribe(t, newClient(t, s.Addr()), parley.FromStart("open"))
	nextEvent(t, sub, parley.EventChannelState)
	fault := refusal(connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_NOT_MEMBER)
	fault.Err = parleytest.ErrorDetail(connect.CodePermissionDenied, &parleyv1.ErrorDetail{
		Reason:    parleyv1.ErrorReason_ERROR_REASON_NOT_MEMBER,
		Positions: []*parleyv1.LastPosition{{ChannelId: "another"}},
	})
	s.FaultTimes(3, "Subscribe", fault)
	s.EndStreams(nil)
	post(s, "open", 1)
	wantEntries(t, sub, "open", 1, 1)
}

// TestTyping checks that subscribers on all nodes get the event, and that it moves no position.
func TestTyping(t *testing.T) {
	t.Parallel()
	fleet := parleytest.StartFleet(t, 2)
	subs := make([]*parley.Subscription, len(fleet))
	for i, s := range fleet {
		subs[i] = subscribe(t, newClient(t, s.Addr()), parley.FromStart("room"))
		nextEvent(t, subs[i], parley.EventChannelState)
	}
	post(fleet[0], "room", 1)
	for _, sub := range subs {
		wantEntries(t, sub, "room", 1, 1)
	}
	fleet[1].SetUser("ann's token", "ann")
	ann := newClient(t, fleet[1].Addr(), parley.WithToken("ann's token"))
	if err := ann.Typing(testContext(t), "room"); err != nil {
		t.Fatalf("typing: %v", err)
	}
	for i, sub := range subs {
		if e := nextEvent(t, sub); e.Kind != parley.EventTyping || e.Typing.GetUserId() != "ann" || e.ChannelID != "room" {
			t.Fatalf("got %s %+v, want typing", e.Kind, e)
		}
		if p, ok := sub.Position("room"); !ok || p.Seq != 1 {
			t.Errorf("typing moved the position to %+v", p)
		}
		fleet[i].EndStreams(nil)
	}
	post(fleet[0], "room", 1)
	for _, sub := range subs {
		wantEntries(t, sub, "room", 2, 2)
	}
	before := len(fleet[1].Requests())
	fleet[1].FaultTimes(1, "SendTyping", refusal(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE))
	if err := ann.Typing(testContext(t), "room"); !errors.Is(err, parley.ErrStoreUnavailable) || len(fleet[1].Requests()) != before+1 {
		t.Errorf("typing that fails: %v, want one attempt", err)
	}
	if err := ann.Typing(testContext(t), "\xff"); !errors.Is(err, parley.ErrInvalidField) {
		t.Errorf("typing in a channel of broken text: %v", err)
	}
}
