package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/parleyhq/parley/server/internal/feed"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/store/redisscript"
)

var (
	_ message.Cache    = (*Cache)(nil)
	_ feed.CacheWriter = (*Cache)(nil)
)

// CacheConfig configures a Cache.
type CacheConfig struct {
	// Prefix is prepended to every Redis key. It may be empty.
	Prefix string
	// Keep is how many of each channel's newest entries are kept. 0 means 150.
	Keep int
	// TTL is how long a channel's entries stay cached after its last message, in whole seconds. 0
	// means 7 days.
	TTL time.Duration
	// Meter creates the counter of cached sets that Page ignored because they were damaged. Nil
	// counts nothing.
	Meter metric.Meter
	// Logger receives the logs. Nil means slog.Default.
	Logger *slog.Logger
}

// Cache keeps each channel's newest entries in a sorted set in Redis, which is one contiguous part
// of the channel's log. Safe for concurrent use. Every write is safe to repeat: an entry at or
// before the end of the set changes nothing, and only a set that reaches further replaces another.
type Cache struct {
	client redis.UniversalClient
	keys   keys
	keep   int
	ttl    int64
	log    *slog.Logger
	broken metric.Int64Counter
	// decoded maps values of Redis to their decoded entries. The values of a busy channel are read
	// again and again, and decoding a page takes longer than the rest of a call. Decoded entries
	// are never modified.
	decoded *otter.Cache[string, message.Cached]
}

// decodedBytes bounds the total size of the values in Cache.decoded. The decoded entries take about
// as much again.
const decodedBytes = 8 << 20

// NewCache creates a cache over a client, which should come from NewClient. The caller closes the
// client.
func NewCache(client redis.UniversalClient, config CacheConfig) (*Cache, error) {
	meter := config.Meter
	if meter == nil {
		meter = noop.Meter{}
	}
	broken, err := meter.Int64Counter("parley.cache.broken_sets",
		metric.WithDescription("Cached sets that were ignored because they are no dense piece of a log."))
	if err != nil {
		return nil, fmt.Errorf("create cache metrics: %w", err)
	}
	decoded, err := otter.New(&otter.Options[string, message.Cached]{
		MaximumWeight: decodedBytes,
		Weigher:       func(value string, _ message.Cached) uint32 { return uint32(len(value)) }, //nolint:gosec // far below
		// Maintenance is short, and there is no point at which to stop a background goroutine.
		Executor: func(fn func()) { fn() },
	})
	if err != nil {
		return nil, fmt.Errorf("create cache of decoded entries: %w", err)
	}
	return &Cache{
		client: client, decoded: decoded, keys: keys{config.Prefix}, keep: cmp.Or(config.Keep, 150),
		ttl: int64(cmp.Or(config.TTL, 7*24*time.Hour) / time.Second), log: cmp.Or(config.Logger, slog.Default()), broken: broken,
	}, nil
}

// Keep returns how many entries of a channel are kept.
func (c *Cache) Keep() int { return c.keep }

// Append implements feed.CacheWriter.
func (c *Cache) Append(ctx context.Context, runs []feed.ChannelChanges) ([]int, error) {
	calls := make([]redisscript.Call, len(runs))
	for i := range runs {
		run := &runs[i]
		args := append(make([]any, 0, 3+5*len(run.Changes)), headOf(run.Epoch), c.keep, c.ttl)
		for j := range run.Changes {
			change := &run.Changes[j]
			value, err := change.Entry.MarshalJSON() // encoding/json would validate and copy it again
			if err != nil {
				return nil, fmt.Errorf("encode entry %d of %s: %w", change.Entry.Seq, run.ChannelID, err)
			}
			if change.Target == nil {
				args = append(args, change.Entry.Seq, 1, value, 0, "")
				continue
			}
			target, err := change.Target.MarshalJSON()
			if err != nil {
				return nil, fmt.Errorf("encode entry %d of %s: %w", change.Target.Seq, run.ChannelID, err)
			}
			args = append(args, change.Entry.Seq, 0, value, change.Target.Seq, target)
		}
		calls[i] = redisscript.Call{Keys: []string{c.keys.messages(run.ChannelID)}, Args: args}
	}
	results, err := integers(cacheAppend.Run(ctx, c.client, calls))
	if err != nil {
		return nil, fmt.Errorf("append to the cache: %w", err)
	}
	done := make([]int, len(results))
	for i, n := range results {
		done[i] = int(n)
	}
	return done, nil
}

// loadLife is how long ago entries may have been read from the store if they are to replace a
// channel's cached set.
const loadLife = 2 * time.Second

// replaceStale is the result of the script cache_replace for entries older than loadLife, or with a
// time in the future. 0 and 1 both mean that the cached set is correct.
const replaceStale = -1

// Now implements feed.CacheWriter. It returns the time of the server that holds the channel's set.
func (c *Cache) Now(ctx context.Context, channelID string) (time.Time, error) {
	results, err := integers(cacheNow.Run(ctx, c.client, []redisscript.Call{{Keys: []string{c.keys.messages(channelID)}}}))
	if err != nil {
		return time.Time{}, fmt.Errorf("the cache's time: %w", err)
	}
	return time.UnixMilli(results[0]), nil
}

