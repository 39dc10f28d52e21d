package fanout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/message"
)

// want returns the expected lines of a channel: head, if it is not empty, and the events of epoch
// e1 with the seqs `from` to `to`.
func want(head string, from, to int64) string {
	parts := []string{}
	if head != "" {
		parts = append(parts, head)
	}
	for seq := from; seq <= to; seq++ {
		parts = append(parts, fmt.Sprintf("e1/%d", seq))
	}
	return strings.Join(parts, " ")
}

// join joins the lines of a channel from two reads.
func join(a, b string) string { return strings.TrimSpace(a + " " + b) }

func equal(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}

func TestPositions(t *testing.T) {
	t.Parallel()
	old := int64(2)
	for name, tc := range map[string]struct {
		have   int
		oldest int64
		at     Position
		want   string
	}{
		"live only": {3, 0, live("c"), want("state(e1/3,head=3,recovered=false)", 4, 5)},
		"live only, with an epoch": {
			3, 0,
			Position{ChannelID: "c", Epoch: "e0"},
			want("state(e1/3,head=3,recovered=false)", 4, 5),
		},
		"live only of an empty log":  {0, 0, live("c"), want("state(e1/0,head=0,recovered=false)", 1, 2)},
		"everything":                 {3, 0, after("c", 0), want("state(e1/0,head=3,recovered=true)", 1, 5)},
		"everything of an empty log": {0, 0, after("c", 0), want("state(e1/0,head=0,recovered=true)", 1, 2)},
		"after one":                  {3, 0, after("c", 1), want("state(e1/1,head=3,recovered=true)", 2, 5)},
		"at the head":                {3, 0, after("c", 3), want("state(e1/3,head=3,recovered=true)", 4, 5)},
		"same epoch":                 {3, 0, Position{ChannelID: "c", After: &old, Epoch: "e1"}, want("state(e1/2,head=3,recovered=true)", 3, 5)},
		"at what is left":            {9, 3, after("c", 2), want("state(e1/2,head=9,recovered=true)", 3, 11)},
		"other epoch": {
			3, 0,
			Position{ChannelID: "c", After: &old, Epoch: "e0"},
			want("state(e1/3,head=3,recovered=false) gap(e1/3,from=2,reason=1)", 4, 5),
		},
		"history gone": {
			9, 5, after("c", 2),
			want("state(e1/4,head=9,recovered=false) gap(e1/4,from=2,reason=2)", 5, 11),
		},
		"ahead of the log": {
			3, 0, after("c", 7),
			want("state(e1/3,head=3,recovered=false) gap(e1/3,from=7,reason=3)", 4, 5),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := setup(t, noChecks())
				r.log.addMany("c", tc.have)
				r.log.channel("c").oldest = tc.oldest
				s := r.open(tc.at)
				first := r.read(s)["c"]
				r.send("c")
				r.send("c")
				equal(t, join(first, r.read(s)["c"]), tc.want)
			})
		})
	}
}

// TestHandover checks that no event is missed or repeated that is published at any point between
// the bus subscription and going live, with no later check against the log to repair what the
// handover itself would lose.
func TestHandover(t *testing.T) {
	t.Parallel()
	for _, at := range []Position{live("c"), after("c", 0), after("c", 2)} {
		for point := range 4 {
			for _, lost := range []bool{false, true} {
				name := fmt.Sprintf("live=%t point=%d lost=%t", at.After == nil, point, lost)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { handover(t, at, point, lost) })
				})
			}
		}
	}
}

