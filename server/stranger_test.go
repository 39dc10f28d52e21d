package server_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// patience is how long these tests wait for one event. Without NATS an event takes seconds on an
// idle machine, and half a minute beside other tests on two cores.
const patience = 2 * time.Minute

// TestStrangersGetNothingOfNewPrivateChannels subscribes strangers to channels that do not exist,
// on every node, then creates the channels for members only and sends at once. No stranger receives
// a message, and every stranger loses the channel.
func TestStrangersGetNothingOfNewPrivateChannels(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 2)
	const channels, messages = 40, 3
	var positions []*parleyv1.ChannelPosition
	for i := range channels {
		positions = append(positions, &parleyv1.ChannelPosition{ChannelId: fmt.Sprint("new-", i)})
	}
	var members, strangers []*stream
	for i, n := range nodes {
		for j := range 15 {
			name := fmt.Sprintf("stranger-%d-%d", i, j)
			strangers = append(strangers, subscribe(t, n.Client(n.Mint(name, user...)), positions...))
		}
		members = append(members, subscribe(t, n.Client(n.Mint("bob", user...)), positions...))
	}
	for _, s := range slices.Concat(members, strangers) {
		for _, p := range positions {
			s.awaitState(p.GetChannelId())
		}
	}
	var sends sync.WaitGroup
	for i, p := range positions {
		sends.Go(func() {
			owner := nodes[i%2].Client(nodes[i%2].Mint("bob", append(slices.Clone(user), ident.Manage)...))
			if _, err := owner.CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{
				ChannelId: p.GetChannelId(), MembersOnly: true, Members: membersOf("bob"),
			}); err != nil {
				t.Error(err)
				return
			}
			for n := range messages {
				send(t, owner, p.GetChannelId(), fmt.Sprint("secret ", n))
			}
		})
	}
	sends.Wait()
	for _, p := range positions {
		for _, s := range members {
			s.await(p.GetChannelId(), 0, messages)
		}
		for _, s := range strangers {
			awaitLost(t, s, p.GetChannelId(), patience)
		}
	}
	for _, s := range strangers {
		for _, p := range positions {
			if got := s.entries(p.GetChannelId()); len(got) > 0 {
				t.Errorf("a stranger got %d messages of %s", len(got), p.GetChannelId())
			}
		}
	}
}

// TestStrangersGetNothingOfClosedChannels subscribes strangers and members to open channels, on
// every node, and closes the channels while messages are sent. No stranger receives a message that
// was sent after UpdateChannel returned, on any node, with NATS and without it. Members receive
// all.
func TestStrangersGetNothingOfClosedChannels(t *testing.T) {
	t.Parallel()
	withAndWithoutNATS(t, closeBeforeStrangers)
}

// withAndWithoutNATS runs a test on two nodes twice. It calls cut when all streams are live; in the
// second run that stops NATS.
func withAndWithoutNATS(t *testing.T, test func(t *testing.T, nodes []*servertest.Server, cut func())) {
	t.Helper()
	for name, cut := range map[string]func(*servertest.Server){
		"with NATS":    func(*servertest.Server) {},
		"without NATS": func(s *servertest.Server) { s.NATS.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := fleetOf(t, 2)
			test(t, nodes, func() { cut(nodes[0]) })
		})
	}
}

