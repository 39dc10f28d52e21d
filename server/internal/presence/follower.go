package presence

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// shardPhase is what is known of the log of a shard.
//
//	shardUnknown ---a head with an epoch---> shardUnsettled, shardSettled
//	shardUnsettled ---a head that is settled---> shardSettled
//	any ---a head without an epoch, or a log that has gone back---> shardMissing
//	any but shardUnknown ---a head with another epoch---> shardUnsettled, shardSettled
type shardPhase uint8

const (
	// shardUnknown: no head was read yet.
	shardUnknown shardPhase = iota
	// shardMissing: a new epoch must be opened. Announcements are ignored until then.
	shardMissing
	// shardUnsettled: the store lacks states, so absence is no answer.
	shardUnsettled
	// shardSettled: the store has all states.
	shardSettled
)

// viewShard is what a view knows of one shard of users: the follower of the shard's log, and the
// table of states. mu guards all fields but num.
type viewShard struct {
	num int

	mu    sync.Mutex
	phase shardPhase
	// epoch and tail are the follower's position: that of the last entry that was applied.
	epoch string
	tail  int64
	// since is when the epoch became known, by this node's clock.
	since time.Time
	// tailAt is Entry.At of that entry; zero if it is not known.
	tailAt time.Time
	// settled is when the epoch was settled; zero until then.
	settled time.Time
	// newest is not before the store's time of any entry up to tail.
	newest time.Time
	// headAt is the store's time of the newest head. By this node's clock, heard is when the newest
	// head that was broadcast was read, and checked when this node last began to read a head.
	headAt, heard, checked time.Time
	// past are the epochs before, newest first. A store that has one of them again has gone back.
	past [3]string
	// end is the highest position that the log is known to have, and endAt the time of the entry
	// there; zero if it is not known. ahead are the first and the newest
	// head beyond tail.
	end   int64
	endAt time.Time
	ahead [2]mark
	// level is when the last head was read that the follower was level with, by this node's clock.
	// Known states that need not be read again are at least as new. It is zero before the first.
	level time.Time
	// parked holds entries beyond tail+1, by position.
	parked map[int64]Entry

	// watched holds the users that streams or channels watch.
	watched map[string]*watched
	// outdated is set while watched users have states that must be read again; level is not raised
	// meanwhile.
	outdated bool
	// revision is the revision of the newest state of any user of the shard.
	revision int64
	// generation counts the times when all unwatched states were dropped.
	generation uint32
	full       fullShard

	// events are the calls of own that have still to be made. calling is set while a goroutine makes
	// them.
	events, spare []event
	calling       bool
}

// mark is a head beyond the follower's position and when it was read. The zero mark is none.
type mark struct {
	seq int64
	at  time.Time
}

// event is a call of own.
type event struct {
	kind  eventKind
	head  Head
	entry Entry
}

type eventKind uint8

const (
	entryApplied eventKind = iota
	epochBegan
	epochMissing
	entriesLost
)

// release unlocks a shard, and makes the calls of own that are due unless another goroutine does.
func (v *view) release(s *viewShard) {
	if s.calling {
		s.mu.Unlock()
		return
	}
	s.calling = true
	for len(s.events) > 0 {
		events := s.events
		s.events, s.spare = s.spare, nil
		s.mu.Unlock()
		for i := range events {
			v.call(s.num, &events[i])
		}
		s.mu.Lock()
		if cap(events) <= sinceLimit {
			clear(events)
			s.spare = events[:0]
		}
	}
	s.calling = false
	s.mu.Unlock()
}

func (v *view) call(shard int, e *event) {
	switch e.kind {
	case entryApplied:
		v.own.entryApplied(shard, &e.entry)
	case epochBegan:
		v.own.epochBegan(shard, e.head)
	case epochMissing:
		v.own.epochMissing(shard, e.head)
	case entriesLost:
		v.own.entriesLost(shard)
	}
}

