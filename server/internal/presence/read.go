package presence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle"
)

// The limits of a reader.
const (
	// gatherTime is how long a read waits for others.
	gatherTime = time.Millisecond
	// batchUsers bounds the users of a batch, maxBatches the batches that wait.
	batchUsers = 6400
	maxBatches = 16
	// batchesInFlight is the number of batches that are read at a time.
	batchesInFlight = 4
	// settleInterval is the time between reads of a user who may be online although the store does
	// not have them.
	settleInterval = 250 * time.Millisecond
)

var errTooManyReads = errors.New("too many reads of presence are waiting")

// reader reads the states of users from the store, many in one step. A user in two waiting reads is
// read once. It is safe for concurrent use.
type reader struct {
	v    *view
	wake chan struct{}

	mu sync.Mutex // guards waiting
	// waiting are the batches that were not sent yet, oldest first. The last one may have room.
	waiting []*batch
}

// batch is some users who are read in one step. The results must not be read before done is closed.
type batch struct {
	users map[string]result
	done  chan struct{}
}

// result is the result of reading a user.
type result struct {
	state State
	// certain reports that the store has all states of the user's shard.
	certain bool
	err     error
}

func newReader(v *view) *reader { return &reader{v: v, wake: make(chan struct{}, 1)} }

func (r *reader) start(run *lifecycle.Run) {
	slots := make(chan struct{}, batchesInFlight)
	run.Go(func(ctx context.Context) {
		timer := time.NewTimer(gatherTime)
		defer timer.Stop()
		for {
			select {
			case <-r.wake:
			case <-ctx.Done():
				return
			}
			timer.Reset(gatherTime)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
			for {
				select {
				case slots <- struct{}{}:
				case <-ctx.Done():
					return
				}
				b := r.next()
				if b == nil {
					<-slots
					break
				}
				run.Go(func(ctx context.Context) {
					r.readBatch(ctx, b)
					<-slots
				})
			}
		}
	})
}

// next removes and returns the oldest batch; nil if there is none.
func (r *reader) next() *batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		return nil
	}
	b := r.waiting[0]
	r.waiting = slices.Delete(r.waiting, 0, 1)
	return b
}

