package fanout

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

func TestReorderAndRepeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		s := r.open(live("c"))
		r.read(s)
		var events []message.Event
		for range 40 {
			e := r.log.add("c")
			events = append(events, e, e)
		}
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		for _, e := range events {
			r.bus.publish(e)
		}
		equal(t, r.read(s)["c"], want("", 1, 40))
	})
}

// TestHoleWaitsForNobody fills a hole while the log is slow: other channels go on, and one read serves all sessions.
func TestHoleWaitsForNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		a, b := r.open(live("c"), live("d")), r.open(live("c"))
		r.read(a)
		r.read(b)
		open := make(chan struct{})
		r.log.on(beforeReplay, func(context.Context, string) error { <-open; return nil })
		r.send("c")
		r.log.add("c") // lost
		for range 5 {
			r.send("c")
			r.send("d")
		}
		equal(t, r.read(a), map[string]string{"c": want("", 1, 1), "d": want("", 1, 5)})
		close(open)
		equal(t, r.read(a)["c"], want("", 2, 7))
		equal(t, r.read(b)["c"], want("", 1, 7))
		equal(t, r.log.replays, 1)
	})
}

// TestHoleThatClosesItself has the missing event come late, while the log is away: what was parked follows at once.
func TestHoleThatClosesItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		s := r.open(live("c"))
		r.read(s)
		r.log.on(beforeReplay, func(context.Context, string) error { return errors.New("away") })
		late := r.log.add("c")
		r.send("c")
		r.send("c")
		equal(t, r.read(s)["c"], "")
		r.bus.publish(late)
		equal(t, r.read(s)["c"], want("", 1, 3))
	})
}

// TestHoleOfLargeEvents loses more bytes than may be pushed at a reader who did not ask.
func TestHoleOfLargeEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := noChecks()
		cfg.QueueBytes = 4000
		r := setup(t, cfg)
		s := r.open(live("c"))
		r.read(s)
		for range 10 {
			r.log.addSized("c", 1000)
		}
		r.send("c")
		synctest.Wait()
		equal(t, r.read(s)["c"], want("", 1, 11))
	})
}

// TestHistoryGoneWhileLive loses events of a live channel that the log no longer holds either.
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

func TestFillIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		s := r.open(live("c"))
		r.read(s)
		var fails atomic.Int64
		r.log.on(beforeReplay, func(context.Context, string) error {
			if fails.Add(1) <= 6 {
				return errors.New("away")
			}
			return nil
		})
		r.log.add("c") // lost
		r.send("c")
		equal(t, r.read(s)["c"], "")
		time.Sleep(time.Minute)
		equal(t, r.read(s)["c"], want("", 1, 2))
	})
}

// TestLargeHole loses more than may be pushed at a reader who did not ask: it is replayed at the reader's pace.
func TestLargeHole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := noChecks()
		cfg.QueueEvents = 16
		r := setup(t, cfg)
		s := r.open(live("c"))
		r.read(s)
		r.log.addMany("c", 5000)
		r.send("c")
		for range 50 {
			r.send("c")
		}
		equal(t, r.read(s)["c"], want("", 1, 5051))
		equal(t, r.hub.stats.demoted.Load(), int64(1))
		equal(t, r.hub.stats.cuts.Load(), int64(0))
		r.send("c")
		equal(t, r.read(s)["c"], want("", 5052, 5052))
	})
}

// TestPositionChecks loses the last event, which leaves no hole to see, at times which each check in turn must cover.
func TestPositionChecks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		wait, within time.Duration
		reconnect    bool
	}{
		"0.25 s":    {wait: 0, within: 400 * time.Millisecond},
		"1 s":       {wait: 500 * time.Millisecond, within: 650 * time.Millisecond},
		"5 s":       {wait: 2 * time.Second, within: 3200 * time.Millisecond},
		"40 s":      {wait: 6 * time.Second, within: 40 * time.Second},
		"again":     {wait: 200 * time.Second, within: 41 * time.Second},
		"reconnect": {wait: 6 * time.Second, within: 1400 * time.Millisecond, reconnect: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := setup(t, Config{HeartbeatInterval: time.Hour})
				s := r.open(live("c"))
				equal(t, r.read(s)["c"], want("state(e1/0,head=0,recovered=false)", 1, 0))
				time.Sleep(tc.wait)
				r.log.add("c") // lost
				if tc.reconnect {
					r.bus.reconnect()
				}
				ctx, cancel := context.WithTimeout(t.Context(), tc.within)
				defer cancel()
				f, err := s.Next(ctx)
				if err != nil {
					t.Fatalf("within %s: %v", tc.within, err)
				}
				equal(t, decode(t, f)[0].String(), "e1/1")
			})
		})
	}
}