// announced applies entries of a log that an announcement or a step of this node has. They are
// ordered by position, and may have gaps.
func (v *view) announced(a Announcement) {
	if a.Shard < 0 || a.Shard >= Shards {
		return
	}
	s := &v.shards[a.Shard]
	s.mu.Lock()
	defer v.release(s)
	if a.Epoch != s.epoch {
		v.check(s)
		return
	}
	for i := range a.Entries {
		v.offer(s, &a.Entries[i])
	}
}

// offer applies an entry if it is the next one, parks it if it is beyond that, and ignores it
// otherwise. The caller holds s.mu.
func (v *view) offer(s *viewShard, e *Entry) {
	switch {
	case s.phase == shardMissing:
	case e.Seq <= s.tail:
		if e.At.After(s.newest) {
			// It is not the entry that was applied at this position.
			v.lose(s, Head{Epoch: s.epoch, Seq: e.Seq})
		}
	case len(s.events) >= maxEvents:
		v.await(s, e.Seq, e.At)
	case e.Seq == s.tail+1:
		v.apply(s, e)
		v.unpark(s)
	default:
		if len(s.parked) < maxParked {
			if s.parked == nil {
				s.parked = map[int64]Entry{}
			}
			s.parked[e.Seq] = *e
		}
		v.await(s, e.Seq, e.At)
	}
}

// ended records the position and the time of a log's last entry after a step of this node. The step
// may repeat one that had no response, and whose entry this node has not read. If the entry is
// lost, only these show it.
func (v *view) ended(shard int, epoch string, seq int64, at time.Time) {
	s := &v.shards[shard]
	s.mu.Lock()
	defer v.release(s)
	if epoch == s.epoch && s.phase != shardMissing && seq > s.tail {
		v.await(s, seq, at)
	}
}

// unpark applies the parked entries that follow tail.
func (v *view) unpark(s *viewShard) {
	for len(s.parked) > 0 {
		e, ok := s.parked[s.tail+1]
		if !ok {
			return
		}
		delete(s.parked, e.Seq)
		v.apply(s, &e)
	}
	s.parked = nil
}

// apply applies the entry that follows tail, unless it is known that the log had another one there.
// The caller holds s.mu.
func (v *view) apply(s *viewShard, e *Entry) {
	if e.Seq == s.end && !s.endAt.IsZero() && !e.At.Equal(s.endAt) {
		v.lose(s, Head{Epoch: s.epoch, Seq: e.Seq})
		return
	}
	s.tail, s.tailAt = e.Seq, e.At
	if e.At.After(s.newest) {
		s.newest = e.At
	}
	if e.Login == nil {
		v.applyEntry(s, e)
	}
	s.events = append(s.events, event{kind: entryApplied, entry: *e})
	v.reached(s)
}

// await makes the view read the log up to seq if the entries do not arrive soon. at is the time of
// the entry at seq; zero if it is not known.
func (v *view) await(s *viewShard, seq int64, at time.Time) {
	if seq > s.end {
		s.end, s.endAt = seq, at
	}
	v.logs.set(s.num, time.Now().Add(raceDelay))
}

// raise records a head that was read at m.at, and whose last entry is of the time last. The caller
// holds s.mu.
func (v *view) raise(s *viewShard, m mark, last time.Time) {
	switch {
	case m.seq <= s.tail:
		s.isLevel(m.at)
		return
	case s.ahead[0].seq == 0:
		s.ahead[0] = m
	case m.seq >= s.ahead[1].seq:
		s.ahead[1] = m
	}
	v.await(s, m.seq, last)
}

// reached moves the level after tail has moved.
func (v *view) reached(s *viewShard) {
	for s.ahead[0].seq != 0 && s.ahead[0].seq <= s.tail {
		s.isLevel(s.ahead[0].at)
		s.ahead[0], s.ahead[1] = s.ahead[1], mark{}
	}
	v.serveLoaded(s)
}