func handover(t *testing.T, at Position, point int, lost bool) {
	r := setup(t, noChecks())
	r.log.addMany("c", 4)
	var calls [4]int
	hook := func(p int) func(context.Context, string) error {
		return func(context.Context, string) error {
			if calls[p]++; p == point && calls[p] <= 3 {
				r.send("c")
				if e := r.log.add("c"); !lost {
					r.bus.publish(e)
				}
				r.send("c")
			}
			return nil
		}
	}
	for p := range calls {
		r.log.on(p, hook(p))
	}
	s := r.open(at)
	got := r.read(s)["c"]
	r.send("c")
	got += " " + r.read(s)["c"]
	end := r.log.head("c")
	switch {
	case at.After != nil:
		head := int64(4)
		if point == 0 {
			head = 7
		}
		equal(t, got, want(fmt.Sprintf("state(e1/%d,head=%d,recovered=true)", *at.After, head), *at.After+1, end))
	case point == 0:
		equal(t, got, want("state(e1/7,head=7,recovered=false)", 8, end))
	default:
		equal(t, got, want("state(e1/4,head=4,recovered=false)", 5, end))
	}
}

// TestHandoverBesideLive checks that a replaying subscriber misses nothing while events are pushed
// to a live one of the same channel.
func TestHandoverBesideLive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		r.log.addMany("c", 5)
		first := r.open(live("c"))
		got := r.read(first)["c"]
		var sent atomic.Int64
		hook := func(context.Context, string) error {
			if sent.Add(1) <= 5 {
				r.send("c")
			}
			return nil
		}
		r.log.on(afterState, hook)
		r.log.on(afterReplay, hook)
		second := r.open(after("c", 0))
		equal(t, r.read(second)["c"], want("state(e1/0,head=5,recovered=true)", 1, r.log.head("c")))
		equal(t, got+" "+r.read(first)["c"], want("state(e1/5,head=5,recovered=false)", 6, r.log.head("c")))
		r.send("c")
		equal(t, r.read(first)["c"], want("", r.log.head("c"), r.log.head("c")))
		equal(t, r.read(second)["c"], want("", r.log.head("c"), r.log.head("c")))
	})
}

// TestStateAheadOfBus checks that a new subscriber gets entries once that the log has and the bus
// delivers later.
func TestStateAheadOfBus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, noChecks())
		r.log.stingy = true
		r.log.addMany("c", 2)
		first := r.open(live("c"))
		equal(t, r.read(first)["c"], want("state(e1/2,head=2,recovered=false)", 3, 2))
		late3, late4 := r.log.add("c"), r.log.add("c")
		second, third, fourth := r.open(after("c", 1)), r.open(live("c")), r.open(after("c", 2))
		equal(t, r.read(second)["c"], want("state(e1/1,head=4,recovered=true)", 2, 4))
		equal(t, r.read(third)["c"], want("state(e1/4,head=4,recovered=false)", 5, 4))
		equal(t, r.read(fourth)["c"], want("state(e1/2,head=4,recovered=true)", 3, 4))
		r.bus.publish(late3)
		r.bus.publish(late4)
		r.send("c")
		equal(t, r.read(first)["c"], want("", 3, 5))
		equal(t, r.read(second)["c"], want("", 5, 5))
		equal(t, r.read(third)["c"], want("", 5, 5))
	})
}

// TestHandoverUnderLoad checks that subscribers that resume over and over miss nothing while events
// are published as fast as possible, in real time.
func TestHandoverUnderLoad(t *testing.T) {
	t.Parallel()
	r := setup(t, Config{QueueEvents: 100_000, QueueBytes: 100 << 20, MaxStreamsPerSubject: 1000})
	r.log.addMany("c", 100)
	stop := make(chan struct{})
	var publisher, readers sync.WaitGroup
	publisher.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				r.send("c")
			}
		}
	})
	for range 4 {
		readers.Go(func() {
			for range 40 {
				resumeOnce(t, r)
			}
		})
	}
	readers.Wait()
	close(stop)
	publisher.Wait()
}

