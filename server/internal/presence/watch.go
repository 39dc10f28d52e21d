package presence

import (
	"context"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/stream"
)

// watchTime is how long the answer to a watch waits for states.
const watchTime = time.Second

// shardSet is a set of shards.
type shardSet [Shards / 64]uint64

func (t *shardSet) add(shard int) { t[shard/64] |= 1 << (shard % 64) }

func (t *shardSet) empty() bool { return *t == shardSet{} }

func (t *shardSet) intersects(other *shardSet) bool {
	for i := range t {
		if t[i]&other[i] != 0 {
			return true
		}
	}
	return false
}

// watch makes a stream watch the users of add, and not those of remove; a user in both is watched.
// It returns the states of add, in its order without repeats, as far as they are known within 1 s;
// the others follow on the stream.
//
// It fails with LIMIT_EXCEEDED above Config.MaxWatched, with STREAM_NOT_FOUND if the stream has
// ended, and with SHUTTING_DOWN if it is draining, and then changes nothing.
func (v *view) watch(ctx context.Context, s *Stream, add, remove []string) ([]UserState, error) {
	users, before, err := v.register(s, add, remove)
	if err != nil {
		return nil, err
	}
	unknown := v.unknown(users)
	if len(unknown) > 0 {
		limited, cancel := context.WithTimeout(ctx, watchTime)
		_, _ = v.reads.read(limited, unknown) // states that cannot be read now follow on the stream
		cancel()
	}
	states := make([]UserState, 0, len(users))
	for i, userID := range users {
		shard := &v.shards[ShardOf(userID)]
		shard.mu.Lock()
		w := shard.watched[userID]
		switch {
		case w == nil: // it was removed meanwhile
		case w.known:
			u := UserState{UserID: userID, State: w.state, Revision: w.revision}
			if !before[i] {
				// A repeat of a call whose response was lost must not take a state from the stream.
				s.answered(u)
			}
			states = append(states, u)
		default:
			v.reloads.set(shard.num, time.Now().Add(retryDelay))
		}
		shard.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.Ended() {
		return nil, stream.NotFound()
	}
	return states, nil
}

// register changes which users a stream watches. It returns the users of add without repeats, and
// whether the stream watched each before.
func (v *view) register(s *Stream, add, remove []string) (users []string, before []bool, err error) {
	s.edit.Lock()
	defer s.edit.Unlock()
	if err := s.refusal(); err != nil {
		return nil, nil, err
	}
	added := make(map[string]struct{}, len(add))
	for _, userID := range add {
		if _, ok := added[userID]; !ok {
			added[userID] = struct{}{}
			users = append(users, userID)
		}
	}
	removed := map[string]struct{}{}
	s.mu.Lock()
	for _, userID := range remove {
		_, again := added[userID]
		if _, ok := s.users[userID]; ok && !again {
			removed[userID] = struct{}{}
		}
	}
	before = make([]bool, len(users))
	n := len(s.users) - len(removed)
	for i, userID := range users {
		if _, before[i] = s.users[userID]; !before[i] {
			n++
		}
	}
	if limit := v.cfg.MaxWatched; n > limit {
		s.mu.Unlock()
		return nil, nil, tooManyUsers(limit, "add")
	}
	for i, userID := range users {
		if !before[i] {
			s.users[userID] = 0
		}
	}
	s.mu.Unlock()
	for userID := range removed {
		v.unregister(s, userID)
	}
	for i, userID := range users {
		if before[i] {
			continue
		}
		shard := &v.shards[ShardOf(userID)]
		shard.mu.Lock()
		v.pin(shard, userID).streams[s] = struct{}{}
		shard.mu.Unlock()
		v.stats.watchers.Add(1)
	}
	v.enlist(s)
	return users, before, nil
}

// tooManyUsers returns the fault of a field that would make a stream watch too many users.
func tooManyUsers(limit int, field string) *fault.Error {
	f := fault.OverLimit(int64(limit), "a stream may watch at most %d users")
	f.Field = field
	return f
}

// unregister makes a stream not watch a user. The caller holds s.edit, and the stream watches the
// user.
func (v *view) unregister(s *Stream, userID string) {
	shard := &v.shards[ShardOf(userID)]
	shard.mu.Lock()
	if w := shard.watched[userID]; w != nil {
		delete(w.streams, s)
		v.unpin(shard, userID, w)
	}
	shard.mu.Unlock()
	v.stats.watchers.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.users, userID)
	delete(s.pending, userID)
}

// unknown returns the users whose states are not known, or too old.
func (v *view) unknown(users []string) []string {
	var unknown []string
	now := time.Now()
	for _, userID := range users {
		s := &v.shards[ShardOf(userID)]
		s.mu.Lock()
		if w := s.watched[userID]; w == nil || !w.known || w.stale || !v.fresh(s, now) {
			unknown = append(unknown, userID)
		}
		s.mu.Unlock()
	}
	return unknown
}

// enlist adds a stream to those that can lag, or removes it if it watches nothing. The caller holds
// s.edit.
func (v *view) enlist(s *Stream) {
	s.mu.Lock()
	s.shards = shardSet{}
	for userID := range s.users {
		s.shards.add(ShardOf(userID))
	}
	watches := len(s.users) > 0 || len(s.channels) > 0
	s.mu.Unlock()
	v.streamMu.Lock()
	if watches {
		v.streams[s] = struct{}{}
	} else {
		delete(v.streams, s)
	}
	v.streamMu.Unlock()
	if !watches {
		s.setLagging(false)
	}
}

// forget removes everything that a stream watches. Nothing can be added afterwards. It may be
// called twice.
func (v *view) forget(s *Stream) {
	s.edit.Lock()
	defer s.edit.Unlock()
	s.forgotten = true
	s.mu.Lock()
	s.lost = nil
	users := make([]string, 0, len(s.users))
	for userID := range s.users {
		users = append(users, userID)
	}
	channels := make([]*channelWatch, 0, len(s.channels))
	for _, sub := range s.channels {
		channels = append(channels, sub.watch)
	}
	s.mu.Unlock()
	for _, userID := range users {
		v.unregister(s, userID)
	}
	for _, c := range channels {
		v.detach(s, c, "")
	}
	v.enlist(s)
}

// updateLagging sets which streams are lagging.
func (v *view) updateLagging(now time.Time) {
	var lagging shardSet
	count := int64(0)
	for i := range v.shards {
		s := &v.shards[i]
		s.mu.Lock()
		if v.age(s, now) > lagAge {
			lagging.add(i)
			count++
		}
		s.mu.Unlock()
	}
	v.stats.lags.Store(count)
	v.streamMu.Lock()
	if lagging.empty() && !v.lagged {
		v.streamMu.Unlock()
		return
	}
	v.lagged = !lagging.empty()
	streams := make([]*Stream, 0, len(v.streams))
	for s := range v.streams {
		streams = append(streams, s)
	}
	v.streamMu.Unlock()
	for _, s := range streams {
		s.setLagging(s.watchesAny(&lagging))
	}
}

// watchesAny reports whether a user whom the stream watches is in one of the shards.
func (s *Stream) watchesAny(shards *shardSet) bool {
	s.mu.Lock()
	if s.shards.intersects(shards) {
		s.mu.Unlock()
		return true
	}
	channels := make([]*channelWatch, 0, len(s.channels))
	for _, sub := range s.channels {
		channels = append(channels, sub.watch)
	}
	s.mu.Unlock() // a channel's mu is locked before a stream's
	for _, c := range channels {
		if c.inAny(shards) {
			return true
		}
	}
	return false
}