func (s *viewShard) isLevel(at time.Time) {
	if s.phase == shardSettled && !s.outdated && at.After(s.level) {
		s.level = at
	}
}

// behind reports whether the log is known to have entries after tail.
func (s *viewShard) behind() bool { return s.end > s.tail }

// fresh reports whether the known states of the shard are at most as old as Config.MaxStaleness.
func (v *view) fresh(s *viewShard, now time.Time) bool {
	return s.phase == shardSettled && !s.level.IsZero() && now.Sub(s.level) <= v.cfg.MaxStaleness
}

// lose records that the shard needs a new epoch. The caller holds s.mu.
func (v *view) lose(s *viewShard, h Head) {
	s.phase = shardMissing
	s.parked, s.end, s.endAt, s.ahead = nil, 0, time.Time{}, [2]mark{}
	s.events = append(s.events, event{kind: epochMissing, head: h})
	v.dropUnwatched(s)
}

// begin makes the follower follow another epoch: the first one that it sees from its head, a later
// one from its beginning. The caller holds s.mu.
func (v *view) begin(s *viewShard, h Head, now time.Time) {
	s.tail, s.tailAt, s.newest = 0, time.Time{}, time.Time{}
	if s.epoch == "" {
		s.tail, s.tailAt, s.newest = h.Seq, h.LastAt, now
	} else {
		s.past = [3]string{s.epoch, s.past[0], s.past[1]}
	}
	s.epoch, s.since = h.Epoch, time.Now()
	s.phase, s.settled = shardUnsettled, time.Time{}
	s.parked, s.end, s.endAt, s.ahead = nil, 0, time.Time{}, [2]mark{}
	s.events = append(s.events, event{kind: epochBegan, head: h})
	v.dropUnwatched(s)
	s.outdate()
	v.reloads.set(s.num, time.Now())
	if h.Settled() {
		v.settle(s, h)
	}
}

// settle records that the store has all states of the shard.
func (v *view) settle(s *viewShard, h Head) {
	s.phase, s.settled = shardSettled, h.SettledAt
	for _, w := range s.watched {
		s.outdated = s.outdated || w.known && w.stale
	}
	v.reloads.set(s.num, time.Now())
	if v.lru == nil {
		v.loads.set(s.num, time.Now())
	}
}

// position is a follower's position when a step of the store was sent. end is the highest position
// that the log was known to have, endAt the time of its entry, if known, and settled when the epoch
// was settled, as far as was known.
type position struct {
	epoch     string
	tail, end int64
	endAt     time.Time
	settled   time.Time
	sent      time.Time
}

// gone reports whether a head of the same epoch that was read after the position shows that the
// store has lost something.
func (p *position) gone(h *Head) bool {
	return h.Seq < p.end || !p.settled.IsZero() && !h.SettledAt.Equal(p.settled) ||
		h.Seq == p.end && !p.endAt.IsZero() && !h.LastAt.Equal(p.endAt)
}

func (s *viewShard) position() position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.here()
}

// here is position for a caller that holds s.mu.
func (s *viewShard) here() position {
	p := position{epoch: s.epoch, tail: s.tail, end: s.tail, endAt: s.tailAt, settled: s.settled, sent: time.Now()}
	if s.end > s.tail {
		p.end, p.endAt = s.end, s.endAt
	}
	return p
}

// sawHead handles a head that this node has read, with a step that was sent at the position before.
// It reports whether the response is of the epoch that the view follows. The caller holds s.mu.
func (v *view) sawHead(s *viewShard, h Head, now time.Time, before position) bool {
	v.clk.saw(s.num, now, before.sent)
	if s.epoch != before.epoch {
		// It is not known which epoch is the newer one.
		if h.Epoch != s.epoch {
			v.check(s)
			return false
		}
		before.end, before.endAt, before.settled = 0, time.Time{}, time.Time{}
	}
	s.headAt = now
	switch {
	case h.Epoch == "" || slices.Contains(s.past[:], h.Epoch),
		h.Epoch == s.epoch && (s.phase == shardMissing || before.gone(&h)):
		v.lose(s, h)
		return false
	case h.Epoch != s.epoch:
		v.begin(s, h, now)
	case h.Settled() && s.phase == shardUnsettled:
		v.settle(s, h)
	}
	v.raise(s, mark{h.Seq, before.sent}, h.LastAt)
	return true
}