// resumeOnce subscribes 20 entries before the log's end and checks the events until well after the
// subscription has gone live.
func resumeOnce(t *testing.T, r *rig) {
	pos := r.log.head("c") - 20
	s, err := r.hub.Open("ann", time.Time{})
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Close()
	if err := s.Add([]Position{after("c", pos)}); err != nil {
		t.Error(err)
	}
	for end := pos + 400; pos < end; {
		f, err := s.Next(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		for _, l := range decode(t, f) {
			if l.kind == "event" {
				pos++
			}
			if l.seq != pos {
				t.Errorf("%v where %d should be", l, pos)
				return
			}
		}
	}
}

func TestOneChannelFails(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(ctx context.Context) error{
		"fails": func(context.Context) error { return errors.New("away") },
		"hangs": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		for _, where := range []string{"state", "replay", "bus"} {
			t.Run(name+" "+where, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r := setup(t, noChecks())
					var well atomic.Bool
					hook := func(ctx context.Context, id string) error {
						if id == "bad" && !well.Load() {
							return broken(ctx)
						}
						return nil
					}
					switch where {
					case "state":
						r.log.on(beforeState, hook)
					case "replay":
						r.log.on(beforeReplay, hook)
					case "bus":
						r.bus.fail = func(id string) error {
							if id == "bad" && !well.Load() {
								return errors.New("away")
							}
							return nil
						}
					}
					r.log.addMany("bad", 3)
					r.log.addMany("good", 3)
					s := r.open(after("bad", 1), after("good", 1))
					got := r.read(s)
					equal(t, got["good"], want("state(e1/1,head=3,recovered=true)", 2, 3))
					r.send("bad")
					r.send("good")
					time.Sleep(20 * time.Second)
					equal(t, r.read(s)["good"], want("", 4, 4))
					well.Store(true)
					time.Sleep(20 * time.Second)
					bad := strings.TrimSpace(got["bad"] + " " + r.read(s)["bad"])
					if !strings.HasSuffix(bad, want("", 2, 4)) || !strings.HasPrefix(bad, "state(e1/1,") {
						t.Fatalf("after recovery: %s", bad)
					}
				})
			})
		}
	}
}

// TestHandoverShowsNoOlderCopies checks that a stream which got a message in a later state, from a
// replay or to fill a hole, does not get the older states that are still on the bus.
func TestHandoverShowsNoOlderCopies(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		at    Position
		start func(r *rig)
		want  string
	}{
		"replay": {after("c", 0), func(r *rig) { r.log.addMany("c", 3) }, "1 x, 2 as-of-5, 3 x, 4 as-of-5, 5 as-of-5, 6 x"},
		"hole":   {live("c"), func(*rig) {}, "1 x, 2 as-of-5, 3 x, 4 as-of-5, 5 as-of-5, 6 x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := setup(t, noChecks())
				r.log.stingy = true
				var late []message.Event
				reads := 0
				r.log.on(beforeReplay, func(context.Context, string) error {
					switch reads++; reads {
					case 1:
						late = []message.Event{r.log.addEdit("c", 2, "as-of-4"), r.log.addEdit("c", 2, "as-of-5")}
					case 2:
						for _, e := range late {
							r.bus.publish(e)
						}
						return errors.New("away")
					}
					return nil
				})
				tc.start(r)
				s := r.open(tc.at)
				if tc.at.After == nil {
					r.read(s)
					r.send("c")
					r.log.add("c") // the bus loses its event
					r.send("c")
				}
				got := r.contents(s, 3)
				for _, e := range late {
					r.bus.publish(e)
				}
				got = append(got, r.contents(s, 5)...)
				r.send("c")
				got = append(got, r.contents(s, 6)...)
				equal(t, strings.Join(got, ", "), tc.want)
			})
		})
	}
}

// contents returns the seqs and contents of the events that a stream gets up to the entry last.
func (r *rig) contents(s *Stream, last int64) []string {
	r.tb.Helper()
	var got []string
	for {
		f, err := s.Next(r.tb.Context())
		if err != nil {
			r.tb.Fatal(err)
		}
		for _, l := range decode(r.tb, f) {
			if l.kind != "event" {
				continue
			}
			if got = append(got, fmt.Sprint(l.seq, " ", l.rest)); l.seq >= last {
				return got
			}
		}
	}
}
