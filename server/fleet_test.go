package server_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// fleetOf starts n nodes on the same engines.
func fleetOf(t *testing.T, n int, opts ...servertest.Option) []*servertest.Server {
	t.Helper()
	nodes := []*servertest.Server{servertest.Serve(t, opts...)}
	for len(nodes) < n {
		nodes = append(nodes, nodes[0].Join(opts...))
	}
	return nodes
}

var user = []ident.Action{ident.Send, ident.History, ident.Subscribe}

// expectSeqs waits until a stream has received exactly the channel's entries 1 to n, in order.
func expectSeqs(t *testing.T, s *stream, channel string, n int64) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() error {
		got := s.entries(channel)
		for i, e := range got {
			if e.GetSeq() != int64(i+1) {
				t.Fatalf("entry %d of %s is at index %d", e.GetSeq(), channel, i+1)
			}
		}
		if int64(len(got)) != n {
			return fmt.Errorf("%d of %d entries have come", len(got), n)
		}
		return nil
	})
}

func TestManyNodesWriteOneLog(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 3)
	zero := int64(0)
	var streams []*stream
	for _, n := range nodes {
		streams = append(streams, subscribe(t, n.Client(n.Token),
			&parleyv1.ChannelPosition{ChannelId: "hot", AfterSeq: &zero}, &parleyv1.ChannelPosition{ChannelId: "cold", AfterSeq: &zero}))
	}
	const each, writers = 25, 4
	var wg sync.WaitGroup
	for i, n := range nodes {
		c := n.Client(n.Token)
		for w := range writers {
			wg.Go(func() {
				last := int64(0)
				for j := range each {
					res, err := c.SendMessage(t.Context(), &parleyv1.SendMessageRequest{
						ChannelId: "hot", Content: fmt.Sprintf("%d/%d/%d", i, w, j),
					})
					if err != nil {
						t.Errorf("send: %v", err)
						return
					}
					if res.GetSeq() <= last {
						t.Errorf("seq of the sender's messages went from %d to %d", last, res.GetSeq())
					}
					last = res.GetSeq()
				}
			})
		}
		wg.Go(func() {
			for j := range each {
				if _, err := c.SendMessage(t.Context(), &parleyv1.SendMessageRequest{
					ChannelId: "cold", Content: fmt.Sprint(j), ClientMsgId: fmt.Sprint(j), // the same from every node
				}); err != nil {
					t.Errorf("send: %v", err)
				}
			}
		})
	}
	wg.Wait()
	for _, s := range streams {
		expectSeqs(t, s, "hot", int64(len(nodes)*each*writers))
		expectSeqs(t, s, "cold", each)
	}
}

func TestUpdateSubscriptionThroughAnyNode(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 2)
	here, there := nodes[0].Client(nodes[0].Token), nodes[1].Client(nodes[1].Token)
	send(t, there, "added", "one")
	zero := int64(0)
	s := subscribe(t, here)
	if _, err := there.UpdateSubscription(t.Context(), &parleyv1.UpdateSubscriptionRequest{
		StreamId: s.streamID, Add: []*parleyv1.ChannelPosition{{ChannelId: "added", AfterSeq: &zero}},
	}); err != nil {
		t.Fatal(err)
	}
	expectSeqs(t, s, "added", 1)
	_, err := nodes[1].Client(nodes[1].Mint("somebody", user...)).UpdateSubscription(t.Context(),
		&parleyv1.UpdateSubscriptionRequest{StreamId: s.streamID})
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("another's stream answers %v", err)
	}
	_, err = there.UpdateSubscription(t.Context(), &parleyv1.UpdateSubscriptionRequest{StreamId: s.streamID + "x"})
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("an unknown stream answers %v", err)
	}
}

// awaitLost waits until a stream has received the event that it has lost the channel.
func awaitLost(t *testing.T, s *stream, channel string, within time.Duration) {
	t.Helper()
	testkit.Eventually(t, within, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range s.events {
			if e.GetChannelId() == channel && e.GetLost() != nil {
				return nil
			}
		}
		return fmt.Errorf("%s is not lost", channel)
	})
}

