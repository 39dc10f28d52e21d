package redispresence

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/presence"
)

// Get implements presence.Store. A call has up to MaxGet users.
func (s *Store) Get(ctx context.Context, calls []presence.GetCall) []presence.GetResult {
	results := make([]presence.GetResult, len(calls))
	var b batch
	for i := range calls {
		call := &calls[i]
		var c checks
		c.shard(call.Shard)
		c.count("number of users", len(call.Users), 0, MaxGet)
		keys := append(make([]string, 0, 1+len(call.Users)), s.keys.meta(call.Shard))
		for _, user := range call.Users {
			c.user(user)
			keys = append(keys, s.keys.user(call.Shard, user))
		}
		if c.err != nil {
			results[i].Err = c.err
			continue
		}
		b.add(i, keys, nil)
	}
	b.run(ctx, s, s.scripts.get, func(i int, cmd *redis.Cmd) {
		r := read(shardName(calls[i].Shard), cmd)
		result := presence.GetResult{States: make([]presence.State, len(calls[i].Users))}
		result.Now, result.Head = r.head()
		for j := range result.States {
			result.States[j] = union(r.texts())
		}
		if r.err != nil {
			result = presence.GetResult{Err: r.err}
		}
		results[i] = result
	})
	return results
}

// Heads implements presence.Store.
func (s *Store) Heads(ctx context.Context, shards []int) []presence.HeadResult {
	results := make([]presence.HeadResult, len(shards))
	var b batch
	for i, shard := range shards {
		var c checks
		if c.shard(shard); c.err != nil {
			results[i].Err = c.err
			continue
		}
		b.add(i, []string{s.keys.meta(shard)}, nil)
	}
	b.run(ctx, s, s.scripts.heads, func(i int, cmd *redis.Cmd) {
		r := read(shardName(shards[i]), cmd)
		results[i].Now, results[i].Head = r.head()
		if r.err != nil {
			results[i] = presence.HeadResult{Err: r.err}
		}
	})
	return results
}

// Since implements presence.Store. A call's limit is at least 1.
func (s *Store) Since(ctx context.Context, calls []presence.SinceCall) []presence.SinceResult {
	results := make([]presence.SinceResult, len(calls))
	var b batch
	for i := range calls {
		call := &calls[i]
		var c checks
		c.shard(call.Shard)
		c.epoch(call.Epoch)
		c.thatf(call.Seq >= 0, "position %d must not be negative", call.Seq)
		c.thatf(call.Limit >= 1, "limit %d must be at least 1", call.Limit)
		if c.err != nil {
			results[i].Err = c.err
			continue
		}
		at := "0"
		if !call.At.IsZero() {
			at = strconv.FormatInt(call.At.UnixMilli(), 10)
		}
		b.add(i, []string{s.keys.meta(call.Shard), s.keys.log(call.Shard)},
			[]any{call.Epoch, strconv.FormatInt(call.Seq, 10), strconv.Itoa(call.Limit), at})
	}
	b.run(ctx, s, s.scripts.since, func(i int, cmd *redis.Cmd) { results[i] = sinceResult(&calls[i], cmd) })
	return results
}

func sinceResult(c *presence.SinceCall, cmd *redis.Cmd) presence.SinceResult {
	r := read(shardName(c.Shard), cmd)
	var result presence.SinceResult
	result.Now, result.Head = r.head()
	if r.err == nil && len(r.rest) == 1 && (r.rest[0] == "RESET" || r.rest[0] == "OTHER") {
		result.Reset, result.Other = r.rest[0] == "RESET", r.rest[0] == "OTHER"
		return result
	}
	for i, line := range r.texts() {
		e, ok := parseEntry(line)
		if !ok || e.Seq != c.Seq+int64(i)+1 {
			r.err = unreadable(r.place, "log entry at position "+strconv.FormatInt(c.Seq+int64(i)+1, 10), line)
			break
		}
		result.Entries = append(result.Entries, e)
	}
	if r.err != nil {
		return presence.SinceResult{Err: r.err}
	}
	return result
}

// Page implements presence.Store. limit is from 1 to MaxPage. A user whose parts have expired is
// returned until a step removes them.
func (s *Store) Page(ctx context.Context, shard int, after string, limit int) (presence.PageResult, error) {
	var c checks
	c.shard(shard)
	c.count("limit", limit, 1, MaxPage)
	least := "-"
	if after != "" {
		c.user(after)
		least = "(" + after
	}
	if c.err != nil {
		return presence.PageResult{}, c.err
	}
	keys := []string{s.keys.meta(shard), s.keys.online(shard)}
	r := read(shardName(shard), s.run(ctx, s.scripts.page, keys, least, strconv.Itoa(limit)))
	var result presence.PageResult
	result.Now, result.Head = r.head()
	result.Users = r.texts()
	if r.err != nil {
		return presence.PageResult{}, r.err
	}
	return result, nil
}
