package presence

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// channelPicture is what a client knows of a channel.
type channelPicture struct {
	online, members int
	users           map[string]State
	revision        int64
}

func (p *channelPicture) apply(t *testing.T, c *ChannelState) {
	t.Helper()
	if c.Revision <= p.revision {
		t.Errorf("the revision goes from %d to %d", p.revision, c.Revision)
	}
	p.online, p.members, p.revision = c.Online, c.Members, c.Revision
	if c.Complete || p.users == nil {
		p.users = map[string]State{}
	}
	for _, u := range c.Users {
		if !c.Complete && p.users[u.UserID] == u.State {
			t.Errorf("%s is repeated", u.UserID)
		}
		p.users[u.UserID] = u.State
		if u.State == 0 {
			delete(p.users, u.UserID)
		}
	}
}

// channelWatcher is a watcher of the channel "c".
type channelWatcher struct {
	*watcher
	got     channelPicture
	updates []ChannelState
}

func watchC(t *testing.T, x *viewNode) *channelWatcher {
	t.Helper()
	w := &channelWatcher{watcher: x.watcher()}
	state, err := x.v.watchChannel(t.Context(), w.s, ChannelRef{ID: "c"})
	if err != nil {
		t.Fatal(err)
	}
	w.got.apply(t, state)
	return w
}

// expect checks the picture after the frames that are ready.
func (w *channelWatcher) expect(members int, users map[string]State) {
	w.t.Helper()
	synctest.Wait()
	n := len(w.frames)
	w.read()
	for _, f := range w.frames[n:] {
		for i := range f.Channels {
			w.updates = append(w.updates, f.Channels[i])
			w.got.apply(w.t, &f.Channels[i])
		}
	}
	if w.got.members != members || w.got.online != len(users) || !maps.Equal(w.got.users, users) {
		w.t.Errorf("%d of %d members: %v, not %v of %d", w.got.online, w.got.members, w.got.users, users, members)
	}
}

// TestWatchChannel checks that streams follow the members of a channel who are online, and changes
// of the members.
func TestWatchChannel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, nil)
		x := n.nodes[0]
		x.members.set("c", "ada", "bob", "eve")
		x.v.announced(n.writeTo("ada", onWeb))
		w := watchC(t, x)
		w.expect(3, map[string]State{"ada": onWeb})
		x.v.announced(n.writeTo("bob", onIOS))
		x.v.announced(n.writeTo("stranger", onIOS))
		w.expect(3, map[string]State{"ada": onWeb, "bob": onIOS})
		second := watchC(t, x)
		second.expect(3, map[string]State{"ada": onWeb, "bob": onIOS})
		if x.members.reads != 1 {
			t.Errorf("the members were read %d times", x.members.reads)
		}
		// Changes that end where they began are not sent.
		x.v.announced(n.writeTo("ada", onIOS))
		x.v.announced(n.writeTo("ada", onWeb))
		updates := len(w.updates)
		w.expect(3, map[string]State{"ada": onWeb, "bob": onIOS})
		if len(w.updates) != updates {
			t.Errorf("sent %+v", w.updates[updates:])
		}
		// A repeat returns the current state.
		state, err := x.v.watchChannel(t.Context(), w.s, ChannelRef{ID: "c"})
		if err != nil || !state.Complete || len(state.Users) != 2 {
			t.Errorf("repeat: %+v, %v", state, err)
		}
		w.got.apply(t, state)
		x.v.announced(n.writeTo("zoe", onWeb))
		x.members.set("c", "ada", "zoe", "max")
		for range 10 {
			x.v.membersChanged("c")
		}
		x.v.membersChanged("another")
		time.Sleep(memberInterval + 10*time.Millisecond)
		w.expect(3, map[string]State{"ada": onWeb, "zoe": onWeb})
		second.expect(3, map[string]State{"ada": onWeb, "zoe": onWeb})
		if x.members.reads != 2 {
			t.Errorf("the members were read %d times", x.members.reads)
		}
		x.v.announced(n.writeTo("bob", 0))
		x.v.announced(n.writeTo("ada", 0))
		w.expect(3, map[string]State{"zoe": onWeb})
		// A change of the members without a notification is found after a minute.
		x.members.set("c", "zoe")
		time.Sleep(memberLife)
		w.expect(1, map[string]State{"zoe": onWeb})
		x.v.unwatchChannel(w.s, "c")
		x.v.unwatchChannel(w.s, "c")
		x.v.announced(n.writeTo("zoe", 0))
		second.expect(1, map[string]State{})
		if w.read(); len(w.s.changed) > 0 {
			t.Error("a stream that does not watch gets a state")
		}
		x.v.forget(second.s)
		x.v.forget(w.s)
		for _, p := range leftovers(x.v) {
			t.Error(p)
		}
	})
}

