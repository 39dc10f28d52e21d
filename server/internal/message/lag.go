package message

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// errCacheBehind means that the cache holds the end of the log except for its last entries, which
// have not reached the cache yet.
var errCacheBehind = fmt.Errorf("cache is behind: %w", errNotCached)

const (
	// lagPause is how long reads do not wait for the cache after it stayed behind. It applies to
	// all channels in the same shard: the cache may be behind for one channel and up to date for
	// the next.
	lagPause = 5 * time.Second
	// lagShards is the number of shards that the channels are divided into for lagPause.
	lagShards = 16
)

// readCacheOrWait is readCache, except that it waits up to CacheLagTimeout for a cache that is only
// behind. When ten thousand subscribers return to busy channels, most of them ask between an
// entry's append and its caching; without the wait all of them would read the store.
func (r *Reader) readCacheOrWait(ctx context.Context, channelID string, rg Range, reach int64) ([]Entry, error) {
	entries, err := r.readCache(ctx, channelID, rg, reach)
	noWaitUntil := &r.noWaitUntil[Bucket(channelID, lagShards)]
	if !errors.Is(err, errCacheBehind) || time.Now().UnixNano() < noWaitUntil.Load() {
		return entries, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CacheLagTimeout)
	defer cancel()
	entries, err = backoff.Retry(ctx, func() ([]Entry, error) {
		entries, err := r.readCache(ctx, channelID, rg, reach)
		if err != nil && !errors.Is(err, errCacheBehind) {
			return nil, backoff.Permanent(err)
		}
		return entries, err
	}, backoff.WithBackOff(&backoff.ExponentialBackOff{
		InitialInterval: 5 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 1.5, MaxInterval: 50 * time.Millisecond,
	}))
	if err != nil && ctx.Err() != nil {
		// Nothing reaches the cache; NATS may be down. Until lagPause has passed, reads go to the
		// store at once.
		noWaitUntil.Store(time.Now().Add(lagPause).UnixNano())
		err = errNotCached
	}
	return entries, err
}
