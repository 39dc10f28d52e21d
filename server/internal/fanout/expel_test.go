package fanout

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/stream"
)

func exemptFrom(id string) Position { return Position{ChannelID: id, Exempt: true} }

func TestSubscribedSubjects(t *testing.T) {
	t.Parallel()
	r := setup(t, noChecks())
	watched := func(id string, want ...string) {
		t.Helper()
		got := r.hub.SubscribedSubjects(id, message.ModeMembersOnly)
		slices.Sort(got)
		equal(t, append([]string{}, got...), append([]string{}, want...))
	}
	watched("c")
	r.openAs("ann", live("c"), live("d"))
	ann := r.openAs("ann", live("c"))
	bob := r.openAs("bob", after("c", 0))
	cid := r.openAs("cid", exemptFrom("c"), live("d"))
	r.openAs("dee", exemptFrom("c"))
	dee := r.openAs("dee", live("c"))
	watched("c", "ann", "bob", "dee")
	watched("d", "ann", "cid")
	ann.Close()
	dee.Close()
	watched("c", "ann", "bob")
	if err := bob.Update(Change{Add: []Position{exemptFrom("c")}}); err != nil {
		t.Fatal(err)
	}
	if err := cid.Update(Change{Add: []Position{live("c")}, Remove: []string{"d"}}); err != nil {
		t.Fatal(err)
	}
	watched("c", "ann", "cid")
	watched("d", "ann")
	watched("never")
}

// TestExpel checks that Expel removes a channel and its queued events from the subject's streams,
// except exempt ones, and leaves other subjects' streams alone.
func TestExpel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		one, two := r.open(live("c"), live("d")), r.open(live("c"))
		free, bob := r.open(exemptFrom("c")), r.openAs("bob", live("c"))
		for _, s := range []*Stream{one, two, free, bob} {
			r.read(s)
		}
		r.send("c")
		r.send("d")
		r.read(two)
		r.hub.Expel("c", "ann", message.ModeMembersOnly)
		r.hub.Expel("c", "ann", message.ModeMembersOnly) // announces it once
		r.hub.Expel("never", "ann", message.ModeMembersOnly)
		r.send("c")
		r.send("d")
		r.bus.typing("c", "bob")
		equal(t, r.read(one), map[string]string{"c": "lost(reason=1)", "d": want("", 1, 2)})
		equal(t, r.read(two), map[string]string{"c": "lost(reason=1)"})
		for _, s := range []*Stream{free, bob} {
			equal(t, r.read(s)["c"], want("", 1, 2)+" typing(bob)")
		}
		equal(t, r.hub.stats.expelled.Load(), int64(2))
		equal(t, r.hub.stats.subscribers.Load(), int64(3))
		one.end(stream.ShuttingDown())
		_, err := one.Next(t.Context())
		equal(t, failure(t, err, fault.Unavailable, fault.ShuttingDown).Positions,
			[]fault.Position{{ChannelID: "d", Seq: 2, Epoch: "e1"}})
		// The stream continues and may have the channel again.
		if err := two.Add([]Position{after("c", 1)}); err != nil {
			t.Fatal(err)
		}
		equal(t, r.read(two)["c"], want("state(e1/1,head=2,recovered=true)", 2, 2))
		r.send("c")
		equal(t, r.read(two)["c"], want("", 3, 3))
	})
}

// TestExpelThenUpdate checks that a pending Lost is dropped if an Update adds the channel again or
// removes it.
func TestExpelThenUpdate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		s := r.open(live("c"), live("d"), live("e"), live("f"))
		r.read(s)
		for _, id := range []string{"c", "d", "e"} {
			r.hub.Expel(id, "ann", message.ModeMembersOnly)
		}
		if err := s.Update(Change{Add: []Position{live("c")}, Remove: []string{"d"}}); err != nil {
			t.Fatal(err)
		}
		if err := remove(s, "f"); err != nil { // the Lost of e stays pending
			t.Fatal(err)
		}
		equal(t, r.read(s), map[string]string{"c": want("state(e1/0,head=0,recovered=false)", 1, 0), "e": "lost(reason=1)"})
	})
}

// TestExpelDuringReplay checks that nothing of a page is delivered if its subscriber is expelled
// while the page is being read, at any point of the read.
func TestExpelDuringReplay(t *testing.T) {
	t.Parallel()
	for point := range afterReplay + 1 {
		t.Run(fmt.Sprint(point), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := setup(t, noChecks())
				r.log.addMany("c", 2000)
				s := r.open(after("c", 0), live("d"))
				var once atomic.Bool
				r.log.on(point, func(_ context.Context, id string) error {
					if id == "c" && once.CompareAndSwap(false, true) {
						r.hub.Expel("c", "ann", message.ModeMembersOnly)
					}
					return nil
				})
				got := r.read(s)
				told := "lost(reason=1)"
				if point >= beforeReplay {
					told = "state(e1/0,head=2000,recovered=true) " + told
				}
				equal(t, got, map[string]string{"c": told, "d": want("state(e1/0,head=0,recovered=false)", 1, 0)})
				r.send("c")
				r.send("d")
				equal(t, r.read(s), map[string]string{"d": want("", 1, 1)})
			})
		})
	}
}

