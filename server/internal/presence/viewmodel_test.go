package presence

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// step is a step of a random script.
type step struct {
	kind viewStepKind
	node int
	// user and stream are indexes; state is a platform or 0.
	user, stream int
	state        State
	wait         time.Duration
}

type viewStepKind int

const (
	stepPut viewStepKind = iota
	stepPut2
	stepPut3
	stepWait
	stepWatch
	stepUnwatch
	stepClose
	stepLoseBus
	stepHealBus
	stepReconnect
	stepSlowBus
	stepStoreDown
	stepStoreLost
	stepStoreSlow
	stepHealStore
	stepTrim
	stepFlush
	stepSnapshot
	stepFailover
	stepKinds
)

const (
	viewUsers   = 12
	viewStreams = 4
)

// TestViewModel runs random changes, watches and faults on two nodes. At quiescence, every watcher,
// get and list agree with the store.
func TestViewModel(t *testing.T) {
	t.Parallel()
	for _, mode := range []CacheMode{CacheLRU, CacheFull} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(r *rapid.T) {
				script := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) step {
					return step{
						kind: viewStepKind(rapid.IntRange(0, int(stepKinds)-1).Draw(r, "kind")), node: rapid.IntRange(0, 1).Draw(r, "node"),
						user:   rapid.IntRange(0, viewUsers-1).Draw(r, "user"),
						stream: rapid.IntRange(0, viewStreams-1).Draw(r, "stream"),
						state:  rapid.SampledFrom([]State{0, 0, State(0).With(Web, false), State(0).With(IOS, true)}).Draw(r, "state"),
						wait:   time.Duration(rapid.SampledFrom([]int{1, 5, 30, 200, 1500, 4000}).Draw(r, "wait")) * time.Millisecond,
					}
				}), 1, 60).Draw(r, "script")
				seed := rapid.Uint64().Draw(r, "seed")
				var problems []string
				synctest.Test(t, func(t *testing.T) {
					m := newViewRun(t, mode, seed)
					for _, s := range script {
						m.run(s)
					}
					problems = m.settle()
				})
				for _, p := range problems {
					r.Error(p)
				}
			})
		})
	}
}

// viewRun is one run of a script.
type viewRun struct {
	t        *testing.T
	net      *network
	random   *rand.Rand
	watchers [viewStreams]*watcher
	failover [Shards]func()
	// lossy is set if the script made the store lose data.
	lossy bool
}

func newViewRun(t *testing.T, mode CacheMode, seed uint64) *viewRun {
	t.Helper()
	m := &viewRun{t: t, random: rand.New(rand.NewPCG(seed, 1))}
	m.net = newNetwork(t, 2, func(c *Config) { c.Cache = mode })
	m.net.store.set(func(s *modelStore) { s.unsettled = true })
	for i := range m.watchers {
		m.watchers[i] = m.net.nodes[i%2].watcher()
	}
	time.Sleep(4 * time.Second) // until the first epochs are settled
	return m
}

// viewUser returns a user's id. Several users share a shard.
func viewUser(i int) string { return sameShard[i] }

// sameShard has four users of each of the shards 0, 1 and 2.
var sameShard = func() (users [viewUsers]string) {
	const each = viewUsers / 3
	found := map[int]int{}
	for i := 0; found[0]+found[1]+found[2] < viewUsers; i++ {
		userID := fmt.Sprintf("user%d", i)
		if shard := ShardOf(userID); shard < 3 && found[shard] < each {
			users[each*shard+found[shard]] = userID
			found[shard]++
		}
	}
	return users
}()

func (m *viewRun) run(s step) {
	x, userID, store := m.net.nodes[s.node], viewUser(s.user), m.net.store
	w := m.watchers[s.stream]
	switch s.kind {
	case stepPut, stepPut2, stepPut3:
		x.put(userID, s.state)
	case stepWait:
		time.Sleep(s.wait)
	case stepWatch:
		if err := w.watch([]string{userID, viewUser((s.user + 1) % viewUsers)}, []string{userID}); err != nil {
			m.t.Error(err)
		}
	case stepUnwatch:
		if err := w.watch(nil, []string{userID}); err != nil {
			m.t.Error(err)
		}
	case stepClose:
		w.x.v.forget(w.s)
		m.watchers[s.stream] = w.x.watcher()
	case stepTrim:
		store.set(func(s *modelStore) {
			for i := range s.shards {
				s.shards[i].log = nil
			}
		})
	case stepFlush:
		m.lossy = true
		store.flush()
	case stepSnapshot:
		m.failover[s.user/4] = store.snapshot(s.user % 3)
	case stepFailover:
		if back := m.failover[s.user/4]; back != nil {
			m.lossy = true
			back()
		}
	case stepReconnect:
		x.v.reconnected()
	default:
		m.fault(s.kind)
	}
	for _, w := range m.watchers {
		w.read()
	}
}

