package server_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/ident"
)

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
			awaitLost(t, s, p.GetChannelId(), 20*time.Second)
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