func closeBeforeStrangers(t *testing.T, nodes []*servertest.Server, cut func()) {
	t.Helper()
	const channels, messages = 12, 3
	var positions []*parleyv1.ChannelPosition
	var owners []client
	for i := range channels {
		id := fmt.Sprint("open-", i)
		positions = append(positions, &parleyv1.ChannelPosition{ChannelId: id})
		owner := nodes[i%2].Client(nodes[i%2].Mint("bob", append(slices.Clone(user), ident.Manage)...))
		if _, err := owner.CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{ChannelId: id, Members: membersOf("bob")}); err != nil {
			t.Fatal(err)
		}
		send(t, owner, id, "hello")
		send(t, nodes[i%2].Client(nodes[i%2].Mint("stranger-0-0", user...)), id, "a follower's")
		owners = append(owners, owner)
	}
	var members, strangers []*stream
	for i, n := range nodes {
		for j := range 10 {
			strangers = append(strangers, subscribe(t, n.Client(n.Mint(fmt.Sprintf("stranger-%d-%d", i, j), user...)), positions...))
		}
		members = append(members, subscribe(t, n.Client(n.Mint("bob", user...)), positions...))
	}
	for _, s := range slices.Concat(members, strangers) {
		for _, p := range positions {
			s.awaitState(p.GetChannelId())
		}
	}
	cut()
	closed := true
	var switches sync.WaitGroup
	for i, p := range positions {
		switches.Go(func() {
			if _, err := owners[i].UpdateChannel(t.Context(), &parleyv1.UpdateChannelRequest{
				ChannelId: p.GetChannelId(), MembersOnly: &closed, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"members_only"}},
			}); err != nil {
				t.Error(err)
				return
			}
			other := nodes[(i+1)%2].Client(nodes[(i+1)%2].Mint("bob", user...))
			for n := range messages { // at once, by a node that may not know of the switch
				send(t, other, p.GetChannelId(), fmt.Sprint("secret ", n))
			}
		})
	}
	switches.Wait()
	for _, p := range positions {
		for _, s := range members {
			testkit.Eventually(t, patience, func() error {
				sent := 0
				for _, e := range s.entries(p.GetChannelId()) {
					if e.GetSent() != nil {
						sent++
					}
				}
				if sent != messages {
					return fmt.Errorf("a member received %d of %d messages of %s", sent, messages, p.GetChannelId())
				}
				return nil
			})
		}
		for _, s := range strangers {
			awaitLost(t, s, p.GetChannelId(), patience)
		}
	}
	for _, s := range strangers {
		for _, p := range positions {
			if got := s.entries(p.GetChannelId()); len(got) > 0 {
				t.Errorf("a stranger got %d messages of %s", len(got), p.GetChannelId())
			}
		}
	}
}

// TestFormerMembersGetNothingOfClosedChannels removes a member from channels, closes them and sends
// at once by another node. The former member receives none of these messages, although each node
// may have read the membership shortly before. A stream by membership loses the channel too. All of
// it holds with NATS and without it.
func TestFormerMembersGetNothingOfClosedChannels(t *testing.T) {
	t.Parallel()
	withAndWithoutNATS(t, closeBeforeFormerMembers)
}

func closeBeforeFormerMembers(t *testing.T, nodes []*servertest.Server, cut func()) {
	t.Helper()
	const channels = 8
	admins := backendsOf(nodes)
	var positions []*parleyv1.ChannelPosition
	for i := range channels {
		id := fmt.Sprint("left-", i)
		positions = append(positions, &parleyv1.ChannelPosition{ChannelId: id})
		if _, err := admins[i%2].CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{ChannelId: id, Members: membersOf("ann", "bob")}); err != nil {
			t.Fatal(err)
		}
		send(t, admins[i%2], id, "hello")
	}
	var former, members []*stream
	for _, n := range nodes {
		former = append(former, subscribe(t, asMember(n, "bob", "*", user...), positions...), subscribe(t, n.Client(n.Mint("bob", user...)), positions...))
		members = append(members, subscribe(t, asMember(n, "ann", "*", user...), positions...))
	}
	for _, s := range slices.Concat(former, members) {
		for _, p := range positions {
			s.awaitState(p.GetChannelId())
		}
	}
	cut()
	closed := true
	var switches sync.WaitGroup
	for i, p := range positions {
		switches.Go(func() {
			id, here, there := p.GetChannelId(), admins[i%2], admins[(i+1)%2]
			if err := callErr(asMember(nodes[(i+1)%2], "bob", "*", user...).ListMessages(t.Context(), &parleyv1.ListMessagesRequest{ChannelId: id})); err != nil {
				t.Error(err) // the other node has the membership in its cache now
			}
			if err := callErr(here.RemoveMembers(t.Context(), &parleyv1.RemoveMembersRequest{ChannelId: id, UserIds: []string{"bob"}})); err != nil {
				t.Error(err)
			}
			if err := callErr(here.UpdateChannel(t.Context(), &parleyv1.UpdateChannelRequest{
				ChannelId: id, MembersOnly: &closed, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"members_only"}},
			})); err != nil {
				t.Error(err)
			}
			send(t, there, id, "secret")
		})
	}
	switches.Wait()
	for _, p := range positions {
		for _, s := range members {
			testkit.Eventually(t, patience, func() error {
				if got := s.entries(p.GetChannelId()); len(got) == 0 || got[len(got)-1].GetSent() == nil {
					return fmt.Errorf("a member waits for %s", p.GetChannelId())
				}
				return nil
			})
		}
		for _, s := range former {
			awaitLost(t, s, p.GetChannelId(), patience)
		}
	}
	for _, s := range former {
		for _, p := range positions {
			if got := s.entries(p.GetChannelId()); len(got) > 0 {
				t.Errorf("a former member got %d entries of %s", len(got), p.GetChannelId())
			}
		}
	}
}
