package fanout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// TestSlowConsumer checks that only the stream that does not read is cut, that its error has its
// positions, and that its queue is freed at once.
func TestSlowConsumer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cfg  Config
		size int
	}{
		"events": {Config{QueueEvents: 100}, 1},
		"bytes":  {Config{QueueBytes: 100_000}, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := setup(t, tc.cfg)
				r.log.addMany("c", 5)
				slow, quick := r.open(after("c", 3), live("d"), live("quiet"), after("later", 0)), r.open(live("c"))
				r.read(slow)
				r.read(quick)
				r.send("c")
				r.send("d")
				r.send("d")
				f, err := slow.Next(t.Context()) // the frame that the reader still uses when it is cut
				if err != nil || f.Events != 3 {
					t.Fatalf("frame %+v: %v", f, err)
				}
				for seq := int64(7); seq < 207; seq++ {
					r.bus.publish(r.log.addSized("c", tc.size))
					equal(t, r.read(quick)["c"] != "", true)
				}
				equal(t, r.hub.stats.cuts.Load(), int64(1))
				equal(t, cap(slow.queue), 0)
				_, err = slow.Next(t.Context())
				e := failure(t, err, fault.ResourceExhausted, fault.SlowConsumer)
				equal(t, e.Positions, []fault.Position{
					{ChannelID: "c", Seq: 6, Epoch: "e1"},
					{ChannelID: "d", Seq: 2, Epoch: "e1"},
					{ChannelID: "later", Seq: 0, Epoch: "e1"},
					{ChannelID: "quiet", Seq: 0, Epoch: "e1"},
				})
				if err := slow.Add([]Position{live("x")}); err == nil {
					t.Fatal("a cut stream took a channel")
				}
				err = r.hub.Update(slow.ID(), "ann", Change{})
				failure(t, err, fault.NotFound, fault.StreamNotFound)
				r.send("c")
				equal(t, r.read(quick)["c"], want("", 207, 207))
			})
		})
	}
}

// TestQueueLimitIsExact checks that a stream is cut at one event above the limit, and that an empty
// queue accepts one event of any size.
func TestQueueLimitIsExact(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, Config{QueueEvents: 10, QueueBytes: 1000})
		s := r.open(live("c"))
		r.read(s)
		for range 10 {
			r.send("c")
		}
		equal(t, r.read(s)["c"], want("", 1, 10))
		r.bus.publish(r.log.addSized("c", 5000))
		equal(t, r.read(s)["c"], want("", 11, 11))
		for range 11 {
			r.send("c")
		}
		_, err := s.Next(t.Context())
		e := failure(t, err, fault.ResourceExhausted, fault.SlowConsumer)
		equal(t, e.Positions, []fault.Position{{ChannelID: "c", Seq: 11, Epoch: "e1"}})
	})
}

// TestFramesAreCut checks that a frame has no more than Config.FrameBytes.
func TestFramesAreCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := noChecks()
		cfg.FrameBytes = 1000
		r := setup(t, cfg)
		s := r.open(live("c"))
		r.read(s)
		for range 100 {
			r.bus.publish(r.log.addSized("c", 100))
		}
		for seq := int64(0); seq < 100; {
			f, err := s.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			size := 0
			for _, p := range f.Pieces {
				size += len(p)
			}
			if size > 1000 || f.Events < 5 && seq < 95 {
				t.Fatalf("%d events of %d bytes", f.Events, size)
			}
			for _, l := range decode(t, f) {
				if seq++; l.seq != seq {
					t.Fatalf("%d where %d should be", l.seq, seq)
				}
			}
		}
	})
}

// TestReplayThatFallsBehind checks that the subscriber of a channel that grows faster than it reads
// is told where the log ends, and that its stream ends later, with its position. A replay that
// comes closer, and one whose log can't be read for a while, go on.
func TestReplayThatFallsBehind(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		grows  int // entries for each entry that is read
		away   time.Duration
		states int
		cut    bool
	}{
		"falls behind":                       {grows: 2, states: 2, cut: true},
		"falls behind, also after an outage": {grows: 2, away: 20 * time.Second, states: 2, cut: true},
		"comes closer":                       {grows: 0, states: 1},
		"the log can't be read":              {grows: 0, away: 3 * time.Minute, states: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cfg := noChecks()
				cfg.ReplayFrameBytes, cfg.RecentBytes = 1, 1 // one entry in each turn
				r := setup(t, cfg)
				r.log.addMany("c", 10_000)
				began := time.Now()
				r.log.on(beforeReplay, func(context.Context, string) error {
					if at := time.Since(began) - 10*time.Second; at > 0 && at < tc.away {
						return errors.New("away")
					}
					return nil
				})
				s := r.open(after("c", 0))
				states, last := 0, int64(0)
				for time.Since(began) < 2*time.Minute+tc.away {
					f, err := s.Next(t.Context())
					if err != nil {
						if !tc.cut {
							t.Fatal(err)
						}
						e := failure(t, err, fault.ResourceExhausted, fault.SlowConsumer)
						equal(t, e.Positions, []fault.Position{{ChannelID: "c", Seq: last, Epoch: "e1"}})
						if took := time.Since(began) - tc.away; took < 50*time.Second || took > 70*time.Second {
							t.Errorf("the stream ended after %v", took)
						}
						equal(t, states, tc.states)
						equal(t, r.hub.stats.cuts.Load(), int64(1))
						return
					}
					for _, l := range decode(t, f) {
						if l.kind == "state" {
							states++
							equal(t, l.seq, last)
							continue
						}
						last++
						equal(t, l.seq, last)
					}
					for range tc.grows {
						r.send("c")
					}
					time.Sleep(100 * time.Millisecond)
				}
				if tc.cut {
					t.Error("the stream did not end")
				}
				equal(t, states, tc.states)
			})
		})
	}
}

