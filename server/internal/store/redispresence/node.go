package redispresence

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/parleyhq/parley/server/internal/presence"
)

// gap returns the time without any beat after which all leases begin again, because Redis was away.
// Nodes beat four times in a lease.
func gap(leaseTTL time.Duration) time.Duration { return leaseTTL * 5 / 8 }

// Beat implements presence.Store. It has up to MaxHeard peers.
func (s *Store) Beat(ctx context.Context, beat presence.Beat) (presence.BeatResult, error) {
	var c checks
	c.node(beat.Node)
	c.thatf(beat.TTL >= time.Millisecond, "lease TTL %s must be at least 1ms", beat.TTL)
	c.count("number of peers", len(beat.Heard), 0, MaxHeard)
	args := []any{beat.Node, millis(beat.TTL), millis(gap(beat.TTL)), millis(keepDead), strconv.Itoa(maxDead)}
	for _, peer := range beat.Heard {
		c.node(peer.Node)
		args = append(args, peer.Node, millis(max(peer.Age, 0)))
	}
	if c.err != nil {
		return presence.BeatResult{}, c.err
	}
	r := read("leases", s.run(ctx, s.scripts.beat, []string{s.keys.nodes(), s.keys.alive(), s.keys.dead()}, args...))
	result := presence.BeatResult{Now: r.time(), Alive: r.texts(), Dead: r.texts()}
	if r.err != nil {
		return presence.BeatResult{}, r.err
	}
	slices.Sort(result.Alive)
	slices.Sort(result.Dead)
	return result, nil
}

// Fence implements presence.Store.
func (s *Store) Fence(ctx context.Context, shard int, node string) error {
	var c checks
	c.shard(shard)
	c.node(node)
	if c.err != nil {
		return c.err
	}
	if err := s.run(ctx, s.scripts.fence, []string{s.keys.meta(shard)}, node, millis(keepDead)).Err(); err != nil {
		return failed(shardName(shard), err)
	}
	return nil
}

// Members implements presence.Store. It returns about 200 users at a time, at most about 600, and
// may return a user twice. On the in-process Redis it returns all at once.
func (s *Store) Members(ctx context.Context, shard int, node string, cursor uint64) (users []string, next uint64, err error) {
	var c checks
	c.shard(shard)
	c.node(node)
	if c.err != nil {
		return nil, 0, c.err
	}
	users, next, err = s.client.SScan(ctx, s.keys.members(shard, node), cursor, "", scanCount).Result()
	if err != nil {
		return nil, 0, failed(shardName(shard), err)
	}
	return users, next, nil
}
