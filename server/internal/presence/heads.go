package presence

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// requestHeads makes the view read the heads of the shards that this node owns, and of those of
// which no head was heard recently.
func (v *view) requestHeads(now time.Time) {
	for i := range v.shards {
		s := &v.shards[i]
		s.mu.Lock()
		// Otherwise the next look would be too late.
		silent := now.Sub(s.heard) > headSilence-headInterval/2
		s.mu.Unlock()
		if silent || v.cfg.Owner.Owns(i) {
			v.heads.set(i, now)
		}
	}
}

// readHeads reads the heads of shards in one step, and broadcasts those of the shards that this
// node owns.
func (v *view) readHeads(ctx context.Context, shards []int) {
	slices.Sort(shards)
	before := make([]position, len(shards))
	now := time.Now()
	for i, shard := range shards {
		s := &v.shards[shard]
		s.mu.Lock()
		s.checked = now
		before[i] = s.here()
		s.mu.Unlock()
	}
	ctx, cancel := v.timeout(ctx)
	defer cancel()
	var heads []ShardHead
	for i, r := range v.cfg.Store.Heads(ctx, shards) {
		if r.Err != nil {
			v.reportError(fmt.Errorf("read the head of shard %d: %w", shards[i], r.Err))
			continue
		}
		s := &v.shards[shards[i]]
		s.mu.Lock()
		v.sawHead(s, r.Head, r.Now, before[i])
		v.release(s)
		if v.cfg.Owner.Owns(shards[i]) {
			heads = append(heads, ShardHead{Shard: shards[i], Head: r.Head, Now: r.Now})
		}
	}
	if len(heads) > 0 {
		v.cfg.Bus.Heads(heads)
	}
}

// saw compares heads, broadcast or from any response, with the followers' positions.
func (v *view) saw(heads []ShardHead) {
	for i := range heads {
		if h := &heads[i]; h.Shard >= 0 && h.Shard < Shards {
			v.sawBroadcast(&v.shards[h.Shard], h)
		}
	}
}

// sawBroadcast handles a head that another node may have read, at any time before. It is ignored if
// a newer one is known.
func (v *view) sawBroadcast(s *viewShard, h *ShardHead) {
	s.mu.Lock()
	defer v.release(s)
	known := v.clk.now(s.num)
	age := known.Sub(h.Now)
	switch {
	case known.IsZero() || s.phase == shardUnknown:
		v.check(s)
		return
	case h.Now.Before(s.headAt):
		return
	case h.Epoch != s.epoch || s.phase == shardMissing, // another epoch
		h.Seq < s.tail && h.Now.After(s.newest), // the log has gone back
		h.Seq == s.tail && !s.tailAt.IsZero() && !h.LastAt.Equal(s.tailAt),
		!h.Settled() && s.phase == shardSettled, // so it has, or the head is old
		age < -headInterval:                     // the store has another clock
		v.check(s)
		return
	}
	at := time.Now().Add(-max(age, 0))
	s.headAt = h.Now
	if at.After(s.heard) {
		s.heard = at
	}
	if h.Settled() && s.phase == shardUnsettled {
		v.settle(s, h.Head)
	}
	if h.Seq > s.tail {
		v.stats.behind.Add(1)
	}
	v.raise(s, mark{h.Seq, at}, h.LastAt)
}

// readHead makes the view read the head of a shard soon.
func (v *view) readHead(shard int) {
	s := &v.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	v.check(s)
}
