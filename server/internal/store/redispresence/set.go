package redispresence

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/presence"
)

// Set implements presence.Store. A call has 1 to MaxSet users, none of them twice. A sweep has no
// states.
func (s *Store) Set(ctx context.Context, calls []presence.SetCall) []presence.SetResult {
	results := make([]presence.SetResult, len(calls))
	var b batch
	for i := range calls {
		c := &calls[i]
		if err := checkSet(c); err != nil {
			results[i].Err = err
			continue
		}
		keys, args := s.setArgs(c)
		b.add(i, keys, args)
	}
	b.run(ctx, s, s.scripts.set, func(i int, cmd *redis.Cmd) { results[i] = setResult(&calls[i], cmd) })
	return results
}

func checkSet(call *presence.SetCall) error {
	var c checks
	c.shard(call.Shard)
	c.node(call.Node)
	c.epoch(call.Epoch)
	c.count("number of users", len(call.Users), 1, MaxSet)
	if c.err != nil {
		return c.err
	}
	seen := make(map[string]struct{}, len(call.Users))
	for i := range call.Users {
		u := &call.Users[i]
		c.user(u.UserID)
		c.thatf(u.Mode <= presence.Force, "mode %d is unknown", u.Mode)
		c.thatf(u.Cause >= presence.Connected && u.Cause <= presence.Repaired, "cause %d is unknown", u.Cause)
		c.thatf(!call.Sweep || !u.State.Online(), "a sweep must not set user %q online", u.UserID)
		seen[u.UserID] = struct{}{}
	}
	c.thatf(len(seen) == len(call.Users), "a user must not be repeated in a call")
	return c.err
}

func (s *Store) setArgs(c *presence.SetCall) (keys []string, args []any) {
	keys = append(make([]string, 0, 4+len(c.Users)),
		s.keys.meta(c.Shard), s.keys.online(c.Shard), s.keys.log(c.Shard), s.keys.members(c.Shard, c.Node))
	sweep := "0"
	if c.Sweep {
		sweep = "1"
	}
	args = append(make([]any, 0, 6+4*len(c.Users)), c.Node, deadline(c.NotAfter), s.ttl, s.length, c.Epoch, sweep)
	for i := range c.Users {
		u := &c.Users[i]
		keys = append(keys, s.keys.user(c.Shard, u.UserID))
		args = append(args, u.UserID, formatState(u.State), strconv.Itoa(int(u.Mode)), strconv.Itoa(int(u.Cause)))
	}
	return keys, args
}

func setResult(c *presence.SetCall, cmd *redis.Cmd) presence.SetResult {
	r := read(shardName(c.Shard), cmd)
	var result presence.SetResult
	result.Outcome, result.Now = r.outcome()
	if result.Outcome == presence.Done {
		result.Seq, result.LastAt = r.int(), r.time()
		result.Changes = make([]presence.SetChange, len(c.Users))
		for i := range result.Changes {
			result.Changes[i] = presence.SetChange{Seq: r.int(), State: r.state()}
		}
	}
	if r.err != nil {
		return presence.SetResult{Err: r.err}
	}
	return result
}
