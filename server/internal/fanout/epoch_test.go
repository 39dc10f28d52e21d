package fanout

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestHistoryGoneWhileLive checks that a live subscriber gets a gap for lost events that the log
// has removed meanwhile, and then the events after it.
func TestHistoryGoneWhileLive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		s := r.open(live("c"))
		r.read(s)
		r.send("c")
		r.log.addMany("c", 5)
		r.log.mu.Lock()
		r.log.channel("c").oldest = 5
		r.log.mu.Unlock()
		r.send("c")
		got := r.read(s)["c"]
		time.Sleep(time.Second)
		equal(t, join(got, r.read(s)["c"]), "e1/1 gap(e1/4,from=1,reason=2) e1/5 e1/6 e1/7")
	})
}

func TestEpochChange(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(r *rig){
		// An event of the new epoch arrives.
		"event": func(r *rig) { r.send("c") },
		// No event arrives, but a check detects it.
		"check": func(r *rig) { r.log.add("c"); time.Sleep(time.Minute) },
		// Another stream subscribes.
		"subscriber": func(r *rig) { r.log.add("c"); r.read(r.open(live("c"))) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := setup(t, Config{})
				r.log.addMany("c", 10)
				s, other := r.open(live("c"), live("d")), r.open(after("c", 8))
				equal(t, r.read(s)["c"], want("state(e1/10,head=10,recovered=false)", 11, 10))
				equal(t, r.read(other)["c"], want("state(e1/8,head=10,recovered=true)", 9, 10))
				old := r.log.add("c")
				r.log.restore("c", "e2", 6)
				tell(r)
				equal(t, r.read(s)["c"], "gap(e2/7,from=10,reason=1)")
				equal(t, r.read(other)["c"], "gap(e2/7,from=10,reason=1)")
				r.bus.publish(old) // of the old epoch, late
				r.send("c")
				r.send("d")
				r.bus.publish(old)
				equal(t, r.read(s), map[string]string{"c": "e2/8", "d": "e1/1"})
				equal(t, r.read(other)["c"], "e2/8")
				time.Sleep(time.Minute)
				equal(t, r.read(s)["c"], "")
			})
		})
	}
}

// TestEpochChangeBetween checks that events of the new epoch are delivered after the gap if they
// arrive while the read of the new state is in flight.
func TestEpochChangeBetween(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		r.log.addMany("c", 10)
		s := r.open(live("c"))
		r.read(s)
		r.log.restore("c", "e2", 6)
		var n atomic.Int64
		r.log.on(afterState, func(context.Context, string) error {
			if n.Add(1) == 1 {
				r.send("c")
				r.send("c")
			}
			return nil
		})
		r.send("c")
		equal(t, r.read(s)["c"], "gap(e2/7,from=10,reason=1) e2/8 e2/9")
	})
}

// TestStaleStateIsIgnored checks that the answer of a read from before a restore of the log is
// ignored if it arrives after the state of the new epoch.
func TestStaleStateIsIgnored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		r.log.addMany("c", 10)
		s := r.open(live("c"))
		r.read(s)
		late := make(chan struct{})
		r.log.on(afterState, func(context.Context, string) error { <-late; return nil })
		other := r.open(live("c"))
		go func() { _, _ = other.Next(t.Context()) }()
		synctest.Wait() // other's read of the state is done, its answer in flight
		r.log.on(afterState, nil)
		r.log.restore("c", "e2", 6)
		r.send("c")
		equal(t, r.read(s)["c"], "gap(e2/7,from=10,reason=1)")
		close(late)
		synctest.Wait()
		r.send("c")
		equal(t, r.read(s)["c"], "e2/8")
	})
}

// TestEpochChangeInReplay checks that a subscriber gets a gap to the end of the new log if the
// epoch changes in the middle of its replay, and no second State.
func TestEpochChangeInReplay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := noChecks()
		cfg.ReplayFrameBytes = 64
		r := setup(t, cfg)
		r.log.addMany("c", 200)
		s := r.open(after("c", 0))
		for range 4 {
			if _, err := s.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		r.log.restore("c", "e2", 150)
		time.Sleep(time.Second)
		got := r.read(s)["c"]
		time.Sleep(10 * time.Second)
		got = join(got, r.read(s)["c"])
		r.send("c")
		got = join(got, r.read(s)["c"])
		_, tail, ok := strings.Cut(got, "gap(")
		if !ok || strings.Contains(got, "state") || !strings.HasPrefix(tail, "e2/150,") ||
			!strings.HasSuffix(tail, ",reason=1) e2/151") {
			t.Fatalf("got %s", got)
		}
	})
}

// TestHistoryGoneInReplay checks that a subscriber gets a gap, and then the rest, if the log
// removes entries in the middle of its replay.
func TestHistoryGoneInReplay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := noChecks()
		cfg.ReplayFrameBytes = 64
		r := setup(t, cfg)
		r.log.addMany("c", 200)
		s := r.open(after("c", 0))
		if _, err := s.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.log.mu.Lock()
		r.log.channel("c").oldest = 190
		r.log.mu.Unlock()
		time.Sleep(time.Second)
		got := r.read(s)["c"]
		time.Sleep(10 * time.Second)
		got = join(got, r.read(s)["c"])
		_, tail, ok := strings.Cut(got, "gap(e1/189,")
		if !ok || !strings.HasSuffix(tail, ",reason=2) "+want("", 190, 200)) {
			t.Fatalf("got %s", got)
		}
	})
}
