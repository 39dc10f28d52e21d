package server_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

func isLost(c *parleyv1.ChannelPresence) bool { return c.GetLost() }

// A member who is removed loses the presence of the channel within a second, with and without NATS.
// It does not matter whether Connect or a call through the other node began the watch. No stream
// subscribes to the channel. Holders of manage keep it.
func TestRemovedMemberLosesPresenceOfChannel(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 2)
	owner := nodes[0].Client(nodes[0].Token)
	manager := nodes[0].MintAs(&ident.Principal{
		Subject: "max", Presence: ident.PresenceActions,
		Channels: []ident.Capability{{Pattern: "*", Actions: []ident.Action{ident.Subscribe, ident.Manage}}},
	}, time.Hour)
	for _, natsAway := range []bool{false, true} {
		channel := fmt.Sprintf("club-%v", natsAway)
		if _, err := owner.CreateChannel(t.Context(), &parleyv1.CreateChannelRequest{
			ChannelId: channel, MembersOnly: true, Members: membersOf("ann", "bob", "cy", "max"),
		}); err != nil {
			t.Fatal(err)
		}
		ann := connectAs(t, nodes[1], presenceToken(nodes[1], "ann"), watchingChannels(channel))
		bob := connectAs(t, nodes[1], presenceToken(nodes[1], "bob"), watchingChannels(channel))
		cy := connectAs(t, nodes[1], presenceToken(nodes[1], "cy"), watching())
		manages := connectAs(t, nodes[1], manager, watchingChannels(channel))
		calls := nodes[0].Presence(presenceToken(nodes[0], "cy"))
		res, err := calls.WatchChannel(t.Context(), &parleyv1.WatchChannelRequest{StreamId: cy.id(), ChannelId: channel})
		if err != nil {
			t.Fatal(err)
		}
		if five := func(c *parleyv1.ChannelPresence) bool { return c.GetMemberCount() == 5 }; !five(res.GetPresence()) {
			cy.channel(channel, 10*time.Second, five) // it was not known within a second
		}
		if natsAway {
			nodes[0].NATS.Stop()
		}
		if _, err := owner.RemoveMembers(t.Context(), &parleyv1.RemoveMembersRequest{
			ChannelId: channel, UserIds: []string{"bob", "cy", "max"},
		}); err != nil {
			t.Fatal(err)
		}
		removed := time.Now()
		bob.channel(channel, time.Until(removed.Add(time.Second)), isLost)
		cy.channel(channel, time.Until(removed.Add(time.Second)), isLost)
		if natsAway {
			nodes[0].NATS.Start()
		}
		connectAs(t, nodes[0], presenceToken(nodes[0], "ann"), phone(nil))
		one := func(c *parleyv1.ChannelPresence) bool { return c.GetOnlineCount() == 1 && c.GetMemberCount() == 2 }
		ann.channel(channel, 10*time.Second, one)
		manages.channel(channel, 10*time.Second, one)
		bob.channel(channel, time.Second, isLost)
		cy.channel(channel, time.Second, isLost)
		for _, s := range []*presenceStream{ann, bob, cy, manages} {
			s.close()
		}
	}
}

