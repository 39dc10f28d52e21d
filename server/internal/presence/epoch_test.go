package presence

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestUnsettledEpochHidesNothing checks that a change in an epoch in which another node has not
// restored its part does not show the user without that part.
func TestUnsettledEpochHidesNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, x *fleetNode, d *device) State{
		"departure": func(t *testing.T, x *fleetNode, d *device) State {
			t.Helper()
			if err := x.hub.Disconnect(t.Context(), d.s.ID(), "ada"); err != nil {
				t.Fatal(err)
			}
			return onIOS
		},
		"background": func(t *testing.T, x *fleetNode, d *device) State {
			t.Helper()
			if err := x.hub.SetBackground(t.Context(), d.s.ID(), "ada", true); err != nil {
				t.Fatal(err)
			}
			return onIOS.With(Web, true)
		},
		"arrival": func(t *testing.T, x *fleetNode, _ *device) State {
			t.Helper()
			x.connect("ada", Windows, nil)
			return (onIOS | onWeb).With(Windows, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 3, nil)
				d := f.nodes[0].connect("ada", Web, nil)
				f.nodes[1].connect("ada", IOS, nil)
				w := f.nodes[2].watch("ada")
				f.wait(w.is("ada", onWeb|onIOS))
				before := len(w.read("ada"))
				f.nodes[1].store.set(func(m *modelStore) { m.away = true })
				f.store.flush()
				f.wait(f.stored("ada", onWeb)) // node 0 has restored its part
				want := change(t, f.nodes[0], d)
				w.follow(time.Second)
				f.nodes[1].store.set(func(m *modelStore) { m.away = false })
				if took := f.wait(w.is("ada", want)); took > 2*time.Second {
					t.Errorf("shown after %v", took)
				}
				for _, s := range w.read("ada")[before:] {
					if !s.Has(IOS) {
						t.Errorf("the watcher saw %v", w.read("ada"))
					}
				}
			})
		})
	}
}

// TestDepartureDuringFlushIsLogged checks that the departure of a user whom the store has lost is
// logged, also if there was no response to the first step, which did not take effect.
func TestDepartureDuringFlushIsLogged(t *testing.T) {
	t.Parallel()
	for _, late := range []time.Duration{0, 3 * time.Second} {
		t.Run(late.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 1, func(c *Config) { c.OfflineAfter = -1 })
				x := f.nodes[0]
				d := x.connect("ada", Web, nil)
				f.wait(f.stored("ada", onWeb))
				first := true
				x.store.set(func(m *modelStore) {
					m.away = true
					m.late = func(method string) time.Duration {
						if method != "set" || !first {
							return 0
						}
						first = false
						return late
					}
				})
				d.lose()
				f.store.flush()
				x.store.set(func(m *modelStore) { m.away = false })
				time.Sleep(10 * time.Second)
				f.store.mu.Lock()
				defer f.store.mu.Unlock()
				log := f.store.shards[ShardOf("ada")].log
				if first || len(log) != 1 || log[0].UserID != "ada" || log[0].State != offline {
					t.Errorf("the log has %+v", log)
				}
			})
		})
	}
}

// TestLostDepartureIsNotShownAgain checks that a user whose departure was lost by a failover is
// removed before the shard is settled, so that nobody is shown the user online.
func TestLostDepartureIsNotShownAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, func(c *Config) { c.OfflineAfter = -1 })
		w := f.nodes[1].watch("ada")
		d := f.nodes[0].connect("ada", Web, nil)
		f.wait(w.is("ada", onWeb))
		failover := f.store.snapshot(ShardOf("ada"))
		d.lose()
		f.wait(w.is("ada", offline))
		time.Sleep(3 * time.Second)
		f.store.set(func(m *modelStore) {
			m.late = func(method string) time.Duration {
				if method == "set" {
					return time.Second
				}
				return 0
			}
		})
		failover()
		w.follow(10 * time.Second)
		f.wait(f.stored("ada", offline))
		w.saw(t, "ada", offline, onWeb, offline)
	})
}