func TestRemovedMemberLosesChannelOnEveryNode(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 2)
	owner := nodes[0].Client(nodes[0].Token)
	bob := nodes[1].Client(nodes[1].Mint("bob", user...))
	alice := nodes[1].Client(nodes[1].Mint("alice", user...))
	stranger := nodes[1].Client(nodes[1].Mint("stranger", user...))

	for _, natsAway := range []bool{false, true} {
		channel := fmt.Sprintf("private-%v", natsAway)
		if _, err := owner.CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{
			ChannelId: channel, MembersOnly: true, Members: membersOf("bob", "alice"),
		}); err != nil {
			t.Fatal(err)
		}
		send(t, alice, channel, "hello")
		for name, err := range map[string]error{
			"send": callErr(stranger.SendMessage(t.Context(), &parleyv1.SendMessageRequest{ChannelId: channel, Content: "x"})),
			"list": callErr(stranger.ListMessages(t.Context(), &parleyv1.ListMessagesRequest{ChannelId: channel})),
			"mark": callErr(stranger.MarkRead(t.Context(), &parleyv1.MarkReadRequest{ChannelId: channel, Seq: 1})),
			"type": callErr(stranger.SendTyping(t.Context(), &parleyv1.SendTypingRequest{ChannelId: channel})),
			"who":  callErr(stranger.ListMembers(t.Context(), &parleyv1.ListMembersRequest{ChannelId: channel})),
			"add":  callErr(stranger.AddMembers(t.Context(), &parleyv1.AddMembersRequest{ChannelId: channel, Members: membersOf("stranger")})),
			"out":  callErr(stranger.RemoveMembers(t.Context(), &parleyv1.RemoveMembersRequest{ChannelId: channel, UserIds: []string{"bob"}})),
		} {
			if connect.CodeOf(err) != connect.CodePermissionDenied {
				t.Errorf("%s by a stranger answers %v", name, err)
			}
		}
		live := []*parleyv1.ChannelPosition{{ChannelId: channel}, {ChannelId: "open"}}
		bobs, alices := subscribe(t, bob, live...), subscribe(t, alice, live...)
		if natsAway {
			nodes[0].NATS.Stop()
		}
		if _, err := owner.RemoveMembers(t.Context(), &parleyv1.RemoveMembersRequest{ChannelId: channel, UserIds: []string{"bob"}}); err != nil {
			t.Fatal(err)
		}
		awaitLost(t, bobs, channel, time.Second)
		testkit.Eventually(t, time.Second, func() error {
			err := callErr(bob.SendMessage(t.Context(), &parleyv1.SendMessageRequest{ChannelId: channel, Content: "still here"}))
			if connect.CodeOf(err) != connect.CodePermissionDenied {
				return fmt.Errorf("send of a removed member returned code %v", connect.CodeOf(err))
			}
			return nil
		})
		if natsAway {
			nodes[0].NATS.Start()
		}
		before := len(bobs.entries(channel))
		last := send(t, alice, channel, "among us")
		send(t, alice, "open", "to all")
		for s, channels := range map[*stream][]string{alices: {channel, "open"}, bobs: {"open"}} {
			for _, c := range channels {
				testkit.Eventually(t, 20*time.Second, func() error {
					if len(s.entries(c)) == 0 {
						return fmt.Errorf("no event of %s after seq %d", c, last.GetSeq())
					}
					return nil
				})
			}
		}
		if got := len(bobs.entries(channel)); got != before {
			t.Errorf("a removed member got %d more entries", got-before)
		}
		bobs.cancel()
		alices.cancel()
	}
}

func callErr[T any](_ *T, err error) error { return err }