// A fleet shows on every node what happens on another, and any node serves a call about a stream.
// Node 1 keeps all users, node 0 those that were asked for.
func TestPresenceAcrossNodes(t *testing.T) {
	t.Parallel()
	here := servertest.Serve(t)
	there := here.Join(servertest.With(func(c *config.Config) { c.Presence.Cache = "full" }))
	annHere, annThere := here.Presence(presenceToken(here, "ann")), there.Presence(presenceToken(there, "ann"))
	watchers := []*presenceStream{connectBy(t, annHere, watching("bob")), connectBy(t, annThere, watching("bob"))}
	all := func(f func(w *presenceStream)) {
		t.Helper()
		for _, w := range watchers {
			f(w)
		}
	}
	bob := connectAs(t, there, presenceToken(there, "bob"), phone(nil))
	all(func(w *presenceStream) { w.shows("bob", 5*time.Second, parleyv1.Platform_PLATFORM_IOS) })
	// Under the policy `all` a second login ends no other.
	web := phone(func(r *parleyv1.ConnectRequest) { r.Platform, r.DeviceId = parleyv1.Platform_PLATFORM_WEB, "tab" })
	tab := connectAs(t, here, presenceToken(here, "bob"), web)
	both := []parleyv1.Platform{parleyv1.Platform_PLATFORM_IOS, parleyv1.Platform_PLATFORM_WEB}
	all(func(w *presenceStream) { w.shows("bob", 5*time.Second, both...) })
	for i, c := range []parleyv1connect.PresenceServiceClient{annHere, annThere} {
		testkit.Eventually(t, 10*time.Second, func() error {
			res, err := c.GetPresence(t.Context(), &parleyv1.GetPresenceRequest{UserIds: []string{"bob", "nobody"}})
			if err != nil {
				return err
			}
			list, err := c.ListOnlineUsers(t.Context(), &parleyv1.ListOnlineUsersRequest{})
			if err != nil {
				return err
			}
			if n := len(list.GetPresence()); n != 1 {
				return fmt.Errorf("node %d lists %d users", i, n)
			}
			return errors.Join(onExactly(res.GetPresence()[0], both...), onExactly(res.GetPresence()[1]), onExactly(list.GetPresence()[0], both...))
		})
	}

	// Calls about a stream of the other node.
	bobsCalls := here.Presence(presenceToken(here, "bob"))
	if _, err := bobsCalls.SetBackground(t.Context(), &parleyv1.SetBackgroundRequest{StreamId: bob.id(), Background: true}); err != nil {
		t.Error(err)
	}
	all(func(w *presenceStream) {
		testkit.Eventually(t, 5*time.Second, func() error {
			states := w.statesOf("bob")
			if p := states[len(states)-1].GetPlatforms(); len(p) != 2 || !p[0].GetBackground() || p[1].GetBackground() {
				return fmt.Errorf("bob is on %v", p)
			}
			return nil
		})
	})
	res, err := annHere.UpdateWatch(t.Context(), &parleyv1.UpdateWatchRequest{StreamId: watchers[1].id(), Add: []string{"cy"}, Remove: []string{"bob"}})
	if err != nil || len(res.GetPresence()) != 1 || onExactly(res.GetPresence()[0]) != nil {
		t.Errorf("watching cy: %v, %v", res, err)
	}
	if _, err := bobsCalls.Disconnect(t.Context(), &parleyv1.DisconnectRequest{StreamId: bob.id()}); err != nil {
		t.Error(err)
	}
	watchers[0].shows("bob", 5*time.Second, parleyv1.Platform_PLATFORM_WEB)
	if states := watchers[1].statesOf("bob"); onExactly(states[len(states)-1], both...) != nil {
		t.Errorf("a stream that does not watch bob gets %v", states[len(states)-1])
	}
	<-bob.ended
	if bob.err != nil {
		t.Errorf("after Disconnect: %v", bob.err)
	}
	tab.close()
	watchers[0].shows("bob", 5*time.Second)
}

// The newer login of a slot ends the older one on the other node, with a Kick that names the
// device, under each policy. A client that connects with the old login's token is refused.
func TestKickAcrossNodes(t *testing.T) {
	t.Parallel()
	first := servertest.Serve(t, servertest.With(func(c *config.Config) { c.Presence.LoginPolicy = "platform" }))
	const ios, ipad, web = parleyv1.Platform_PLATFORM_IOS, parleyv1.Platform_PLATFORM_IPADOS, parleyv1.Platform_PLATFORM_WEB
	for _, c := range []struct {
		policy         string
		stays, replace parleyv1.Platform
	}{{"platform", ipad, ios}, {"class", web, ipad}, {"single", 0, web}} {
		here, policy := first, servertest.With(func(cfg *config.Config) { cfg.Presence.LoginPolicy = c.policy })
		if c.policy != "platform" {
			here = first.Join(policy)
		}
		there, user := first.Join(policy), "user-of-"+c.policy
		on := func(n *servertest.Server, p parleyv1.Platform, token string) (*parleyv1.ConnectRequest, parleyv1connect.PresenceServiceClient) {
			return &parleyv1.ConnectRequest{Platform: p, DeviceId: strings.ToLower(p.String()), LoginToken: token}, n.Presence(presenceToken(n, user))
		}
		connectOn := func(n *servertest.Server, p parleyv1.Platform) *presenceStream {
			t.Helper()
			r, client := on(n, p, "")
			return connectBy(t, client, r)
		}
		old := connectOn(here, ios)
		var other *presenceStream // of another slot
		if c.stays != 0 {
			other = connectOn(there, c.stays)
		}
		winner := connectOn(there, c.replace)
		select {
		case <-old.ended:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: two logins of a slot live", c.policy)
		}
		r, client := on(there, ios, old.info.GetPresence().GetLoginToken())
		again, err := client.Connect(t.Context(), r)
		if err == nil && again.Receive() {
			t.Fatalf("%s: the old login is accepted: %v", c.policy, again.Msg())
		} else if err == nil {
			err = again.Err()
		}
		for _, err := range []error{old.err, err} {
			d := detailOf(t, err)
			k := d.GetKick()
			if connect.CodeOf(err) != connect.CodeFailedPrecondition || d.GetReason() != parleyv1.ErrorReason_ERROR_REASON_KICKED || d.GetRetryable() ||
				k.GetCause() != parleyv1.KickCause_KICK_CAUSE_LOGIN || k.GetPlatform() != c.replace ||
				k.GetDeviceId() != strings.ToLower(c.replace.String()) || k.GetConnectionId() != winner.info.GetPresence().GetConnectionId() {
				t.Errorf("%s: %v, %v", c.policy, err, d)
			}
		}
		if c.stays != 0 {
			select {
			case <-other.ended:
				t.Errorf("%s: the login on %v has ended: %v", c.policy, c.stays, other.err)
			default:
			}
		}
	}
}