// TestSecondFlushIsRestored checks that a node that could not record that it has restored an epoch
// does not record it for the next one before its parts are written there.
func TestSecondFlushIsRestored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, nil)
		x := f.nodes[0]
		w := x.watch("ada")
		x.connect("ada", Web, nil)
		f.wait(w.is("ada", onWeb))
		f.store.set(func(m *modelStore) { m.fails = func(method string) bool { return method == "restored" } })
		f.store.flush()
		f.wait(f.stored("ada", onWeb))
		f.store.set(func(m *modelStore) {
			m.fails = nil
			m.late = func(method string) time.Duration {
				if method == "set" {
					return 1500 * time.Millisecond
				}
				return 0
			}
		})
		f.store.flush()
		w.follow(10 * time.Second)
		w.saw(t, "ada", offline, onWeb)
	})
}

// TestRevivedNodeDoesNotHoldUpSettlement checks that a node that continues under a new presence id
// is restored under it, so that an epoch need not wait for settleAfter.
func TestRevivedNodeDoesNotHoldUpSettlement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, nil)
		x := f.nodes[0]
		x.connect("ada", Web, nil)
		f.wait(f.stored("ada", onWeb))
		f.store.set(func(m *modelStore) { m.fails = func(method string) bool { return method == "settle" } })
		f.store.flush()
		time.Sleep(2 * time.Second) // all nodes are restored
		id, _ := x.hub.lease.current()
		x.hub.lease.declaredDead(id)
		time.Sleep(time.Second)
		f.store.set(func(m *modelStore) { m.fails = nil })
		took := f.wait(func() string {
			if !x.hub.view.settled(7) {
				return "not settled"
			}
			return ""
		})
		if took > 2*time.Second {
			t.Errorf("settled after %v", took)
		}
	})
}

// TestRestoreLogsNothing checks that users who stayed online during a flush are written without an
// entry.
func TestRestoreLogsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, nil)
		f.nodes[0].connect("ada", Web, nil)
		f.wait(f.stored("ada", onWeb))
		f.store.flush()
		f.wait(f.stored("ada", onWeb))
		f.store.mu.Lock()
		defer f.store.mu.Unlock()
		if log := f.store.shards[ShardOf("ada")].log; len(log) > 0 {
			t.Errorf("the log has %+v", log)
		}
	})
}

// TestReplacedEntryIsSeen checks that a user whose entry was lost by a failover is written again
// although others have taken its position in the log, on a node that was not notified of them.
func TestReplacedEntryIsSeen(t *testing.T) {
	t.Parallel()
	var others []string
	for i := 0; len(others) < 2; i++ {
		if user := fmt.Sprint("other", i); ShardOf(user) == ShardOf("ada") {
			others = append(others, user)
		}
	}
	for n := 1; n <= len(others); n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 2, nil)
				failover := f.store.snapshot(ShardOf("ada"))
				f.set(func() { f.cut[0] = true })
				f.store.set(func(m *modelStore) { m.fails = func(method string) bool { return method == "heads" } })
				f.nodes[0].connect("ada", Web, nil)
				f.wait(f.stored("ada", onWeb))
				time.Sleep(10 * time.Millisecond) // the entries differ by their time
				failover()
				for _, user := range others[:n] {
					f.nodes[1].connect(user, Web, nil)
					f.wait(f.stored(user, onWeb))
				}
				f.store.set(func(m *modelStore) { m.fails = nil })
				if took := f.wait(f.stored("ada", onWeb)); took > 5*time.Second {
					t.Errorf("it was written after %v", took)
				}
			})
		})
	}
}

