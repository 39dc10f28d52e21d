package presence

import (
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// fullPhase is the state of the full cache of a shard.
//
//	fullUnloaded ---load---> fullLoading ---all pages were read---> fullPaged
//
//	fullPaged ---the follower has passed the pages' positions---> fullServing
//	any ---the load failed, or states were lost---> fullUnloaded
type fullPhase uint8

const (
	// fullUnloaded: nothing is kept.
	fullUnloaded fullPhase = iota
	// fullLoading: users who are not kept may be online. Users who are offline are kept, so that an
	// older read loses.
	fullLoading
	// fullPaged is as fullLoading until the follower has applied the entries up to last.
	fullPaged
	// fullServing: all users who are online are kept, and no others.
	fullServing
)

// pageLimit is the number of users in a page of a load.
const pageLimit = 1000

// fullShard is the full cache of a shard: its users that are online and not watched. The shard's mu
// guards it.
type fullShard struct {
	phase fullPhase
	users map[string]seen
	// from is the follower's position when the load began. last is the highest position of its reads.
	from, last int64
	// retry determines when a load that failed is repeated; nil if the last one succeeded.
	retry *backoff.ExponentialBackOff
}

// get returns the state of a user who is not watched, if it is known.
func (f *fullShard) get(userID string, tail int64) (seen, bool) {
	n, ok := f.users[userID]
	if !ok && f.phase == fullServing {
		return seen{seq: tail}, true
	}
	return n, ok && f.phase == fullServing
}

// put keeps a state unless a newer one is kept.
func (f *fullShard) put(userID string, n seen) {
	old, ok := f.users[userID]
	switch {
	case f.phase == fullUnloaded || ok && n.seq < old.seq:
	case n.state == 0 && f.phase == fullServing:
		delete(f.users, userID)
	default:
		f.users[userID] = n
	}
}

func (f *fullShard) unload() { f.phase, f.users, f.last = fullUnloaded, nil, 0 }

// serveLoaded begins to serve a full cache that was loaded, once the follower is level with it. The
// caller holds s.mu.
func (v *view) serveLoaded(s *viewShard) {
	f := &s.full
	if f.phase != fullPaged || s.tail < f.last {
		return
	}
	f.phase, f.retry = fullServing, nil
	for userID, n := range f.users {
		if n.state == 0 {
			delete(f.users, userID)
		}
	}
}

// load loads the full cache of a shard.
func (v *view) load(ctx context.Context, due []int) {
	s := &v.shards[due[0]]
	s.mu.Lock()
	if s.phase != shardSettled {
		s.mu.Unlock() // settle requests it again
		return
	}
	s.full.unload()
	s.full.phase, s.full.users, s.full.from = fullLoading, map[string]seen{}, s.tail
	generation := s.generation
	s.mu.Unlock()

	err := v.loadPages(ctx, s, generation)

	s.mu.Lock()
	defer v.release(s)
	switch {
	case s.generation != generation: // the states were lost again, which requested another load
	case err == nil:
		s.full.phase = fullPaged
		v.serveLoaded(s)
	default:
		s.full.unload()
		if s.full.retry == nil {
			s.full.retry = backoff.NewExponentialBackOff()
			s.full.retry.MaxInterval = 30 * time.Second
		}
		v.loads.set(s.num, time.Now().Add(s.full.retry.NextBackOff()))
		v.stats.loadFailures.Add(1)
		v.reportError(fmt.Errorf("load the online users of shard %d: %w", s.num, err))
	}
}

// loadPages reads all online users of a shard, and their states. It returns early if the states of
// the generation are lost meanwhile.
func (v *view) loadPages(ctx context.Context, s *viewShard, generation uint32) error {
	for after := ""; ; {
		page, err := v.page(ctx, s, after, pageLimit)
		if err != nil {
			return err
		}
		if err := v.loadStates(ctx, s, page.Users, generation); err != nil {
			return err
		}
		s.mu.Lock()
		lost := s.generation != generation
		s.full.last = max(s.full.last, page.Seq)
		s.mu.Unlock()
		if lost || len(page.Users) < pageLimit {
			return nil
		}
		after = page.Users[len(page.Users)-1]
	}
}

// page reads a page of a shard's online users.
func (v *view) page(ctx context.Context, s *viewShard, after string, limit int) (PageResult, error) {
	ctx, cancel := v.timeout(ctx)
	defer cancel()
	before := s.position()
	page, err := v.cfg.Store.Page(ctx, s.num, after, limit)
	if err != nil {
		return page, fmt.Errorf("read a page of users: %w", err)
	}
	s.mu.Lock()
	defer v.release(s)
	v.sawHead(s, page.Head, page.Now, before)
	return page, nil
}

// loadStates reads the states of users of a shard.
func (v *view) loadStates(ctx context.Context, s *viewShard, users []string, generation uint32) error {
	var calls []GetCall
	for len(users) > 0 {
		n := min(len(users), maxGet)
		calls = append(calls, GetCall{Shard: s.num, Users: users[:n]})
		users = users[n:]
	}
	if len(calls) == 0 {
		return nil
	}
	ctx, cancel := v.timeout(ctx)
	defer cancel()
	before := s.position()
	results := v.cfg.Store.Get(ctx, calls)
	s.mu.Lock()
	defer v.release(s)
	for i := range results {
		r := &results[i]
		if r.Err != nil {
			return fmt.Errorf("read the states of users: %w", r.Err)
		}
		if !v.sawHead(s, r.Head, r.Now, before) || s.generation != generation {
			return nil
		}
		s.full.last = max(s.full.last, r.Seq)
		for j, userID := range calls[i].Users {
			v.applyRead(s, userID, r.States[j], r.Head, r.Now)
		}
	}
	return nil
}
