package presence

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/parleyhq/parley/server/internal/lifecycle"
)

// modelStore is a Store in memory: the simplest one that is correct, with faults that tests set.
// Its clock is time.Now moved by shift. It is safe for concurrent use.
type modelStore struct {
	*modelState

	// away makes every step fail without an effect for those who use this store, not for others that
	// share its state. mu guards it.
	away bool
}

// modelState is what the stores of a fleet's nodes share.
type modelState struct {
	mu     sync.Mutex
	shards [Shards]modelShard
	nodes  modelNodes
	// losses counts the times when a shard went back.
	losses [Shards]int
	// shift is how far the store's clock is ahead of the test's.
	shift time.Duration
	// keep is the number of entries that a log keeps.
	keep int
	// calls counts the steps by method.
	calls map[string]int

	// down makes every step fail without an effect, and lost without a response: the step takes
	// effect.
	down, lost bool
	// fails reports whether a step of a method fails without an effect; nil is never.
	fails func(method string) bool
	// delay returns how long the response of a step is held after it took effect; nil is 0.
	delay func(method string) time.Duration
	// late returns how long it takes until a step of Set or Login takes effect; nil is 0. The caller's
	// context may end before.
	late func(method string) time.Duration
	// unsettled makes new epochs begin unsettled; otherwise they are settled at once.
	unsettled bool
	// slotTTL is how long the slots of a user are kept after a login was last entered.
	slotTTL time.Duration
}

type modelShard struct {
	epoch    string
	seq      int64
	opened   time.Time
	settled  time.Time
	log      []Entry
	users    map[string]map[string]modelPart
	restored map[string]bool
	fenced   map[string]bool
	logins   map[string]*modelLogins
}

// modelPart is the part of one node in a user's state.
type modelPart struct {
	state   State
	expires time.Time
}

type modelNodes struct {
	alive, dead map[string]time.Time
	heard       time.Time
}

var errModelDown = errors.New("the model store is down")

var _ Store = (*modelStore)(nil)

func newModelStore() *modelStore {
	m := &modelStore{modelState: &modelState{keep: 1024, calls: map[string]int{}, slotTTL: 7 * 24 * time.Hour}}
	m.nodes = modelNodes{alive: map[string]time.Time{}, dead: map[string]time.Time{}}
	return m
}

// share returns a store with the same state.
func (m *modelStore) share() *modelStore { return &modelStore{modelState: m.modelState} }

// do runs a step with the model's lock held, subject to the faults.
func (m *modelStore) do(ctx context.Context, method string, step func(now time.Time)) error {
	m.mu.Lock()
	m.calls[method]++
	if m.down || m.away || m.fails != nil && m.fails(method) {
		m.mu.Unlock()
		return errModelDown
	}
	if m.late != nil {
		if wait := m.late(method); wait > 0 {
			m.mu.Unlock()
			return m.doLate(ctx, wait, step)
		}
	}
	step(m.now())
	lost, held := m.lost, time.Duration(0)
	if m.delay != nil {
		held = m.delay(method)
	}
	m.mu.Unlock()
	if lost {
		return errModelDown
	}
	if held > 0 {
		return lifecycle.Pause(ctx, held)
	}
	return ctx.Err()
}

// doLate makes a step take effect later. Its results are lost if ctx ends before.
func (m *modelStore) doLate(ctx context.Context, wait time.Duration, step func(now time.Time)) error {
	done := make(chan struct{})
	time.AfterFunc(wait, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		defer close(done)
		step(m.now())
	})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *modelStore) now() time.Time { return time.Now().Add(m.shift).Truncate(time.Millisecond) }

// set changes the faults.
func (m *modelStore) set(change func(m *modelStore)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

// flush loses everything, as FLUSHALL does.
func (m *modelStore) flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shards = [Shards]modelShard{}
	for shard := range Shards {
		m.losses[shard]++
	}
	m.nodes = modelNodes{alive: map[string]time.Time{}, dead: map[string]time.Time{}}
}

// snapshot returns a function that brings a shard back to its present state, as a failover to a
// replica that is behind does. It does nothing if the shard has gone back in the meantime: then the
// replicas have no other state.
func (m *modelStore) snapshot(shard int) (failover func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	saved, losses := m.shards[shard].clone(), m.losses[shard]
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.losses[shard] == losses {
			m.shards[shard] = saved.clone()
			m.losses[shard]++
		}
	}
}

func (s *modelShard) clone() modelShard {
	c := *s
	c.log = slices.Clone(s.log)
	c.users = map[string]map[string]modelPart{}
	for userID, parts := range s.users {
		c.users[userID] = maps.Clone(parts)
	}
	c.logins = map[string]*modelLogins{}
	for userID, user := range s.logins {
		c.logins[userID] = &modelLogins{slots: maps.Clone(user.slots), until: user.until}
	}
	c.restored, c.fenced = maps.Clone(s.restored), maps.Clone(s.fenced)
	return c
}

