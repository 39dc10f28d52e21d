package presence

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// openWatching opens an invisible stream of a subject that watches channels.
func openWatching(t *testing.T, h *Hub, subject string, channels ...ChannelRef) *Stream {
	t.Helper()
	s, _, err := h.Open(t.Context(), &OpenRequest{Subject: subject, Expires: time.Now().Add(time.Hour), Invisible: true, Channels: channels})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// channelsOf returns the states of channels in the frames that are ready.
func channelsOf(t *testing.T, s *Stream) (states []ChannelState) {
	t.Helper()
	for {
		f, ok, err := s.Poll(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return states
		}
		if f.Update != nil {
			states = append(states, f.Update.Channels...)
		}
	}
}

// TestExpel checks that Expel ends the watches of a subject but for exempt ones, with one last
// state, and that nothing of the channel follows.
func TestExpel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		members := &fakeMembers{channels: map[string][]string{}}
		members.set("c", "ada", "bob", "eve")
		members.set("d", "eve")
		f := newFleet(t, 1, func(c *Config) { c.Members, c.MaxChannels = members, 2 })
		h := f.nodes[0].hub
		c, d := ChannelRef{ID: "c"}, ChannelRef{ID: "d"}
		one, two := openWatching(t, h, "ada", c, d), openWatching(t, h, "ada", c)
		free, bob := openWatching(t, h, "ada", ChannelRef{ID: "c", Exempt: true}), openWatching(t, h, "bob", c)
		manager := openWatching(t, h, "max", ChannelRef{ID: "c", Exempt: true})
		subjects := h.WatchingSubjects("c", false)
		if slices.Sort(subjects); !slices.Equal(subjects, []string{"ada", "bob"}) || h.WatchingSubjects("never", false) != nil {
			t.Errorf("watching: %q, %q", subjects, h.WatchingSubjects("never", false))
		}
		for range 2 { // a repeat does nothing
			h.Expel("c", "ada", false)
			h.Expel("never", "ada", false)
		}
		if _, err := h.WatchChannel(t.Context(), one.ID(), "ada", ChannelRef{ID: "e"}); !fault.Is(err, fault.LimitExceeded) {
			t.Errorf("a lost channel does not count before the client knows: %v", err)
		}
		eve, _, err := h.Open(t.Context(), &OpenRequest{Subject: "eve", Platform: Web, Device: "d", Expires: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for name, s := range map[string]*Stream{"one": one, "two": two} {
			lost, others := 0, 0
			for _, state := range channelsOf(t, s) {
				switch {
				case state.ChannelID == "d":
					others++
				case state.Lost != fault.NotMember || state.Revision == 0 || state.Online+state.Members+len(state.Users) > 0:
					t.Errorf("%s gets %+v", name, state)
				default:
					lost++
				}
			}
			if lost != 1 || name == "one" && others == 0 {
				t.Errorf("%s: %d last states, %d of the other channel", name, lost, others)
			}
		}
		for name, s := range map[string]*Stream{"free": free, "bob": bob, "manager": manager} {
			if states := channelsOf(t, s); len(states) == 0 || states[0].Lost != "" || states[0].Online != 1 {
				t.Errorf("%s gets %+v", name, states)
			}
		}
		if subjects := h.WatchingSubjects("c", false); !slices.Equal(subjects, []string{"bob"}) {
			t.Errorf("watching after Expel: %q", subjects)
		}
		for _, s := range []*Stream{one, two, free, bob, manager, eve} {
			h.Close(s)
		}
		for _, p := range leftovers(h.view) {
			t.Error(p)
		}
	})
}

// TestWatchAfterExpel checks that a watch after Expel takes the place of a last state that waits,
// that the newest exemption counts, and that draining and ended streams are expelled too.
func TestWatchAfterExpel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		members := &fakeMembers{channels: map[string][]string{}}
		members.set("c", "ada")
		f := newFleet(t, 1, func(c *Config) { c.Members = members })
		h := f.nodes[0].hub
		s := openWatching(t, h, "ada", ChannelRef{ID: "c"})
		watch := func(exempt bool) *ChannelState {
			t.Helper()
			state, err := h.WatchChannel(t.Context(), s.ID(), "ada", ChannelRef{ID: "c", Exempt: exempt})
			if err != nil {
				t.Fatal(err)
			}
			return state
		}
		h.Expel("c", "ada", false)
		watch(true)
		h.Expel("c", "ada", false)
		if states := channelsOf(t, s); len(states) > 0 {
			t.Errorf("a stream that watches the channel gets %+v", states)
		}
		again := watch(false)
		h.Expel("c", "ada", false)
		if states := channelsOf(t, s); len(states) != 1 || states[0].Lost != fault.NotMember || states[0].Revision <= again.Revision {
			t.Errorf("%+v after revision %d", states, again.Revision)
		}
		watch(false)
		s.drain(time.Second)
		h.Expel("c", "ada", false)
		if f, _, err := s.Poll(time.Now()); err != nil || f.Update == nil || f.Update.Channels[0].Lost != fault.NotMember {
			t.Errorf("a draining stream gets %+v, %v", f, err)
		}
		h.Close(s)
		h.Expel("c", "ada", false)
		if s.lost != nil {
			t.Errorf("left: %v", s.lost)
		}
		for _, p := range leftovers(h.view) {
			t.Error(p)
		}
	})
}