// TestCountedChannel checks that above Config.ChannelMembers only numbers are sent, up to ten times
// a second, and that the members are sent once there are few enough.
func TestCountedChannel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, func(c *Config) { c.ChannelMembers = 50 })
		x := n.nodes[0]
		var members []string
		for i := range 60 {
			members = append(members, fmt.Sprint("user", i))
		}
		x.members.set("c", members...)
		w := watchC(t, x)
		for i := range 40 {
			x.v.announced(n.writeTo(members[i], onWeb))
			time.Sleep(10 * time.Millisecond)
			w.read()
		}
		time.Sleep(countInterval)
		synctest.Wait()
		w.read()
		counts := 0
		for _, f := range w.frames {
			for i := range f.Channels {
				counts++
				w.got.apply(t, &f.Channels[i])
				if c := f.Channels[i]; c.Complete || len(c.Users) > 0 || c.Members != 60 {
					t.Errorf("sent %+v", c)
				}
			}
		}
		if w.got.online != 40 || counts > 6 {
			t.Errorf("%d online after %d states", w.got.online, counts)
		}
		x.members.set("c", members[:45]...)
		x.v.membersChanged("c")
		time.Sleep(2 * memberInterval)
		want := map[string]State{}
		for _, userID := range members[:40] {
			want[userID] = onWeb
		}
		w.expect(45, want)
		x.v.announced(n.writeTo(members[0], onIOS))
		want[members[0]] = onIOS
		w.expect(45, want)
		x.members.set("c", members...)
		x.v.membersChanged("c")
		time.Sleep(memberInterval + listInterval)
		frames := len(w.frames)
		x.v.announced(n.writeTo(members[0], 0))
		time.Sleep(countInterval)
		synctest.Wait()
		w.read()
		last := w.frames[len(w.frames)-1].Channels[0]
		if len(w.frames) == frames || last.Online != 39 || last.Members != 60 || len(last.Users) > 0 {
			t.Errorf("sent %+v", last)
		}
		x.v.forget(w.s)
		for _, p := range leftovers(x.v) {
			t.Error(p)
		}
	})
}

// TestChannelLimits checks the refusals of watchChannel, after which nothing is left.
func TestChannelLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, func(c *Config) { c.MaxChannels = 2 })
		x := n.nodes[0]
		many := make([]string, maxChannelMembers+1)
		for i := range many {
			many[i] = fmt.Sprintf("%06d", i)
		}
		x.members.channels["many"] = many
		w := x.watcher()
		refused := func(channelID string, reason fault.Reason, limit int64) {
			t.Helper()
			_, err := x.v.watchChannel(t.Context(), w.s, ChannelRef{ID: channelID})
			if f, ok := fault.As(err); !ok || f.Reason != reason || f.Limit != limit || f.Field != "channel_id" && limit != maxAllMembers {
				t.Errorf("%s: %v", channelID, err)
			}
		}
		refused("many", fault.LimitExceeded, maxChannelMembers)
		if x.members.reads != 1 {
			t.Errorf("%d pages of a channel with too many members were read", x.members.reads)
		}
		x.v.members = maxAllMembers
		x.members.set("a", "ada")
		refused("a", fault.NodeFull, maxAllMembers)
		x.v.members = 0
		for _, id := range []string{"a", "b", "a"} {
			if _, err := x.v.watchChannel(t.Context(), w.s, ChannelRef{ID: id}); err != nil {
				t.Error(err)
			}
		}
		refused("c", fault.LimitExceeded, 2)
		x.v.unwatchChannel(w.s, "b")
		failed := errors.New("no members")
		x.members.err = failed
		for range 2 {
			if _, err := x.v.watchChannel(t.Context(), w.s, ChannelRef{ID: "c"}); !errors.Is(err, failed) {
				t.Errorf("members that cannot be read: %v", err)
			}
		}
		x.members.err = nil
		if _, err := x.v.watchChannel(t.Context(), w.s, ChannelRef{ID: "c"}); err != nil {
			t.Error(err)
		}
		x.v.forget(w.s)
		for _, p := range leftovers(x.v) {
			t.Error(p)
		}
	})
}

