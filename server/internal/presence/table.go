package presence

import (
	"time"

	"github.com/maypok86/otter/v2"
)

// seen is a state and as of when it is known.
type seen struct {
	state State
	// seq is the position in the log. at orders reads at one position: the store's time in ms.
	seq, at int64
}

// watched is a user that streams or channels watch. The shard's mu guards it.
type watched struct {
	// seen.seq is, while the state is unknown, the position at which the watch began.
	seen
	// known is set once there is a state. stale is set if it must be read again, or for the first
	// time.
	known, stale bool
	revision     int64
	streams      map[*Stream]struct{}
	channels     map[*channelWatch]struct{}
}

// applyEntry applies an entry of the log to the table. The caller holds s.mu.
func (v *view) applyEntry(s *viewShard, e *Entry) {
	n := seen{e.State, e.Seq, e.At.UnixMilli()}
	w := s.watched[e.UserID]
	if w == nil {
		v.updateUnwatched(s, e.UserID, n)
		return
	}
	if w.known && n.seq <= w.seq {
		return // a read was newer
	}
	// Before the epoch was settled, parts were written without an entry, and others were not written
	// yet: the user may be online on platforms that the entry lacks.
	if w.stale = s.phase != shardSettled || w.stale && !e.At.After(s.settled); w.stale {
		if !w.known {
			return
		}
		n.state = n.state.withMissing(w.state)
	}
	w.seen.seq, w.seen.at = n.seq, n.at
	v.change(s, e.UserID, w, n.state)
}

// applyRead applies a state that was read at position h.Seq of the epoch that the view follows. The
// caller holds s.mu.
func (v *view) applyRead(s *viewShard, userID string, state State, h Head, now time.Time) {
	if !h.Settled() {
		return // the store may lack any of the user's platforms
	}
	n := seen{state, h.Seq, now.UnixMilli()}
	w := s.watched[userID]
	if w == nil {
		v.keepUnwatched(s, userID, n)
		return
	}
	if n.seq < w.seq || n.seq == w.seq && n.at < w.at && !w.stale {
		return
	}
	w.seen.seq, w.seen.at = n.seq, n.at
	w.stale = false
	v.change(s, userID, w, state)
}

// change sets the state of a watched user and delivers it if it differs. The caller holds s.mu.
func (v *view) change(s *viewShard, userID string, w *watched, state State) {
	if w.known && w.state == state {
		return
	}
	w.known, w.state = true, state
	s.revision++
	w.revision = s.revision
	u := UserState{UserID: userID, State: state, Revision: w.revision}
	for stream := range w.streams {
		stream.deliver(u)
	}
	for c := range w.channels {
		c.set(u)
	}
}

// outdate makes all watched users be read again: their states have no position in the log that the
// view follows.
func (s *viewShard) outdate() {
	for _, w := range s.watched {
		w.seq, w.at, w.stale = s.tail, 0, true
		s.outdated = s.outdated || w.known
	}
}

// pin returns the table's entry of a user that is going to be watched. The caller holds s.mu.
func (v *view) pin(s *viewShard, userID string) *watched {
	w := s.watched[userID]
	if w != nil {
		return w
	}
	w = &watched{streams: map[*Stream]struct{}{}, channels: map[*channelWatch]struct{}{}}
	if n, ok := v.unwatched(s, userID); ok {
		s.revision++
		w.seen, w.known, w.revision = n, true, s.revision
	} else {
		w.seq, w.stale = s.tail, true
	}
	s.watched[userID] = w
	return w
}

// unpin removes the entry of a user that nobody watches any more. The caller holds s.mu.
func (v *view) unpin(s *viewShard, userID string, w *watched) {
	if len(w.streams) > 0 || len(w.channels) > 0 {
		return
	}
	delete(s.watched, userID)
	if w.known && !w.stale && s.phase == shardSettled {
		v.returnUnwatched(s, userID, w.seen)
	}
}

// lru caches the states of users that nobody watches.
type lru struct {
	life  int64 // in ms
	users *otter.Cache[string, lruState]
}

type lruState struct {
	seen
	generation uint32
}

func newLRU(users int, life time.Duration) *lru {
	return &lru{life: life.Milliseconds(), users: otter.Must(&otter.Options[string, lruState]{
		MaximumSize: users,
		// Maintenance is short, and there is no point at which to stop a background goroutine.
		Executor: func(fn func()) { fn() },
	})}
}

// unwatched returns the state of a user that nobody watches, if it is known. It is as new as the
// shard. The caller holds s.mu, as for the following methods.
func (v *view) unwatched(s *viewShard, userID string) (seen, bool) {
	if v.lru == nil {
		return s.full.get(userID, s.tail)
	}
	n, ok := v.lru.users.GetIfPresent(userID)
	if !ok || n.generation != s.generation || v.clk.now(s.num).UnixMilli()-n.at > v.lru.life {
		return seen{}, false
	}
	return n.seen, true
}

// updateUnwatched applies an entry of the log.
func (v *view) updateUnwatched(s *viewShard, userID string, n seen) {
	if v.lru == nil {
		s.full.put(userID, n)
	} else if old, ok := v.lru.users.GetIfPresent(userID); ok && old.generation == s.generation && old.seq < n.seq {
		v.lru.users.Set(userID, lruState{n, s.generation})
	}
}

// keepUnwatched keeps a state that was read, unless an entry that the table does not have may be
// newer.
func (v *view) keepUnwatched(s *viewShard, userID string, n seen) {
	switch {
	case v.lru == nil:
		if n.seq >= s.full.from && (s.full.phase == fullLoading || n.seq >= s.tail) {
			s.full.put(userID, n)
		}
	case n.seq >= s.tail:
		if old, ok := v.lru.users.GetIfPresent(userID); !ok || old.generation != s.generation || old.seq <= n.seq {
			v.lru.users.Set(userID, lruState{n, s.generation})
		}
	}
}

// returnUnwatched keeps the state of a user that was watched until now. Every entry up to tail was
// applied to it.
func (v *view) returnUnwatched(s *viewShard, userID string, n seen) {
	if v.lru == nil {
		s.full.put(userID, n)
		return
	}
	v.lru.users.Set(userID, lruState{n, s.generation})
}

// dropUnwatched forgets the states of the users that nobody watches.
func (v *view) dropUnwatched(s *viewShard) {
	s.generation++
	s.full.unload()
}