// fault changes the faults of the bus and of the store.
func (m *viewRun) fault(kind viewStepKind) {
	random := rand.New(rand.NewPCG(m.random.Uint64(), 2))
	store := m.net.store
	switch kind {
	case stepLoseBus:
		m.net.set(func(n *network) { n.lose = func(from, to int) bool { return from != to && random.IntN(3) > 0 } })
	case stepSlowBus:
		m.net.set(func(n *network) {
			n.delay = func() time.Duration { return time.Duration(random.IntN(3000)) * time.Millisecond }
		})
	case stepHealBus:
		m.net.set(func(n *network) { n.lose, n.delay = nil, nil })
	case stepStoreDown:
		store.set(func(s *modelStore) { s.down = true })
	case stepStoreLost:
		store.set(func(s *modelStore) { s.lost = true })
	case stepStoreSlow:
		store.set(func(s *modelStore) {
			s.delay = func(string) time.Duration { return time.Duration(random.IntN(500)) * time.Millisecond }
		})
	case stepHealStore:
		store.set(func(s *modelStore) { s.down, s.lost, s.delay = false, false, nil })
	}
}

// settle ends the faults, waits for quiescence, and returns what disagrees with the store.
func (m *viewRun) settle() (problems []string) {
	m.fault(stepHealBus)
	m.fault(stepHealStore)
	for !m.net.nodes[0].clean() || !m.net.nodes[1].clean() {
		time.Sleep(10 * time.Millisecond)
	}
	if m.lossy {
		time.Sleep(6 * time.Second) // until a new epoch is settled
	}
	time.Sleep(2 * time.Second)
	var users []string
	online := 0
	for i := range viewUsers {
		users = append(users, viewUser(i))
		if m.net.store.state(viewUser(i)) != 0 {
			online++
		}
	}
	for _, x := range m.net.nodes {
		for _, userID := range users {
			if stored, own := m.net.store.state(userID), x.parts[userID]; own != 0 && stored|own != stored && stored.platforms()&own.platforms() != own.platforms() {
				problems = append(problems, fmt.Sprintf("the store lacks %v of %s: the test is wrong", own, userID))
			}
		}
		states, err := x.v.get(m.t.Context(), users)
		if err != nil {
			problems = append(problems, fmt.Sprintf("get: %v", err))
			continue
		}
		for _, u := range states {
			if want := m.net.store.state(u.UserID); u.State != want {
				problems = append(problems, fmt.Sprintf("node %d: get: %s is %v, not %v", x.index, u.UserID, u.State, want))
			}
		}
		problems = append(problems, m.listed(x, online)...)
	}
	for _, w := range m.watchers {
		problems = append(problems, w.differs()...)
		w.x.v.forget(w.s)
	}
	for _, x := range m.net.nodes {
		problems = append(problems, leftovers(x.v)...)
	}
	return problems
}

// listed pages through the online users.
func (m *viewRun) listed(x *viewNode, online int) (problems []string) {
	seen := map[string]bool{}
	for after := (ListPosition{}); ; {
		page, next, err := x.v.list(m.t.Context(), after, 2)
		if err != nil {
			return []string{fmt.Sprintf("list: %v", err)}
		}
		for _, u := range page {
			if seen[u.UserID] || u.State != m.net.store.state(u.UserID) {
				problems = append(problems, fmt.Sprintf("list: %s is repeated or wrong", u.UserID))
			}
			seen[u.UserID] = true
		}
		if after = next; next == (ListPosition{}) {
			break
		}
	}
	if len(seen) != online {
		problems = append(problems, fmt.Sprintf("list has %d users, not %d", len(seen), online))
	}
	return problems
}

// leftovers returns what a view without streams still has of them.
func leftovers(v *view) (problems []string) {
	for i := range v.shards {
		if n := len(v.shards[i].watched); n > 0 {
			problems = append(problems, fmt.Sprintf("%d watched users are left in shard %d", n, i))
		}
	}
	if len(v.streams) > 0 || len(v.channels) > 0 || v.members > 0 || v.stats.watchers.Load() != 0 {
		problems = append(problems, fmt.Sprintf("left: %d streams, %d channels, %d members, %d watchers",
			len(v.streams), len(v.channels), v.members, v.stats.watchers.Load()))
	}
	return problems
}