// TestSecondReplayBeginsAnew checks that a subscriber that was live, and is sent back to replay,
// may take as long as it comes closer.
func TestSecondReplayBeginsAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := noChecks()
		cfg.ReplayFrameBytes, cfg.RecentBytes = 1, 1 // one entry in each turn
		r := setup(t, cfg)
		r.log.addMany("c", 5000)
		s := r.open(after("c", 0))
		for range 2 {
			for began := time.Now(); time.Since(began) < 2*time.Minute; {
				if _, err := s.Next(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
			}
			equal(t, strings.Contains(r.read(s)["c"], fmt.Sprint(r.log.head("c"))), true)
			r.log.addMany("c", 5000) // too many to be fetched for a live subscriber
			r.send("c")
		}
		equal(t, r.hub.stats.demoted.Load() > 0, true)
		equal(t, r.hub.stats.cuts.Load(), int64(0))
	})
}

// TestSlowReplay checks that a slow reader gets a replay of 100,000 entries at its own pace: it is
// not cut, although the limits of the queue are far lower.
func TestSlowReplay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, Config{QueueEvents: 64, QueueBytes: 16 << 10})
		r.log.addMany("c", 100_000)
		s := r.open(after("c", 0), live("d"))
		pos, last := int64(0), int64(0)
		for n := 0; pos < 100_000 || pos < r.log.head("c"); n++ {
			f, err := s.Next(t.Context())
			if err != nil {
				t.Fatalf("after %d: %v", pos, err)
			}
			size := 0
			for _, p := range f.Pieces {
				size += len(p)
			}
			if size > 64<<10+16<<10 {
				t.Fatalf("a frame of %d bytes", size)
			}
			for _, l := range decode(t, f) {
				if l.kind != "event" {
					continue
				}
				at := &pos
				if l.channel == "d" {
					at = &last
				}
				if l.seq != *at+1 {
					t.Fatalf("%s: %d after %d", l.channel, l.seq, *at)
				}
				*at = l.seq
			}
			time.Sleep(300 * time.Millisecond)
			if n < 300 {
				r.send("c")
				r.send("d")
			}
			s.mu.Lock()
			queued := 0
			for _, q := range s.queue {
				queued += len(q.data)
			}
			s.mu.Unlock()
			if queued > 200<<10 {
				t.Fatalf("%d bytes wait for the reader", queued)
			}
		}
		equal(t, pos, r.log.head("c"))
		equal(t, r.hub.stats.cuts.Load(), int64(0))
	})
}

// TestReplaysAreScheduledFairly checks that a stream's replays of many channels advance together:
// none waits for the end of another.
func TestReplaysAreScheduledFairly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := noChecks()
		cfg.ReplayFrameBytes = 256
		r := setup(t, cfg)
		var at []Position
		for i := range 20 {
			id := fmt.Sprintf("c%d", i)
			for range 100 {
				r.log.addSized(id, 50)
			}
			at = append(at, after(id, 0))
		}
		s := r.open(at...)
		pos := map[string]int64{}
		most := int64(0)
		for done := 0; done < 20; {
			f, err := s.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range decode(t, f) {
				if l.kind != "event" {
					continue
				}
				if l.seq != pos[l.channel]+1 {
					t.Fatalf("%s: %d after %d", l.channel, l.seq, pos[l.channel])
				}
				pos[l.channel] = l.seq
				if l.seq == 100 {
					done++
				}
			}
			synctest.Wait()
			s.mu.Lock()
			queued := len(s.queue)
			s.mu.Unlock()
			if queued > 2*4 { // four reads of two pieces each
				t.Fatalf("%d pieces wait for the reader", queued)
			}
			least, lead := int64(100), int64(0)
			for i := range 20 {
				p := pos[fmt.Sprintf("c%d", i)]
				least, lead = min(least, p), max(lead, p)
			}
			most = max(most, lead-least)
		}
		if most == 0 || most > 20 {
			t.Fatalf("the first was %d entries ahead of the last", most)
		}
	})
}

// TestQueueMemoryIsReleasedAfterBurst checks that a stream does not keep the memory of a burst.
func TestQueueMemoryIsReleasedAfterBurst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		s := r.open(live("c"))
		r.read(s)
		for range 4000 {
			r.send("c")
		}
		r.read(s)
		for range patience {
			r.send("c")
			r.read(s)
		}
		if cap(s.queue) > small || cap(s.pieces) > small {
			t.Fatalf("queue %d, pieces %d", cap(s.queue), cap(s.pieces))
		}
	})
}