// state returns the state of a user.
func (m *modelStore) state(userID string) State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shards[ShardOf(userID)].union(userID, m.now())
}

// union returns the union of a user's parts that have not expired.
func (s *modelShard) union(userID string, now time.Time) State {
	var u State
	for _, part := range s.users[userID] {
		if part.expires.After(now) {
			for p, background := range part.state.All {
				u = u.With(p, background)
			}
		}
	}
	return u
}

func (s *modelShard) last() time.Time {
	if len(s.log) == 0 {
		return time.Time{}
	}
	return s.log[len(s.log)-1].At
}

func (s *modelShard) head() Head {
	return Head{Epoch: s.epoch, Seq: s.seq, LastAt: s.last(), Opened: s.opened, SettledAt: s.settled}
}

// open begins a new epoch.
func (m *modelStore) open(s *modelShard, epoch string, now time.Time) {
	s.epoch, s.seq, s.opened, s.settled = epoch, 0, now, time.Time{}
	if !m.unsettled {
		s.settled = now
	}
	s.log, s.restored = nil, nil
}

func (m *modelStore) append(s *modelShard, e Entry, now time.Time) int64 {
	s.seq++
	e.Seq, e.At = s.seq, now
	s.log = append(s.log, e)
	if extra := len(s.log) - m.keep; extra > 0 {
		s.log = slices.Delete(s.log, 0, extra)
	}
	return s.seq
}

// Set implements Store.
func (m *modelStore) Set(ctx context.Context, calls []SetCall) []SetResult {
	results := make([]SetResult, len(calls))
	err := m.do(ctx, "set", func(now time.Time) {
		for i := range calls {
			results[i] = m.setOne(&calls[i], now)
		}
	})
	if err != nil {
		// A late step still writes to results.
		failed := make([]SetResult, len(calls))
		for i := range failed {
			failed[i].Err = err
		}
		return failed
	}
	return results
}

func (m *modelStore) setOne(c *SetCall, now time.Time) SetResult {
	s := &m.shards[c.Shard]
	switch {
	case now.After(c.NotAfter):
		return SetResult{Outcome: Late, Now: now}
	case !c.Sweep && s.fenced[c.Node]:
		return SetResult{Outcome: Fenced, Now: now}
	case s.epoch == "" || c.Epoch != s.epoch:
		return SetResult{Outcome: OtherEpoch, Now: now}
	}
	r := SetResult{Outcome: Done, Now: now}
	for _, part := range c.Users {
		before := s.union(part.UserID, time.Time{})
		parts := s.users[part.UserID]
		maps.DeleteFunc(parts, func(node string, p modelPart) bool { return node == c.Node || !p.expires.After(now) })
		if part.State != 0 {
			if parts == nil {
				parts = map[string]modelPart{}
			}
			parts[c.Node] = modelPart{part.State, now.Add(30 * time.Minute)}
		}
		if s.users == nil {
			s.users = map[string]map[string]modelPart{}
		}
		s.users[part.UserID] = parts
		if len(parts) == 0 {
			delete(s.users, part.UserID)
		}
		after := s.union(part.UserID, now)
		change := SetChange{State: after}
		if after != before && (part.Mode != Restore || !s.settled.IsZero()) || part.Mode == Force && after == 0 {
			change.Seq = m.append(s, Entry{UserID: part.UserID, State: after, Cause: part.Cause}, now)
		}
		r.Changes = append(r.Changes, change)
	}
	r.Seq, r.LastAt = s.seq, s.last()
	return r
}

// Get implements Store.
func (m *modelStore) Get(ctx context.Context, calls []GetCall) []GetResult {
	results := make([]GetResult, len(calls))
	err := m.do(ctx, "get", func(now time.Time) {
		for i, c := range calls {
			s := &m.shards[c.Shard]
			results[i] = GetResult{Head: s.head(), Now: now}
			for _, userID := range c.Users {
				results[i].States = append(results[i].States, s.union(userID, now))
			}
		}
	})
	if err != nil {
		for i := range results {
			results[i] = GetResult{Err: err}
		}
	}
	return results
}

// Heads implements Store.
func (m *modelStore) Heads(ctx context.Context, shards []int) []HeadResult {
	results := make([]HeadResult, len(shards))
	err := m.do(ctx, "heads", func(now time.Time) {
		for i, shard := range shards {
			results[i] = HeadResult{Head: m.shards[shard].head(), Now: now}
		}
	})
	if err != nil {
		for i := range results {
			results[i] = HeadResult{Err: err}
		}
	}
	return results
}