// Replace implements feed.CacheWriter.
func (c *Cache) Replace(ctx context.Context, channelID string, began time.Time, entries []message.Cached) error {
	if len(entries) == 0 {
		return errors.New("replace the cache: there are no entries")
	}
	last := entries[len(entries)-1]
	entries = entries[max(0, len(entries)-c.keep):]
	args := append(make([]any, 0, 5+2*len(entries)),
		headOf(last.Epoch), c.ttl, began.UnixMilli(), loadLife.Milliseconds(), last.Seq)
	for i := range entries {
		value, err := entries[i].MarshalJSON()
		if err != nil {
			return fmt.Errorf("encode entry %d of %s: %w", entries[i].Seq, channelID, err)
		}
		args = append(args, entries[i].Seq, value)
	}
	calls := []redisscript.Call{{Keys: []string{c.keys.messages(channelID)}, Args: args}}
	results, err := integers(cacheReplace.Run(ctx, c.client, calls))
	if err != nil {
		return fmt.Errorf("replace the cache: %w", err)
	}
	if results[0] == replaceStale {
		return fmt.Errorf("replace the cache of %s: %w", channelID, feed.ErrStaleLoad)
	}
	return nil
}

// Drop implements feed.CacheWriter. An absent set is always correct.
func (c *Cache) Drop(ctx context.Context, channelID string) error {
	if err := c.client.Del(ctx, c.keys.messages(channelID)).Err(); err != nil {
		return fmt.Errorf("drop from the cache: %w", err)
	}
	return nil
}

// headOf returns the text with which all cached values of an epoch begin, up to their seq.
func headOf(epoch string) string { return strings.TrimSuffix(message.CachedHead(epoch, 0), "0,") }

// Page implements message.Cache. A set that is not a contiguous part of one log is counted, logged,
// and treated as absent.
func (c *Cache) Page(ctx context.Context, channelID string, r message.Range) (message.CachedPage, error) {
	key := c.keys.messages(channelID)
	first, last := "("+strconv.FormatInt(r.After, 10), "+inf"
	if r.Before > 0 {
		last = "(" + strconv.FormatInt(r.Before, 10)
	}
	if r.Desc {
		first, last = last, first
	}
	var size *redis.IntCmd
	var oldest, newest *redis.ZSliceCmd
	var entries *redis.StringSliceCmd
	_, err := c.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		size = p.ZCard(ctx, key)
		oldest = p.ZRangeWithScores(ctx, key, 0, 0)
		newest = p.ZRangeWithScores(ctx, key, -1, -1)
		entries = p.ZRangeArgs(ctx, redis.ZRangeArgs{
			Key: key, Start: first, Stop: last, ByScore: true, Rev: r.Desc, Count: int64(r.Limit),
		})
		return nil
	})
	if err != nil {
		return message.CachedPage{}, fmt.Errorf("read the cache: %w", err)
	}
	if size.Val() == 0 {
		return message.CachedPage{}, nil
	}
	page, err := c.decodePage(channelID, r, size.Val(), oldest.Val()[0], newest.Val()[0], entries.Val())
	if err != nil {
		c.broken.Add(ctx, 1)
		c.log.WarnContext(ctx, "cached set ignored", "channel_id", channelID, "error", err)
		return message.CachedPage{}, nil
	}
	return page, nil
}

// decodePage decodes a page and verifies that it is a contiguous part of one log.
func (c *Cache) decodePage(
	channelID string, r message.Range, size int64, oldest, newest redis.Z, members []string,
) (message.CachedPage, error) {
	value, ok := newest.Member.(string)
	if !ok {
		return message.CachedPage{}, fmt.Errorf("the value at %.0f is not a string", newest.Score)
	}
	last, err := c.decode(channelID, value)
	if err != nil {
		return message.CachedPage{}, err
	}
	if last.Seq != int64(newest.Score) {
		return message.CachedPage{}, fmt.Errorf("entry %d has the score %.0f", last.Seq, newest.Score)
	}
	page := message.CachedPage{
		Epoch: last.Epoch, Oldest: int64(oldest.Score), Newest: last.Seq, Count: last.Count,
		Entries: make([]message.Cached, len(members)),
	}
	if page.Newest-page.Oldest+1 != size {
		return message.CachedPage{}, fmt.Errorf("%d entries from %d to %d", size, page.Oldest, page.Newest)
	}
	low, high := max(r.After+1, page.Oldest), page.Newest
	if r.Before > 0 {
		high = min(high, r.Before-1)
	}
	if want := max(0, min(high-low+1, int64(r.Limit))); int64(len(members)) != want {
		return message.CachedPage{}, fmt.Errorf("%d entries of %d", len(members), want)
	}
	for i, member := range members {
		entry, err := c.decode(channelID, member)
		if err != nil {
			return message.CachedPage{}, err
		}
		want := low + int64(i)
		if r.Desc {
			want = high - int64(i)
		}
		if entry.Seq != want || entry.Epoch != page.Epoch {
			return message.CachedPage{}, fmt.Errorf("entry %d of epoch %s, want entry %d", entry.Seq, entry.Epoch, want)
		}
		page.Entries[i] = entry
	}
	return page, nil
}

// decode returns the entry that a value encodes. The caller must check its seq and epoch.
func (c *Cache) decode(channelID, value string) (message.Cached, error) {
	entry, ok := c.decoded.GetIfPresent(value)
	if !ok {
		if err := entry.UnmarshalJSON([]byte(value)); err != nil {
			return entry, fmt.Errorf("decode value: %w", err)
		}
		c.decoded.Set(value, entry)
	}
	entry.Message.ChannelID = channelID
	return entry, nil
}