// opened handles the head that Store.Open has returned.
func (v *view) opened(shard int, h Head, now time.Time) {
	s := &v.shards[shard]
	s.mu.Lock()
	defer v.release(s)
	if s.phase != shardMissing || h.Epoch == "" || h.Epoch == s.epoch {
		v.check(s)
		return
	}
	v.sawHead(s, h, now, position{epoch: s.epoch, sent: time.Now()})
}

// check makes the view read the head of a shard soon. The caller holds s.mu.
func (v *view) check(s *viewShard) { v.heads.set(s.num, s.checked.Add(checkInterval)) }

// catchUp reads the entries after the positions of shards that are behind.
func (v *view) catchUp(ctx context.Context, shards []int) {
	var (
		calls  []SinceCall
		before []position
	)
	for _, shard := range shards {
		s := &v.shards[shard]
		s.mu.Lock()
		if s.behind() && s.phase != shardMissing {
			calls = append(calls, SinceCall{Shard: shard, Epoch: s.epoch, Seq: s.tail, At: s.tailAt, Limit: sinceLimit})
			before = append(before, s.here())
		}
		s.mu.Unlock()
	}
	if len(calls) == 0 {
		return
	}
	ctx, cancel := v.timeout(ctx)
	defer cancel()
	results := v.cfg.Store.Since(ctx, calls)
	for i := range results {
		r := &results[i]
		if r.Err != nil {
			v.reportError(fmt.Errorf("read the log of shard %d: %w", calls[i].Shard, r.Err))
			v.logs.set(calls[i].Shard, time.Now().Add(retryDelay))
			continue
		}
		v.caughtUp(&v.shards[calls[i].Shard], r, before[i])
	}
}

// caughtUp applies the result of a read of the log.
func (v *view) caughtUp(s *viewShard, r *SinceResult, before position) {
	s.mu.Lock()
	defer v.release(s)
	same := s.epoch == before.epoch && r.Epoch == s.epoch
	if !v.sawHead(s, r.Head, r.Now, before) || !same {
		return
	}
	switch {
	case r.Other:
		v.lose(s, r.Head)
		return
	case r.Reset && s.tail == before.tail:
		v.skip(s, r)
	case r.Reset:
	case len(s.events) >= maxEvents:
		v.logs.set(s.num, time.Now().Add(raceDelay))
		return
	}
	for i := range r.Entries {
		if r.Entries[i].Seq == s.tail+1 {
			v.stats.missed.Add(1)
			v.apply(s, &r.Entries[i])
		}
	}
	v.unpark(s)
	switch {
	case !s.behind():
	case len(r.Entries) == sinceLimit:
		v.logs.set(s.num, time.Now())
	default:
		v.logs.set(s.num, time.Now().Add(raceDelay))
	}
}

// skip moves the follower to the head, because the entries after its position are trimmed.
func (v *view) skip(s *viewShard, r *SinceResult) {
	v.stats.resets.Add(1)
	s.tail, s.tailAt = r.Seq, r.LastAt
	if r.Now.After(s.newest) {
		s.newest = r.Now
	}
	for seq := range s.parked {
		if seq <= s.tail {
			delete(s.parked, seq)
		}
	}
	s.events = append(s.events, event{kind: entriesLost})
	v.dropUnwatched(s)
	s.outdate()
	v.reached(s)
	v.reloads.set(s.num, time.Now())
	if v.lru == nil && s.phase == shardSettled {
		v.loads.set(s.num, time.Now())
	}
}