// Since implements Store.
func (m *modelStore) Since(ctx context.Context, calls []SinceCall) []SinceResult {
	results := make([]SinceResult, len(calls))
	err := m.do(ctx, "since", func(now time.Time) {
		for i, c := range calls {
			s := &m.shards[c.Shard]
			r := SinceResult{Head: s.head(), Now: now}
			first := s.seq - int64(len(s.log)) + 1 // the oldest position that the log has
			switch {
			case c.Epoch != s.epoch || c.Seq+1 < first || c.Seq > s.seq:
				r.Reset = true
			case !c.At.IsZero() && c.Seq >= first && !s.log[c.Seq-first].At.Equal(c.At):
				r.Other = true
			default:
				after := s.log[c.Seq+1-first:]
				r.Entries = slices.Clone(after[:min(len(after), c.Limit)])
			}
			results[i] = r
		}
	})
	if err != nil {
		for i := range results {
			results[i] = SinceResult{Err: err}
		}
	}
	return results
}

// Page implements Store.
func (m *modelStore) Page(ctx context.Context, shard int, after string, limit int) (PageResult, error) {
	var r PageResult
	err := m.do(ctx, "page", func(now time.Time) {
		s := &m.shards[shard]
		r = PageResult{Head: s.head(), Now: now}
		for _, userID := range slices.Sorted(maps.Keys(s.users)) {
			if userID > after && len(r.Users) < limit {
				r.Users = append(r.Users, userID)
			}
		}
	})
	return r, err
}

// Beat implements Store.
func (m *modelStore) Beat(ctx context.Context, beat Beat) (BeatResult, error) {
	var r BeatResult
	err := m.do(ctx, "beat", func(now time.Time) {
		n := &m.nodes
		if !n.heard.IsZero() && now.Sub(n.heard) > beat.TTL*5/8 {
			for id := range n.alive {
				n.alive[id] = now.Add(beat.TTL)
			}
		}
		n.heard = now
		for id, until := range n.alive {
			if until.After(now.Add(beat.TTL)) {
				n.alive[id] = now.Add(beat.TTL)
			}
		}
		if _, dead := n.dead[beat.Node]; !dead {
			n.alive[beat.Node] = now.Add(beat.TTL)
			for _, h := range beat.Heard {
				if until, ok := n.alive[h.Node]; ok && now.Add(beat.TTL-h.Age).After(until) {
					n.alive[h.Node] = now.Add(beat.TTL - h.Age)
				}
			}
			for id, until := range n.alive {
				if !until.After(now) {
					n.dead[id] = now
					delete(n.alive, id)
				}
			}
			maps.DeleteFunc(n.dead, func(_ string, at time.Time) bool { return now.Sub(at) > time.Hour })
		}
		r = BeatResult{Now: now, Alive: slices.Sorted(maps.Keys(n.alive)), Dead: slices.Sorted(maps.Keys(n.dead))}
	})
	return r, err
}

// Fence implements Store.
func (m *modelStore) Fence(ctx context.Context, shard int, node string) error {
	return m.do(ctx, "fence", func(time.Time) {
		s := &m.shards[shard]
		if s.fenced == nil {
			s.fenced = map[string]bool{}
		}
		s.fenced[node] = true
	})
}

// Members implements Store. The cursor is the hash of the last user plus one, so users that are
// removed meanwhile do not move the others.
func (m *modelStore) Members(ctx context.Context, shard int, node string, cursor uint64) (users []string, next uint64, err error) {
	err = m.do(ctx, "members", func(time.Time) {
		for userID, parts := range m.shards[shard].users {
			if _, ok := parts[node]; ok && xxhash.Sum64String(userID) >= cursor {
				users = append(users, userID)
			}
		}
		slices.SortFunc(users, func(a, b string) int {
			return cmp.Compare(xxhash.Sum64String(a), xxhash.Sum64String(b))
		})
		if len(users) > 3 {
			users = users[:3]
			next = xxhash.Sum64String(users[2]) + 1
		}
	})
	return users, next, err
}

// Open implements Store.
func (m *modelStore) Open(ctx context.Context, shard int, old, epoch string) (Head, error) {
	var h Head
	err := m.do(ctx, "open", func(now time.Time) {
		s := &m.shards[shard]
		if s.epoch == old {
			m.open(s, epoch, now)
		}
		h = s.head()
	})
	return h, err
}

// Restored implements Store.
func (m *modelStore) Restored(ctx context.Context, shard int, epoch, node string) error {
	return m.do(ctx, "restored", func(time.Time) {
		s := &m.shards[shard]
		if s.epoch != epoch || !s.settled.IsZero() {
			return
		}
		if s.restored == nil {
			s.restored = map[string]bool{}
		}
		s.restored[node] = true
	})
}

// Settle implements Store.
func (m *modelStore) Settle(ctx context.Context, shard int, epoch string) error {
	return m.do(ctx, "settle", func(now time.Time) {
		if s := &m.shards[shard]; s.epoch == epoch && s.settled.IsZero() {
			s.settled = now
		}
	})
}

// RestoredNodes implements Store.
func (m *modelStore) RestoredNodes(ctx context.Context, shard int) (Head, []string, error) {
	var (
		h     Head
		nodes []string
	)
	err := m.do(ctx, "restored nodes", func(time.Time) {
		s := &m.shards[shard]
		h, nodes = s.head(), slices.Sorted(maps.Keys(s.restored))
	})
	return h, nodes, err
}