// A flush of Redis shows nobody offline and is no news. While Redis is away, reads fail once they
// could be too old, and are right within 5 s after its return. A graceful stop of a node shows
// nobody offline who returns elsewhere.
func TestPresenceThroughOutages(t *testing.T) {
	t.Parallel()
	nodes := fleetOf(t, 2)
	calls := nodes[0].Presence(presenceToken(nodes[0], "ann"))
	watcher := connectBy(t, calls, watching("bob", "cy", "dee"))
	bob := connectAs(t, nodes[1], presenceToken(nodes[1], "bob"), phone(nil))
	connectAs(t, nodes[1], presenceToken(nodes[1], "dee"), phone(nil))
	watcher.shows("bob", 10*time.Second, parleyv1.Platform_PLATFORM_IOS)
	get := func(user string, platforms ...parleyv1.Platform) error {
		res, err := calls.GetPresence(t.Context(), &parleyv1.GetPresenceRequest{UserIds: []string{user}})
		if err != nil {
			return err
		}
		return onExactly(res.GetPresence()[0], platforms...)
	}
	redis := nodes[0].Redis.Client(t)
	if err := redis.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	// The new epoch has all states once bob is in Redis again, and is used once cy's change arrives.
	testkit.Eventually(t, 20*time.Second, func() error {
		keys, err := redis.Keys(t.Context(), "*presence*user:bob").Result()
		if err == nil && len(keys) != 1 {
			err = fmt.Errorf("bob is under %q", keys)
		}
		return err
	})
	if err := get("bob", parleyv1.Platform_PLATFORM_IOS); err != nil && connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("after a flush: %v", err)
	}
	cy := connectAs(t, nodes[1], presenceToken(nodes[1], "cy"), phone(nil))
	watcher.shows("cy", 20*time.Second, parleyv1.Platform_PLATFORM_IOS)
	before := len(watcher.statesOf("bob"))
	if before > 2 { // offline at first, then online
		t.Errorf("the states of bob are %v", watcher.statesOf("bob"))
	}

	nodes[0].Redis.Kill()
	testkit.Eventually(t, 10*time.Second, func() error {
		if err := get("bob", parleyv1.Platform_PLATFORM_IOS); connect.CodeOf(err) != connect.CodeUnavailable {
			return fmt.Errorf("without Redis: %w", err)
		}
		return nil
	})
	cy.close()
	nodes[0].Redis.Start()
	watcher.shows("cy", 8*time.Second)
	testkit.Eventually(t, 5*time.Second, func() error { return get("bob", parleyv1.Platform_PLATFORM_IOS) })

	go nodes[1].Stop()
	select {
	case <-bob.ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the node does not end its streams")
	}
	if !bob.advised {
		t.Error("the stream ended without the advice to reconnect")
	}
	connectAs(t, nodes[0], presenceToken(nodes[0], "bob"), phone(func(r *parleyv1.ConnectRequest) {
		r.LoginToken = bob.info.GetPresence().GetLoginToken()
	}))
	watcher.shows("dee", 20*time.Second) // the node's lease has ended, and its users are removed
	watcher.neverOffline("bob")
	if got := len(watcher.statesOf("bob")); got != before {
		t.Errorf("%d states of bob after outages that changed nothing: %v", got-before, watcher.statesOf("bob"))
	}
}
