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

// TestFillDoesNotBlockOthers checks that other channels continue while a missing event is read from
// a slow log, and that one read serves all streams.
func TestFillDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		a, b := r.open(live("c"), live("d")), r.open(live("c"))
		r.read(a)
		r.read(b)
		open := make(chan struct{})
		r.log.on(beforeReplay, func(context.Context, string) error { <-open; return nil })
		r.send("c")
		r.log.add("c") // the bus loses its event
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

// TestHoleClosedByLateEvent checks that later events are delivered at once when the missing event
// arrives late, although the log is down.
func TestHoleClosedByLateEvent(t *testing.T) {
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

// TestParkedEventsAreReadAgain checks that the text of a message is not delivered if the message
// was recalled while its event was parked, for longer than a second.
func TestParkedEventsAreReadAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		parked time.Duration
		want   string
	}{
		"a second": {recentFor, "1 x, 2 x, 3 x"},
		"more":     {recentFor + 1, "1 x, 2 gone, 3 x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := setup(t, noChecks())
				s := r.open(live("c"))
				r.read(s)
				away := true
				r.log.on(beforeReplay, func(context.Context, string) error {
					if away {
						return errors.New("away")
					}
					return nil
				})
				late := r.log.add("c")
				r.send("c")
				r.send("c")
				time.Sleep(tc.parked)
				synctest.Wait()
				away = false
				r.log.edit("c", 2, func(e *message.Event) { e.Message.Content = "gone" })
				r.bus.publish(late)
				equal(t, strings.Join(r.contents(s, 3), ", "), tc.want)
			})
		})
	}
}

// TestHoleOfLargeEvents checks that a subscriber gets all events if more bytes were lost than may
// be pushed to it unasked.
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

func TestFillIsRetried(t *testing.T) {
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
		r.log.add("c") // the bus loses its event
		r.send("c")
		equal(t, r.read(s)["c"], "")
		time.Sleep(time.Minute)
		equal(t, r.read(s)["c"], want("", 1, 2))
	})
}

// TestLargeHole checks that a subscriber gets all events and is not cut if more were lost than may
// be pushed to it unasked: it replays them at its own pace.
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

// TestPositionChecks checks that a lost last event, which no later event reveals, is delivered in
// time after each of the scheduled checks and after a reconnect of the bus.
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
				r.log.add("c") // the bus loses its event
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

// TestCheckDuringLag checks that a lagging bus causes no reads of events, although each check finds
// the topic behind the log.
func TestCheckDuringLag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, Config{})
		s := r.open(live("c"))
		r.read(s)
		for range 300 { // each arrives long after CheckGrace
			e := r.log.add("c")
			time.AfterFunc(250*time.Millisecond, func() { r.bus.publish(e) })
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Second)
		equal(t, r.read(s)["c"], want("", 1, 300))
		equal(t, r.log.replays, 0)
	})
}

func TestCheckRetriesAfterLogFailure(t *testing.T) {
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
		r.log.add("c") // the bus loses its event
		time.Sleep(10 * time.Second)
		away.Store(false)
		time.Sleep(6 * time.Second)
		equal(t, r.read(s)["c"], want("", 1, 1))
	})
}

// TestEncodedOnce checks that a live event is encoded once, regardless of the number of streams.
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
		var streams []*Stream
		for range 50 {
			s := r.open(live("c"))
			r.read(s)
			streams = append(streams, s)
		}
		for range 20 {
			e := r.log.add("c")
			e.Traceparent = "00-a-b-01"
			r.bus.publish(e)
		}
		for _, s := range streams {
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

// TestLinger checks that the node subscribes to a channel on the bus only while it has a subscriber
// there, or had one a moment ago.
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

// TestNoLiveSubscribers checks that a lost event is not read from the log while no subscription is
// live, and that a subscriber that comes back gets it.
func TestNoLiveSubscribers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		s := r.open(live("c"))
		r.read(s)
		if err := remove(s, "c"); err != nil {
			t.Error(err)
		}
		r.log.add("c") // the bus loses its event
		r.send("c")
		synctest.Wait()
		equal(t, r.log.replays, 0)
		if err := s.Add([]Position{after("c", 0)}); err != nil {
			t.Fatal(err)
		}
		r.send("c")
		equal(t, r.read(s)["c"], want("state(e1/0,head=3,recovered=true)", 1, 3))
	})
}