// TestExpelLingers checks that the node stays subscribed to the channel on the bus for
// Config.Linger after its last subscriber was expelled.
func TestExpelLingers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, Config{})
		s := r.open(live("c"))
		r.read(s)
		r.hub.Expel("c", "ann", message.ModeMembersOnly)
		equal(t, r.bus.listeners("c"), 1)
		time.Sleep(6 * time.Second)
		equal(t, r.bus.listeners("c"), 0)
	})
}

func TestExpelOfAnEndingStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		s := r.open(live("c"), live("d"))
		r.read(s)
		r.send("c")
		r.send("d")
		drained := make(chan error, 1)
		go func() { drained <- r.hub.Drain(t.Context(), time.Second) }()
		synctest.Wait()
		r.hub.Expel("c", "ann", message.ModeMembersOnly)
		f, err := s.Next(t.Context())
		if err != nil || f.Events != 1 {
			t.Fatalf("%+v, %v", f, err)
		}
		if f, err = s.Next(t.Context()); err != nil || f.Reconnect == 0 {
			t.Fatalf("%+v, %v", f, err)
		}
		r.hub.Expel("d", "ann", message.ModeMembersOnly)
		_, err = s.Next(t.Context())
		equal(t, len(failure(t, err, fault.Unavailable, fault.ShuttingDown).Positions), 0)
		s.Close()
		r.hub.Expel("d", "ann", message.ModeMembersOnly)
		equal(t, <-drained, error(nil))
		equal(t, len(r.hub.SubscribedSubjects("d", message.ModeMembersOnly)), 0)
	})
}

// TestExpelWaitsForUpdate checks that Expel waits for a concurrent Update that has added the
// channel to the topic but not yet to the stream, and then removes it.
func TestExpelWaitsForUpdate(t *testing.T) {
	t.Parallel()
	r := setup(t, noChecks())
	s := r.open()
	u := &subscription{stream: s, want: live("c")}
	s.edit.Lock()
	r.hub.attach(u)
	equal(t, r.hub.SubscribedSubjects("c", message.ModeMembersOnly), []string{"ann"})
	expelled := make(chan struct{})
	go func() {
		r.hub.Expel("c", "ann", message.ModeMembersOnly)
		close(expelled)
	}()
	select {
	case <-expelled:
		t.Error("it did not wait")
	case <-time.After(50 * time.Millisecond):
	}
	s.mu.Lock()
	s.subs = append(s.subs, u)
	s.mu.Unlock()
	s.edit.Unlock()
	<-expelled
	equal(t, len(r.hub.SubscribedSubjects("c", message.ModeMembersOnly)), 0)
	equal(t, r.read(s), map[string]string{"c": "lost(reason=1)"})
}

// TestExpelRace expels, updates, publishes, types, reads and closes concurrently: after the last
// Expel no event of the channel is delivered, regardless of the order before.
func TestExpelRace(t *testing.T) {
	t.Parallel()
	for round := range 30 {
		r := setup(t, Config{MaxStreamsPerSubject: 1000})
		streams := make([]*Stream, 4)
		var all, readers sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		after := make([]atomic.Bool, len(streams))
		for i := range streams {
			s := r.open(live("c"), live("d"))
			streams[i] = s
			readers.Go(func() { followAfterExpel(ctx, t, s, &after[i]) })
			all.Go(func() {
				for n := range 100 {
					if err := s.Update(Change{Add: []Position{{ChannelID: "c", Exempt: n%7 == 0}}, Remove: []string{"d"}}); err != nil {
						t.Error(err)
					}
				}
				// From this last Expel on, nothing adds c to the stream.
				if err := s.Update(Change{Add: []Position{live("c")}}); err != nil {
					t.Error(err)
				}
				r.hub.Expel("c", "ann", message.ModeMembersOnly)
				after[i].Store(true)
			})
		}
		all.Go(func() {
			for range 100 {
				r.hub.Expel("c", "ann", message.ModeMembersOnly)
				r.hub.SubscribedSubjects("c", message.ModeMembersOnly)
			}
		})
		all.Go(func() {
			for range 200 {
				r.send("c")
				r.bus.typing("c", "bob")
			}
		})
		all.Wait()
		for _, s := range streams {
			if s.mu.Lock(); len(s.subs) != 0 {
				t.Errorf("round %d: %d channels are left", round, len(s.subs))
			}
			s.mu.Unlock()
		}
		equal(t, len(r.hub.SubscribedSubjects("c", message.ModeMembersOnly)), 0)
		r.send("c")
		cancel()
		readers.Wait()
		for _, s := range streams {
			s.Close()
		}
	}
}

// followAfterExpel reads frames until the stream ends. It reports an error if a frame that is
// requested after expelled was set has anything of channel "c" but a Lost.
func followAfterExpel(ctx context.Context, t *testing.T, s *Stream, expelled *atomic.Bool) {
	for {
		late := expelled.Load()
		f, err := s.Next(ctx)
		if err != nil {
			return
		}
		for _, l := range decode(t, f) {
			if late && l.channel == "c" && l.kind != "lost" {
				t.Errorf("%v after it was expelled", l)
			}
		}
	}
}
