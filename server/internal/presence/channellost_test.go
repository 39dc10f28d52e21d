package presence

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// TestChannelOutgrowsLimits checks that streams that watch a channel learn why they no longer do,
// once it or the node has too many members, and that nothing is left of it.
func TestChannelOutgrowsLimits(t *testing.T) {
	t.Parallel()
	many := make([]string, maxChannelMembers+1)
	for i := range many {
		many[i] = fmt.Sprintf("%06d", i)
	}
	for reason, grow := range map[fault.Reason]func(x *viewNode){
		fault.LimitExceeded: func(x *viewNode) { x.members.set("c", many...) },
		fault.NodeFull: func(x *viewNode) {
			x.members.set("c", "ada", "bob", "eve")
			x.v.channelMu.Lock()
			x.v.members = maxAllMembers
			x.v.channelMu.Unlock()
		},
	} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := settledNet(t, 1, nil)
				x := n.nodes[0]
				x.members.set("c", "ada", "bob")
				watchers := []*channelWatcher{watchC(t, x), watchC(t, x)}
				grow(x)
				x.v.membersChanged("c")
				time.Sleep(2 * memberInterval)
				for _, w := range watchers {
					w.read()
					if len(w.frames) != 1 || len(w.frames[0].Channels) != 1 {
						t.Fatalf("%d frames", len(w.frames))
					}
					last := w.frames[0].Channels[0]
					if last.Lost != reason || last.Revision <= w.got.revision || last.Members+last.Online+len(last.Users) > 0 {
						t.Errorf("sent %+v", last)
					}
				}
				reads := x.members.reads
				time.Sleep(2 * memberLife)
				if x.members.reads != reads {
					t.Error("the members are still read")
				}
				if reason == fault.NodeFull {
					x.v.members -= maxAllMembers - 2
				}
				for _, p := range leftovers(x.v) {
					t.Error(p)
				}
				x.members.set("c", "ada")
				state, err := x.v.watchChannel(t.Context(), watchers[0].s, ChannelRef{ID: "c"})
				if err != nil || state == nil || state.Members != 1 {
					t.Errorf("watched again: %+v, %v", state, err)
				}
				x.v.forget(watchers[0].s)
			})
		})
	}
}

// TestNodeFullOfReplaced checks that members who replace others need no more room.
func TestNodeFullOfReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, nil)
		x := n.nodes[0]
		x.members.set("c", "ada", "bob")
		w := watchC(t, x)
		x.v.channelMu.Lock()
		x.v.members = maxAllMembers
		x.v.channelMu.Unlock()
		x.members.set("c", "eve", "max")
		x.v.membersChanged("c")
		time.Sleep(2 * memberInterval)
		if state, err := x.v.watchChannel(t.Context(), w.s, ChannelRef{ID: "c"}); err != nil || state.Members != 2 {
			t.Errorf("%+v, %v", state, err)
		}
		if x.v.members != maxAllMembers {
			t.Errorf("%d members", x.v.members)
		}
		x.v.forget(w.s)
	})
}

// TestOpenRefusesChannel checks that Open fails if one of the channels cannot be watched, with its
// index.
func TestOpenRefusesChannel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		members := &fakeMembers{channels: map[string][]string{}}
		members.set("c", "ada")
		f := newFleet(t, 1, func(c *Config) { c.Members = members })
		h := f.nodes[0].hub
		open := func(channels ...ChannelRef) *fault.Error {
			t.Helper()
			_, _, err := h.Open(t.Context(), &OpenRequest{
				Subject: "ada", Expires: time.Now().Add(time.Hour), Invisible: true, Channels: channels,
			})
			f, ok := fault.As(err)
			if !ok {
				t.Fatal(err)
			}
			synctest.Wait() // until nothing is read any more
			return f
		}
		c := ChannelRef{ID: "c"}
		members.channels["many"] = make([]string, maxChannelMembers+1)
		if f := open(c, ChannelRef{ID: "many"}); f.Reason != fault.LimitExceeded || f.Field != "watch_channels[1]" {
			t.Errorf("%v in %s", f, f.Field)
		}
		h.view.members = maxAllMembers
		if f := open(c); f.Reason != fault.NodeFull || f.Field != "watch_channels[0]" {
			t.Errorf("%v in %s", f, f.Field)
		}
		h.view.members = 0
		missing := fault.New(fault.FailedPrecondition, fault.ChannelOpen, "channel_id: the channel is open")
		missing.Field = "channel_id"
		members.err = missing
		if f := open(c, ChannelRef{ID: "d"}); f.Reason != fault.ChannelOpen || f.Field != "watch_channels[0]" && f.Field != "watch_channels[1]" {
			t.Errorf("%v in %s", f, f.Field)
		}
		members.err = errors.New("away")
		if _, _, err := h.Open(t.Context(), &OpenRequest{
			Subject: "ada", Expires: time.Now().Add(time.Hour), Invisible: true, Channels: []ChannelRef{c},
		}); !errors.Is(err, members.err) {
			t.Errorf("open: %v", err)
		}
	})
}

// TestRefusedStreamIsNotOnline checks that a stream that asks for more than the limits is refused
// without showing its user online.
func TestRefusedStreamIsNotOnline(t *testing.T) {
	t.Parallel()
	for field, req := range map[string]OpenRequest{
		"watch":          {Watch: []string{"a", "b", "c", "a"}},
		"watch_channels": {Channels: []ChannelRef{{ID: "a"}, {ID: "b"}}},
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 1, func(c *Config) { c.MaxWatched, c.MaxChannels = 2, 1 })
				req.Subject, req.Platform, req.Device, req.Expires = "ada", Web, "d", time.Now().Add(time.Hour)
				_, _, err := f.nodes[0].hub.Open(t.Context(), &req)
				if f, ok := fault.As(err); !ok || f.Reason != fault.LimitExceeded || f.Field != field {
					t.Errorf("open: %v", err)
				}
				time.Sleep(5 * time.Second)
				if seq := f.store.Heads(t.Context(), []int{ShardOf("ada")})[0].Seq; seq != 0 {
					t.Errorf("%d entries in the log", seq)
				}
			})
		})
	}
}