// join adds users to waiting batches, and returns the batch of each. It fails if too many wait.
func (r *reader) join(users []string) ([]*batch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	batches := make([]*batch, len(users))
	for i, userID := range users {
		for _, b := range r.waiting {
			if _, ok := b.users[userID]; ok {
				batches[i] = b
			}
		}
		if batches[i] != nil {
			continue
		}
		n := len(r.waiting)
		if n == 0 || len(r.waiting[n-1].users) == batchUsers {
			if n == maxBatches {
				return nil, errTooManyReads
			}
			r.waiting = append(r.waiting, &batch{users: map[string]result{}, done: make(chan struct{})})
			n++
		}
		batches[i] = r.waiting[n-1]
		batches[i].users[userID] = result{}
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return batches, nil
}

// read reads the states of users. The read begins after the call has begun. The results are applied
// to the table before read returns. Users may be repeated.
func (r *reader) read(ctx context.Context, users []string) ([]result, error) {
	batches, err := r.join(users)
	if err != nil {
		return nil, err
	}
	results := make([]result, len(users))
	for i, b := range batches {
		select {
		case <-b.done:
			results[i] = b.users[users[i]]
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-r.v.ctx.Done():
			return nil, r.v.ctx.Err()
		}
	}
	return results, nil
}

// readAll reads the states of users into the table. It returns the error of one of them.
func (r *reader) readAll(ctx context.Context, users []string) error {
	results, err := r.read(ctx, users)
	for i := range results {
		err = cmp.Or(err, results[i].err)
	}
	return err
}

// readBatch reads the users of a batch.
func (r *reader) readBatch(ctx context.Context, b *batch) {
	defer close(b.done)
	v := r.v
	calls := getCalls(b.users)
	before := make([]position, len(calls))
	for i := range calls {
		before[i] = v.shards[calls[i].Shard].position()
	}
	ctx, cancel := context.WithTimeout(ctx, min(v.cfg.StoreTimeout, v.cfg.MaxStaleness))
	defer cancel()
	for i, res := range v.cfg.Store.Get(ctx, calls) {
		if res.Err != nil {
			v.reportError(fmt.Errorf("read the states of users: %w", res.Err))
			for _, userID := range calls[i].Users {
				b.users[userID] = result{err: res.Err}
			}
			continue
		}
		s := &v.shards[calls[i].Shard]
		s.mu.Lock()
		follows := v.sawHead(s, res.Head, res.Now, before[i])
		for j, userID := range calls[i].Users {
			if follows {
				v.applyRead(s, userID, res.States[j], res.Head, res.Now)
			}
			b.users[userID] = result{state: res.States[j], certain: res.Epoch != "" && res.Settled() && s.phase != shardMissing}
		}
		v.release(s)
	}
}

// getCalls returns the calls that read the users, ordered by shard.
func getCalls[V any](users map[string]V) []GetCall {
	shards := map[int][]string{}
	for userID := range users {
		shard := ShardOf(userID)
		shards[shard] = append(shards[shard], userID)
	}
	var calls []GetCall
	for shard, ids := range shards {
		for some := range slices.Chunk(ids, maxGet) {
			calls = append(calls, GetCall{Shard: shard, Users: some})
		}
	}
	slices.SortFunc(calls, func(a, b GetCall) int { return a.Shard - b.Shard })
	return calls
}

// get returns the states of users, in their order, each at most Config.MaxStaleness old. It fails
// with STORE_UNAVAILABLE if that cannot be ensured.
func (v *view) get(ctx context.Context, users []string) ([]UserState, error) {
	states := make([]UserState, len(users))
	var missing []int
	now := time.Now()
	for i, userID := range users {
		state, ok := v.known(userID, now)
		states[i] = UserState{UserID: userID, State: state}
		if !ok {
			missing = append(missing, i)
		}
	}
	v.stats.hits.Add(int64(len(users) - len(missing)))
	v.stats.misses.Add(int64(len(missing)))
	if len(missing) == 0 {
		return states, nil
	}
	limited, cancel := context.WithTimeout(ctx, v.cfg.MaxStaleness)
	defer cancel()
	for {
		began := time.Now()
		var err error
		if missing, err = v.readMissing(limited, states, missing); err == nil && len(missing) == 0 {
			if time.Since(began) <= v.cfg.MaxStaleness {
				return states, nil
			}
			err = context.DeadlineExceeded
		}
		if err == nil {
			err = lifecycle.Pause(limited, settleInterval)
		}
		if err != nil {
			return nil, v.unreadable(ctx, err)
		}
	}
}

// known returns the state of a user from the table, if it is new enough.
func (v *view) known(userID string, now time.Time) (State, bool) {
	s := &v.shards[ShardOf(userID)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if !v.fresh(s, now) {
		return 0, false
	}
	if w := s.watched[userID]; w != nil {
		return w.state, w.known && !w.stale
	}
	n, ok := v.unwatched(s, userID)
	return n.state, ok
}

// readMissing reads the users of states at the indexes of missing. It returns the indexes of those
// of whom the store may lack platforms.
func (v *view) readMissing(ctx context.Context, states []UserState, missing []int) ([]int, error) {
	users := make([]string, len(missing))
	for i, at := range missing {
		users[i] = states[at].UserID
	}
	results, err := v.reads.read(ctx, users)
	if err != nil {
		return missing, err
	}
	var uncertain []int
	for i, r := range results {
		switch {
		case r.err != nil:
			return missing, r.err
		case !r.certain: // the store may lack any of the user's platforms
			uncertain = append(uncertain, missing[i])
		default:
			states[missing[i]].State = r.state
		}
	}
	return uncertain, nil
}

// reload reads the watched users of shards again whose states are stale.
func (v *view) reload(ctx context.Context, shards []int) {
	var users []string
	for _, shard := range shards {
		s := &v.shards[shard]
		s.mu.Lock()
		found := 0
		for userID, w := range s.watched {
			// Before the shard is settled, a known state is better than what the store has.
			if w.stale && found < batchUsers/16 && (s.phase == shardSettled || !w.known) {
				users = append(users, userID)
				found++
			}
		}
		s.mu.Unlock()
	}
	var err error
	if len(users) > 0 {
		err = v.reads.readAll(ctx, users) // the reader reports errors of the store
	}
	for _, shard := range shards {
		v.reloaded(&v.shards[shard], err)
	}
}

// reloaded requests another reload of a shard if it has stale states left.
func (v *view) reloaded(s *viewShard, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left, outdated := 0, false
	for _, w := range s.watched {
		if w.stale {
			left++
			outdated = outdated || w.known
		}
	}
	s.outdated = outdated
	switch {
	case left == 0:
	case err == nil && s.phase == shardSettled && left > batchUsers/16:
		v.reloads.set(s.num, time.Now())
	default:
		v.reloads.set(s.num, time.Now().Add(retryDelay))
	}
}