// TestLostRemovalIsRepeated checks that a user whose removal was lost by a failover is removed
// again, although the removal had no response, its repeat changed nothing, and no node had read its
// entry.
func TestLostRemovalIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, nil)
		d := f.nodes[0].connect("ada", Web, nil)
		f.wait(f.stored("ada", onWeb))
		failover := f.store.snapshot(ShardOf("ada"))
		steps := func() (n int) {
			f.store.set(func(m *modelStore) { n = m.calls["set"] })
			return n
		}
		f.store.set(func(m *modelStore) {
			m.fails = func(method string) bool { return method == "heads" || method == "since" }
			m.lost = true
		})
		d.lose()
		f.wait(f.stored("ada", offline))
		before := steps()
		f.store.set(func(m *modelStore) { m.lost = false })
		time.Sleep(10 * time.Second)
		if steps() == before {
			t.Fatal("the removal was not repeated")
		}
		failover()
		f.store.set(func(m *modelStore) { m.fails = nil })
		f.wait(f.stored("ada", offline))
	})
}

// TestLostSweepIsRepeated checks that the users of a dead node are removed although a failover has
// lost what the sweep did, and no node had read that.
func TestLostSweepIsRepeated(t *testing.T) {
	t.Parallel()
	shard := ShardOf("ada")
	fenced := func(f *fleet, node string) func() string {
		return func() string {
			f.store.mu.Lock()
			defer f.store.mu.Unlock()
			if !f.store.shards[shard].fenced[node] {
				return "the shard is not fenced"
			}
			return ""
		}
	}
	t.Run("the fence, before the last step of the dead node", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 2, nil)
			id, _ := f.nodes[0].hub.lease.current()
			failover := f.store.snapshot(shard)
			f.kill(f.nodes[0])
			f.wait(fenced(f, id))
			failover()
			call := SetCall{
				Shard: shard, Node: id, Epoch: f.nodes[1].hub.epoch(shard), NotAfter: f.store.now(),
				Users: []Part{{UserID: "ada", State: onWeb, Cause: Connected}},
			}
			if r := f.store.Set(t.Context(), []SetCall{call})[0]; r.Outcome != Done {
				t.Fatalf("the last step: %+v", r)
			}
			f.wait(f.stored("ada", offline))
		})
	})
	t.Run("the removal, which had no response", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 2, nil)
			id, _ := f.nodes[0].hub.lease.current()
			f.nodes[0].connect("ada", Web, nil)
			f.wait(f.stored("ada", onWeb))
			failover := f.store.snapshot(shard)
			f.kill(f.nodes[0])
			f.store.set(func(m *modelStore) {
				m.fails = func(method string) bool { return method == "heads" || method == "since" }
				m.delay = func(method string) time.Duration {
					if method == "set" {
						return time.Minute
					}
					return 0
				}
			})
			f.wait(fenced(f, id))
			f.wait(func() string {
				if !f.nodes[1].hub.sweeper.done(id, shard) {
					return "the sweep is not repeated"
				}
				return ""
			})
			failover()
			if s := f.store.state("ada"); s != onWeb {
				t.Fatalf("ada is %v after the failover", s)
			}
			f.store.set(func(m *modelStore) { m.fails, m.delay = nil, nil })
			f.wait(f.stored("ada", offline))
		})
	})
}

// TestNoWriteWithoutLease checks that a node writes nothing to a store that has lost its data
// before that has the node's lease, so that its users are offline after it has died.
func TestNoWriteWithoutLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, nil)
		f.nodes[0].connect("ada", Web, nil)
		w := f.nodes[1].watch("ada")
		f.wait(w.is("ada", onWeb))
		f.store.set(func(m *modelStore) { m.fails = func(method string) bool { return method == "beat" } })
		f.store.flush()
		time.Sleep(3 * time.Second)
		if got := f.store.state("ada"); got != offline {
			t.Errorf("%v was written without a lease", got)
		}
		f.store.set(func(m *modelStore) { m.fails = nil })
		f.wait(f.stored("ada", onWeb))
		f.kill(f.nodes[0])
		f.wait(w.is("ada", offline))
		f.wait(f.stored("ada", offline))
	})
}
