package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// CacheConfig configures a Cache. The defaults in brackets are those of NewSessionCache.
type CacheConfig struct {
	// Prefix is prepended to every Redis key. It may be empty.
	Prefix string
	// Keep is how many of each channel's newest messages are kept. 0 means 150
	// [200].
	Keep int
	// MaxBytes bounds the size of each channel's messages, as JSON. The newest one is always kept. 0
	// means 1 MiB [4 MiB].
	MaxBytes int
	// TTL is how long a channel's messages stay cached after its last message, in whole seconds. 0
	// means 7 days [24 hours].
	TTL time.Duration
	// Meter creates the counter of cached sets that Page ignored because they were damaged. Nil
	// counts nothing.
	Meter metric.Meter
	// Logger receives the logs. Nil means slog.Default.
	Logger *slog.Logger
}

// Cache keeps each channel's newest messages, without a gap, in a set in Redis: a sorted set, or a
// list for sessions. A set also records the last entry of the log that its messages include. Safe
// for concurrent use. Every write is safe to repeat: an entry at or before that one changes
// nothing, and only a set that reaches further replaces another.
type Cache struct {
	client redis.UniversalClient
	layout layout
	keep   int
	max    int
	ttl    int64
	log    *slog.Logger
	broken metric.Int64Counter
	// decoded maps values of Redis to their decoded entries. The values of a busy channel are read
	// again and again, and decoding a page takes longer than the rest of a call. Decoded entries
	// are never modified.
	decoded *otter.Cache[string, message.Cached]
}

// layout is how a set is stored: its key, and the scripts on it. The scripts of all layouts take
// the same arguments and return the same results.
type layout struct {
	key                   func(channelID string) string
	append, page, replace *redisscript.Script
}

// decodedBytes bounds the total size of the values in Cache.decoded. The decoded entries take about
// as much again.
const decodedBytes = 8 << 20

// NewCache creates a cache of channels, in sorted sets, over a client, which should come from
// NewClient. The caller closes the client.
func NewCache(client redis.UniversalClient, config CacheConfig) (*Cache, error) {
	return newCache(client, layout{
		key: keys{config.Prefix}.messages, append: cacheAppend, page: cachePage, replace: cacheReplace,
	}, CacheConfig{
		Keep: cmp.Or(config.Keep, 150), MaxBytes: cmp.Or(config.MaxBytes, 1<<20), TTL: cmp.Or(config.TTL, 7*24*time.Hour),
		Meter: config.Meter, Logger: config.Logger,
	})
}

// NewSessionCache is NewCache for the channels of sessions, whose messages are in lists.
func NewSessionCache(client redis.UniversalClient, config CacheConfig) (*Cache, error) {
	return newCache(client, layout{
		key: keys{config.Prefix}.session, append: listAppend, page: listPage, replace: listReplace,
	}, CacheConfig{
		Keep: cmp.Or(config.Keep, 200), MaxBytes: cmp.Or(config.MaxBytes, 4<<20), TTL: cmp.Or(config.TTL, 24*time.Hour),
		Meter: config.Meter, Logger: config.Logger,
	})
}

func newCache(client redis.UniversalClient, layout layout, config CacheConfig) (*Cache, error) {
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
		client: client, decoded: decoded, layout: layout, keep: config.Keep, max: config.MaxBytes,
		ttl: int64(config.TTL / time.Second), log: cmp.Or(config.Logger, slog.Default()), broken: broken,
	}, nil
}

// Limits implements feed.CacheWriter.
func (c *Cache) Limits(string) (messages, bytes int) { return c.keep, c.max }

// Append implements feed.CacheWriter.
func (c *Cache) Append(ctx context.Context, runs []feed.ChannelChanges) ([]int, error) {
	calls := make([]redisscript.Call, len(runs))
	for i := range runs {
		run := &runs[i]
		args := append(make([]any, 0, 4+5*len(run.Changes)), message.CachedHead(run.Epoch), c.keep, c.max, c.ttl)
		for j := range run.Changes {
			change := &run.Changes[j]
			// encoding/json would validate and copy it again
			value, err := message.Cached{Epoch: run.Epoch, Message: change.Message}.MarshalJSON()
			if err != nil {
				return nil, fmt.Errorf("encode entry %d of %s: %w", change.Seq, run.ChannelID, err)
			}
			sent := 0
			if change.Sent {
				sent = 1
			}
			args = append(args, change.Seq, change.Count, sent, change.Message.Seq, value)
		}
		calls[i] = redisscript.Call{Keys: []string{c.layout.key(run.ChannelID)}, Args: args}
	}
	results, err := integers(c.layout.append.Run(ctx, c.client, calls))
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

// replaceStale is the result of the scripts cache_replace and list_replace for entries older than
// loadLife, or with a time in the future. 0 and 1 both mean that the cached set is correct.
const replaceStale = -1

// Now implements feed.CacheWriter. It returns the time of the server that holds the channel's set.
func (c *Cache) Now(ctx context.Context, channelID string) (time.Time, error) {
	results, err := integers(cacheNow.Run(ctx, c.client, []redisscript.Call{{Keys: []string{c.layout.key(channelID)}}}))
	if err != nil {
		return time.Time{}, fmt.Errorf("the cache's time: %w", err)
	}
	return time.UnixMilli(results[0]), nil
}

// Replace implements feed.CacheWriter.
func (c *Cache) Replace(ctx context.Context, channelID string, began time.Time, log message.CachedLog) error {
	if len(log.Messages) == 0 {
		return errors.New("replace the cache: there are no messages")
	}
	messages := log.Messages[max(0, len(log.Messages)-c.keep):]
	args := append(make([]any, 0, 9+2*len(messages)), message.CachedHead(log.Epoch), c.keep, c.max, c.ttl,
		began.UnixMilli(), loadLife.Milliseconds(), log.Newest, log.Count, log.Unknown)
	for i := range messages {
		value, err := message.Cached{Epoch: log.Epoch, Message: messages[i]}.MarshalJSON()
		if err != nil {
			return fmt.Errorf("encode message %d of %s: %w", messages[i].Seq, channelID, err)
		}
		args = append(args, messages[i].Seq, value)
	}
	calls := []redisscript.Call{{Keys: []string{c.layout.key(channelID)}, Args: args}}
	results, err := integers(c.layout.replace.Run(ctx, c.client, calls))
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
	if err := c.client.Del(ctx, c.layout.key(channelID)).Err(); err != nil {
		return fmt.Errorf("drop from the cache: %w", err)
	}
	return nil
}