func TestListChannelsReportsUnreadAndLastMessage(t *testing.T) {
	t.Parallel()
	inModes(t, func(t *testing.T, s *servertest.Server) {
		ann, ben := s.Client(s.Mint("ann", user...)), s.Client(s.Mint("ben", user...))
		send(t, ann, "lobby", "one")
		two := send(t, ben, "lobby", "two")
		send(t, ann, "lobby", "three")
		mine := func(c client) *parleyv1.UserChannel {
			res, err := c.ListChannels(t.Context(), &parleyv1.ListChannelsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if len(res.GetChannels()) != 1 {
				return nil
			}
			return res.GetChannels()[0]
		}
		expect := func(c client, unread int64, last string) {
			t.Helper()
			testkit.Eventually(t, 10*time.Second, func() error {
				got := mine(c)
				if got.GetUnread() != unread || got.GetLastMessage().GetContent() != last || got.GetChannel().GetChannelId() != "lobby" {
					return fmt.Errorf("got channel %v", got)
				}
				return nil
			})
		}
		expect(ann, 0, "three")
		expect(ben, 1, "three")
		four := send(t, ann, "lobby", "four")
		expect(ben, 2, "four")
		read, err := ben.MarkRead(t.Context(), &parleyv1.MarkReadRequest{ChannelId: "lobby", Seq: 3})
		if err != nil || read.GetReadSeq() != 3 || read.GetUnread() != 1 {
			t.Errorf("MarkRead(3): got %v, %v, want read_seq 3 and unread 1", read, err)
		}
		read, err = ben.MarkRead(t.Context(), &parleyv1.MarkReadRequest{ChannelId: "lobby", Seq: 1})
		if err != nil || read.GetReadSeq() != 3 {
			t.Errorf("MarkRead(1): got %v, %v, want read_seq 3", read, err)
		}
		_, err = ben.MarkRead(t.Context(), &parleyv1.MarkReadRequest{ChannelId: "lobby", Seq: 5})
		if connect.CodeOf(err) != connect.CodeOutOfRange {
			t.Errorf("MarkRead beyond the head: got %v, want out_of_range", err)
		}
		if _, err := ann.RecallMessage(t.Context(), &parleyv1.RecallMessageRequest{ChannelId: "lobby", MsgId: four.GetMsgId()}); err != nil {
			t.Fatal(err)
		}
		expect(ben, 1, "")
		if _, err := ben.RemoveMembers(t.Context(), &parleyv1.RemoveMembersRequest{ChannelId: "lobby", UserIds: []string{"ben"}}); err != nil {
			t.Fatal(err)
		}
		if got := mine(ben); got != nil {
			t.Errorf("channel still listed after removal: %v", got)
		}
		if two.GetSeq() != 2 {
			t.Errorf("the second message has seq %d", two.GetSeq())
		}
	})
}

func TestTypingReachesEveryNode(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 2)
	here, there := nodes[0].Client(nodes[0].Mint("ann", user...)), nodes[1].Client(nodes[1].Token)
	s := subscribe(t, there, &parleyv1.ChannelPosition{ChannelId: "lobby"})
	testkit.Eventually(t, 20*time.Second, func() error {
		if _, err := here.SendTyping(t.Context(), &parleyv1.SendTypingRequest{ChannelId: "lobby"}); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range s.events {
			if e.GetTyping().GetUserId() == "ann" {
				return nil
			}
		}
		return fmt.Errorf("no typing event yet")
	})
}

// TestNodeExitsWhenEpochIsReplaced checks that a node ends when the store's epoch is replaced,
// because its memory belongs to the old epoch.
func TestNodeExitsWhenEpochIsReplaced(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s := servertest.Serve(t)
	if err := s.Restored(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Ended(ctx); err == nil {
		t.Error("Run returned nil, want an error")
	}
}

// TestFastNodeDoesNotStopTheTimeOfAChannel checks that messages have the right time although one
// node's clock is ten seconds fast.
func TestFastNodeDoesNotStopTheTimeOfAChannel(t *testing.T) {
	t.Parallel()
	right := servertest.Serve(t)
	fast := right.Join(servertest.WithServerOption(server.WithClock(func() time.Time { return time.Now().Add(10 * time.Second) })))
	for i := range 8 {
		for _, n := range []*servertest.Server{fast, right} {
			channel := fmt.Sprintf("room-%d", i) // in different shards, so each node is the home of some
			began := time.Now()
			at := send(t, n.Client(n.Token), channel, "x").GetMsgTime().AsTime()
			if at.Before(began.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
				t.Errorf("%s: a message sent at %v has the time %v", channel, began, at)
			}
		}
	}
}