// TestChannelFrames checks that a frame has at most 1,000 members' states.
func TestChannelFrames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, func(c *Config) { c.ChannelMembers = 3000 })
		x := n.nodes[0]
		var members []string
		for i := range 2500 {
			members = append(members, fmt.Sprint("user", i))
		}
		x.members.set("c", members...)
		w := watchC(t, x)
		want := map[string]State{}
		for _, userID := range members {
			x.v.announced(n.writeTo(userID, onWeb))
			want[userID] = onWeb
		}
		w.expect(2500, want)
		var sizes []int
		for _, c := range w.updates {
			sizes = append(sizes, len(c.Users))
		}
		if !slices.Equal(sizes, []int{1000, 1000, 500}) {
			t.Errorf("frames of %v", sizes)
		}
		x.v.forget(w.s)
	})
}

// TestChannelWaitsForStates checks that a stream begins with the state of a channel when the states
// of all members are known, and not with members who are only not known to be online.
func TestChannelWaitsForStates(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int{"listed": 2, "counted": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := settledNet(t, 1, func(c *Config) { c.ChannelMembers = most })
				x := n.nodes[0]
				x.members.set("c", "ada", "bob")
				n.writeTo("ada", onWeb)
				n.store.set(func(m *modelStore) { m.down = true })
				var watchers []*channelWatcher
				for range 2 {
					w := &channelWatcher{watcher: x.watcher()}
					for range 2 { // a repeat does not know more
						if state, err := x.v.watchChannel(t.Context(), w.s, ChannelRef{ID: "c"}); state != nil || err != nil {
							t.Errorf("while the store is down: %+v, %v", state, err)
						}
					}
					watchers = append(watchers, w)
				}
				time.Sleep(10 * time.Second)
				for _, w := range watchers {
					if w.read(); len(w.frames) > 0 && len(w.frames[0].Channels) > 0 {
						t.Errorf("sent %+v while the store is down", w.frames[0].Channels)
					}
				}
				n.store.set(func(m *modelStore) { m.down = false })
				time.Sleep(2 * time.Second)
				want := map[string]State{"ada": onWeb}
				for _, w := range watchers {
					if w.read(); most == 1 {
						want = map[string]State{}
					}
					var got []ChannelState
					for _, f := range w.frames {
						got = append(got, f.Channels...)
					}
					if len(got) != 1 || got[0].Online != 1 || got[0].Members != 2 || got[0].Complete != (most == 2) || len(got[0].Users) != len(want) {
						t.Errorf("%+v follows", got)
					}
				}
			})
		})
	}
}

// TestOpenWaitsForStates checks that Open does not wait longer for the state of a channel, which
// then follows.
func TestOpenWaitsForStates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		members := &fakeMembers{channels: map[string][]string{}}
		members.set("c", "ada", "bob")
		f := newFleet(t, 1, func(c *Config) { c.Members = members })
		f.nodes[0].store.set(func(m *modelStore) { m.down = true })
		s := openWatching(t, f.nodes[0].hub, "ada", ChannelRef{ID: "c"})
		if got := channelsOf(t, s); len(got) > 0 {
			t.Errorf("sent %+v while the store is down", got)
		}
		f.nodes[0].store.set(func(m *modelStore) { m.down = false })
		time.Sleep(5 * time.Second)
		if got := channelsOf(t, s); len(got) != 1 || !got[0].Complete || got[0].Members != 2 {
			t.Errorf("%+v follows", got)
		}
	})
}
