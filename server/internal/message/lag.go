package message

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// errCacheBehind says that the cache holds the log's end but for its last entries, which are on their way to it.
var errCacheBehind = fmt.Errorf("%w yet", errNotCached)

const (
	// lagPause is for how long nobody waits for the cache of a channel, or of others in its share of the channels, once it
	// stayed behind. The cache may be behind with one channel and level with the next.
	lagPause = 5 * time.Second
	// lagPauses is into how many shares the channels are divided for that.
	lagPauses = 16
)

// readLevelCache reads entries as readCache does, and waits a moment for a cache that is only behind: when ten thousand
// subscribers come back to channels that are written to, most of them ask between an entry's append and its caching, and
// all of them would read the store.
func (r *Reader) readLevelCache(ctx context.Context, channelID string, rg Range, reach int64) ([]Entry, error) {
	entries, err := r.readCache(ctx, channelID, rg, reach)
	noWaitUntil := &r.noWaitUntil[Bucket(channelID, lagPauses)]
	if !errors.Is(err, errCacheBehind) || time.Now().UnixNano() < noWaitUntil.Load() {
		return entries, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CacheLag)
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
		// Nothing arrives there: NATS may be away. The store serves all who ask meanwhile at once.
		noWaitUntil.Store(time.Now().Add(lagPause).UnixNano())
		err = errNotCached
	}
	return entries, err
}