// TestCheckDuringLag sees that a check which finds events on their way reads nothing for them.
func TestCheckDuringLag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, Config{})
		s := r.open(live("c"))
		r.read(s)
		for range 300 { // each a good deal later than the grace
			e := r.log.add("c")
			time.AfterFunc(250*time.Millisecond, func() { r.bus.publish(e) })
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Second)
		equal(t, r.read(s)["c"], want("", 1, 300))
		equal(t, r.log.replays, 0)
	})
}

func TestCheckSurvivesTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, Config{})
		s := r.open(live("c"))
		r.read(s)
		var away atomic.Bool
		away.Store(true)
		r.log.on(beforeState, func(context.Context, string) error {
			if away.Load() {
				return errors.New("away")
			}
			return nil
		})
		r.log.add("c") // lost
		time.Sleep(10 * time.Second)
		away.Store(false)
		time.Sleep(6 * time.Second)
		equal(t, r.read(s)["c"], want("", 1, 1))
	})
}

func TestEpochChange(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(r *rig){
		// An event of the new epoch comes.
		"event": func(r *rig) { r.send("c") },
		// Nothing comes, but a check finds out.
		"check": func(r *rig) { r.log.add("c"); time.Sleep(time.Minute) },
		// Somebody else subscribes.
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

// TestEpochChangeBetween has the new epoch's events come between the look at the state and its answer.
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

// TestOldStateComesLate has an answer of the log from before a restore arrive after one from behind it.
func TestOldStateComesLate(t *testing.T) {
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
		synctest.Wait() // its look at the state is done, its answer on its way
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

// TestEpochChangeInReplay changes the epoch under a subscriber that is in the middle of its replay.
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
		if !ok || !strings.HasPrefix(tail, "e2/150,") || !strings.HasSuffix(tail, ",reason=1) e2/151") || strings.Contains(got, "state") {
			t.Fatalf("got %s", got)
		}
	})
}

// TestHistoryGoneInReplay takes the history away from under a replay.
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

// TestEncodedOnce counts encodings: one per live event, whatever the number of sessions.
func TestEncodedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := noChecks()
		var delivered atomic.Int64
		var traced atomic.Value
		cfg.OnDeliver = func(e *message.Event, subscribers int) {
			delivered.Add(int64(subscribers))
			traced.Store(e.Traceparent)
		}
		r := setup(t, cfg)
		var sessions []*Session
		for range 50 {
			s := r.open(live("c"))
			r.read(s)
			sessions = append(sessions, s)
		}
		for range 20 {
			e := r.log.add("c")
			e.Traceparent = "00-a-b-01"
			r.bus.publish(e)
		}
		for _, s := range sessions {
			f, err := s.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			equal(t, f.Events, 20) // joined in one frame
		}
		equal(t, r.enc.events, 20)
		equal(t, delivered.Load(), int64(1000))
		equal(t, traced.Load(), any("00-a-b-01"))
		equal(t, r.hub.stats.deliveries.Load(), int64(1000))
	})
}

// TestLinger sees that the node listens to a channel only while somebody wants it, or did a moment ago.
func TestLinger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, Config{})
		equal(t, r.bus.listeners("c"), 0)
		for range 5 {
			s := r.open(live("c"))
			r.read(s)
			equal(t, r.bus.listeners("c"), 1)
			s.Close()
			time.Sleep(2 * time.Second)
			equal(t, r.bus.listeners("c"), 1)
		}
		equal(t, r.bus.subscribed, 1)
		time.Sleep(4 * time.Second)
		equal(t, r.bus.listeners("c"), 0)
		equal(t, len(r.hub.topics), 0)
		s := r.open(live("c"))
		r.read(s)
		r.send("c")
		equal(t, r.read(s)["c"], want("", 1, 1))
		equal(t, r.bus.subscribed, 2)
	})
}

// TestNobodyLive has events, a hole among them, come while the only subscriber is away, and nothing is read for it.
func TestNobodyLive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		s := r.open(live("c"))
		r.read(s)
		s.Remove([]string{"c"})
		r.log.add("c") // lost
		r.send("c")
		synctest.Wait()
		equal(t, r.log.replays, 0)
		if err := s.Add(t.Context(), []Position{after("c", 0)}); err != nil {
			t.Fatal(err)
		}
		r.send("c")
		equal(t, r.read(s)["c"], want("state(e1/0,head=3,recovered=true)", 1, 3))
	})
}
