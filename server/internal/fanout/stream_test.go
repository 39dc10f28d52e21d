package fanout

import (
	"context"
	"errors"
	"regexp"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/stream"
)

// failure checks that err is a fault of this kind and reason, and returns it.
func failure(t *testing.T, err error, kind fault.Kind, reason fault.Reason) *fault.Error {
	t.Helper()
	e, ok := fault.As(err)
	if !ok || e.Kind != kind || e.Reason != reason {
		t.Fatalf("got %v, want kind %d and reason %s", err, kind, reason)
	}
	return e
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, Config{})
		s := r.open(live("c"))
		r.read(s)
		start := time.Now()
		next := func(after time.Duration, heartbeat bool) {
			t.Helper()
			f, err := s.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			equal(t, f.Heartbeat, heartbeat)
			equal(t, time.Since(start).Round(time.Second), after)
			start = time.Now()
		}
		start = start.Add(-10 * time.Millisecond) // the time that read waited for
		next(15*time.Second, true)
		next(15*time.Second, true)
		time.AfterFunc(10*time.Second, func() { r.send("c") })
		next(10*time.Second, false)
		next(15*time.Second, true)
	})
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, Config{})
		s, err := r.hub.Open("ann", time.Now().Add(20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Add([]Position{live("c")}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		time.AfterFunc(12*time.Second, func() { r.send("c") })
		for {
			if _, err = s.Next(t.Context()); err != nil {
				break
			}
		}
		e := failure(t, err, fault.Unauthenticated, fault.TokenExpired)
		equal(t, e.Retryable(), true)
		equal(t, e.Positions, []fault.Position{{ChannelID: "c", Seq: 1, Epoch: "e1"}})
		equal(t, time.Since(start), 20*time.Second)
		_, err = s.Next(t.Context())
		failure(t, err, fault.Unauthenticated, fault.TokenExpired)
	})
}

func TestDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, Config{})
		idle, busy := r.open(live("c")), r.open(live("c"))
		r.read(idle)
		r.read(busy)
		r.send("c")
		r.read(idle)
		drained := make(chan error, 1)
		go func() { drained <- r.hub.Drain(t.Context(), 7*time.Second) }()
		synctest.Wait()
		_, err := r.hub.Open("ann", time.Time{})
		failure(t, err, fault.Unavailable, fault.ShuttingDown)
		failure(t, busy.Add([]Position{live("d")}), fault.Unavailable, fault.ShuttingDown)
		r.send("c") // too late: the stream is draining
		f, err := busy.Next(t.Context())
		if err != nil || f.Events != 1 {
			t.Fatalf("what was queued: %+v, %v", f, err)
		}
		for _, s := range []*Stream{idle, busy} {
			f, err := s.Next(t.Context())
			if err != nil || f.Reconnect != 7*time.Second {
				t.Fatalf("advice: %+v, %v", f, err)
			}
			_, err = s.Next(t.Context())
			e := failure(t, err, fault.Unavailable, fault.ShuttingDown)
			equal(t, e.Positions, []fault.Position{{ChannelID: "c", Seq: 1, Epoch: "e1"}})
			select {
			case err := <-drained:
				t.Fatalf("drained with a stream open: %v", err)
			default:
			}
			s.Close()
			synctest.Wait()
		}
		equal(t, <-drained, error(nil))
		equal(t, r.hub.stats.streams.Load(), int64(0))
	})
}

func TestHubStartsAndStops(t *testing.T) {
	t.Parallel()
	lifecycletest.Stress[*Hub](t, func(*testing.T) *Hub { return New(Config{}, newBus(), newLog(), &fakeEncoder{}) })
}

func TestOpenRequiresRunningHub(t *testing.T) {
	t.Parallel()
	h := New(Config{}, newBus(), newLog(), &fakeEncoder{})
	_, err := h.Open("ann", time.Time{})
	failure(t, err, fault.Unavailable, fault.ShuttingDown)
	lifecycletest.Start(t, h)
	s, err := h.Open("ann", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	lifecycletest.Stop(t, h)
	_, err = h.Open("ann", time.Time{})
	failure(t, err, fault.Unavailable, fault.ShuttingDown)
}

func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, Config{})
		s := r.open(live("c"))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := r.hub.Drain(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("drain: %v", err)
		}
		lifecycletest.Stop(t, r.hub)
		_, err := s.Next(t.Context())
		failure(t, err, fault.Unavailable, fault.ShuttingDown)
		s.Close()
		lifecycletest.Stop(t, r.hub)
		equal(t, r.bus.listeners("c"), 0)
	})
}

func TestLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, Config{MaxChannelsPerStream: 3, MaxStreamsPerSubject: 2, MaxStreams: 3})
		limited := func(err error, limit int64) {
			t.Helper()
			equal(t, failure(t, err, fault.ResourceExhausted, fault.LimitExceeded).Limit, limit)
		}
		a, _ := r.open(), r.open()
		_, err := r.hub.Open("ann", time.Time{})
		equal(t, failure(t, err, fault.ResourceExhausted, fault.NodeFull).Limit, int64(2))
		if _, err = r.hub.Open("bob", time.Time{}); err != nil {
			t.Fatal(err)
		}
		_, err = r.hub.Open("cid", time.Time{})
		full := failure(t, err, fault.ResourceExhausted, fault.NodeFull)
		equal(t, full.Limit, int64(3))
		equal(t, full.Retryable(), true) // another node may have room
		a.Close()
		a.Close()
		a = r.open(live("1"), live("2"))
		limited(a.Add([]Position{live("3"), live("4")}), 3)
		equal(t, len(a.subs), 2) // all or nothing
		if err := a.Add([]Position{live("3"), live("1"), live("3")}); err != nil {
			t.Fatal(err)
		}
		limited(a.Add([]Position{live("4")}), 3)
		if err := remove(a, "1", "none"); err != nil {
			t.Error(err)
		}
		if err := a.Add([]Position{live("4")}); err != nil {
			t.Fatal(err)
		}
		equal(t, len(r.read(a)), 3)
		limited(a.Update(Change{Add: []Position{live("5"), live("6")}, Remove: []string{"4"}}), 3)
		equal(t, len(a.subs), 3) // the failed Update removed nothing either
		if err := a.Update(Change{Add: []Position{live("5"), live("6")}, Remove: []string{"4", "3"}}); err != nil {
			t.Fatal(err) // removed channels make room
		}
		equal(t, len(a.subs), 3)
	})
}

func TestStreamIsBoundToSubject(t *testing.T) {
	t.Parallel()
	r := setup(t, Config{})
	s := r.open()
	if !regexp.MustCompile(`^[A-Za-z0-9_-]{22,64}$`).MatchString(s.ID()) || s.ID() == r.open().ID() {
		t.Fatalf("id %q", s.ID())
	}
	if id := setup(t, Config{Node: "node-1"}).open().ID(); len(id) != 32 || id[26:] != "node-1" {
		t.Errorf("of a named node: id %q", id)
	}
	if err := r.hub.Update(s.ID(), "ann", Change{}); err != nil {
		t.Fatalf("own stream: %v", err)
	}
	another := r.hub.Update(s.ID(), "bob", Change{})
	unknown := r.hub.Update("nope", "ann", Change{})
	s.Close()
	closed := r.hub.Update(s.ID(), "ann", Change{})
	for _, err := range []error{another, unknown, closed} {
		equal(t, *failure(t, err, fault.NotFound, fault.StreamNotFound), *stream.NotFound())
	}
	failure(t, s.Add(nil), fault.NotFound, fault.StreamNotFound)
	_, err := s.Next(t.Context())
	failure(t, err, fault.NotFound, fault.StreamNotFound)
}

func TestAddAndRemoveWhileLive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		s := r.open(live("a"), live("b"))
		r.read(s)
		r.send("a")
		r.send("b")
		if err := remove(s, "a"); err != nil {
			t.Error(err)
		}
		r.send("a")
		equal(t, r.read(s), map[string]string{"b": want("", 1, 1)})
		add := func(p Position) {
			t.Helper()
			if err := s.Add([]Position{p}); err != nil {
				t.Fatal(err)
			}
		}
		add(live("d"))
		add(after("a", 1))
		r.send("d")
		equal(t, r.read(s), map[string]string{
			"a": want("state(e1/1,head=2,recovered=true)", 2, 2), "d": want("state(e1/1,head=1,recovered=false)", 2, 1),
		})
		// A channel that the stream has restarts from the new position: its queued entries do not
		// come twice, nor before the new state.
		r.send("b")
		r.send("b")
		add(after("b", 0))
		r.send("b")
		equal(t, r.read(s), map[string]string{"b": want("state(e1/0,head=4,recovered=true)", 1, 4)})
		r.send("b")
		equal(t, r.read(s), map[string]string{"b": want("", 5, 5)})
		equal(t, r.hub.stats.subscribers.Load(), int64(3))
		if err := remove(s, "a", "b", "d"); err != nil {
			t.Error(err)
		}
		equal(t, r.hub.stats.subscribers.Load(), int64(0))
		for _, id := range []string{"a", "b", "d"} {
			r.send(id)
		}
		equal(t, r.read(s), map[string]string{})
	})
}

// TestReAddDuringReplay checks that nothing of the old replay is delivered if a channel is added
// again while a page is being read.
func TestReAddDuringReplay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		r.log.addMany("c", 10)
		s := r.open(after("c", 0))
		var once atomic.Bool
		r.log.on(afterReplay, func(context.Context, string) error {
			if once.CompareAndSwap(false, true) {
				return s.Add([]Position{after("c", 7)})
			}
			return nil
		})
		equal(t, r.read(s)["c"], want("state(e1/0,head=10,recovered=true) state(e1/7,head=10,recovered=true)", 8, 10))
	})
}

// TestNextEndsWithItsContext checks that Next returns the error of a context that ends, and that a
// later Next returns everything.
func TestNextEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		s := r.open(live("c"))
		r.read(s)
		for i := int64(1); i < 20; i++ {
			ctx, cancel := context.WithCancel(t.Context())
			go cancel()
			if i%2 == 0 {
				go r.send("c")
			} else {
				r.send("c")
			}
			if _, err := s.Next(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		r.send("c")
		f, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lines := decode(t, f)
		equal(t, lines[len(lines)-1].seq, int64(20))
	})
}
