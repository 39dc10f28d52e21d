package presence

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// listAll lists all users with pages of a size, and returns in how many pages each is.
func listAll(t *testing.T, v *view, size int) map[string]int {
	t.Helper()
	seen := map[string]int{}
	for after := (ListPosition{}); ; {
		users, next, err := v.list(t.Context(), after, size)
		if err != nil || len(users) > size {
			t.Fatalf("a page of %d users: %v", len(users), err)
		}
		for _, u := range users {
			seen[u.UserID]++
		}
		if after = next; next == (ListPosition{}) {
			return seen
		}
	}
}

// TestListSurvivesLoss checks that a list is complete although the store loses some responses or
// fails some reads.
func TestListSurvivesLoss(t *testing.T) {
	t.Parallel()
	for name, nth := range map[string]func(m *modelStore, lost func(method string) bool){
		"fails": func(m *modelStore, lost func(method string) bool) { m.fails = lost },
		"lost": func(m *modelStore, lost func(method string) bool) {
			m.delay = func(method string) time.Duration {
				if lost(method) {
					return time.Hour
				}
				return 0
			}
		},
	} {
		for _, size := range []int{1000, 40, 7} {
			t.Run(fmt.Sprint(name, size), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					n := settledNet(t, 1, nil)
					x := n.nodes[0]
					const online = 300
					for i := range online {
						x.put(fmt.Sprint("user", i), onWeb)
					}
					time.Sleep(time.Second)
					synctest.Wait()
					calls := map[string]int{}
					n.store.set(func(m *modelStore) {
						nth(m, func(method string) bool {
							calls[method]++
							// More than are read at a time, so that the second attempt succeeds.
							return calls[method]%(2*maxListShards) == 1 && (method == "page" || method == "get")
						})
					})
					seen := listAll(t, x.v, size)
					for i := range online {
						if n := seen[fmt.Sprint("user", i)]; n != 1 {
							t.Errorf("user %d is in %d pages", i, n)
						}
					}
					// A store that is away is reported in time.
					n.store.set(func(m *modelStore) {
						m.fails, m.delay = nil, func(string) time.Duration { return time.Hour }
					})
					began := time.Now()
					_, _, err := x.v.list(t.Context(), ListPosition{}, size)
					if took := time.Since(began); err == nil || took > x.cfg.MaxStaleness {
						t.Errorf("without the store: %v after %v", err, took)
					}
				})
			})
		}
	}
}

// TestListReadsShardsTogether checks that a list takes few round trips if few users are online, and
// reads hardly more shards than it needs if many are.
func TestListReadsShardsTogether(t *testing.T) {
	t.Parallel()
	for users, most := range map[int]struct {
		trips time.Duration
		reads int
	}{
		0:    {1 + Shards/maxListShards, Shards},
		20:   {2 + Shards/maxListShards, Shards},
		2560: {8, 24}, // ten a shard
	} {
		t.Run(fmt.Sprint(users), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := settledNet(t, 1, nil)
				x := n.nodes[0]
				for i := range users {
					x.put(fmt.Sprint("user", i), onWeb)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				const trip = 10 * time.Millisecond
				n.store.set(func(m *modelStore) {
					m.delay = func(string) time.Duration { return trip }
				})
				reads, began := n.callsOf("page"), time.Now()
				states, _, err := x.v.list(t.Context(), ListPosition{}, 100)
				took := time.Since(began) / trip
				if reads = n.callsOf("page") - reads; err != nil || len(states) != min(users, 100) || took > most.trips || reads > most.reads {
					t.Errorf("%d users, %v, after %d trips with %d reads", len(states), err, took, reads)
				}
			})
		})
	}
}
