package message

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// errCacheBehind means that the cache goes back far enough for the requested range, but does not
// have the last entries of the log yet.
var errCacheBehind = fmt.Errorf("cache is behind: %w", errNotCached)

const (
	// lagPause is how long replays read the store at once after one of them waited for a cache that
	// stayed behind. It applies to the channels of the same shard only: the cache may be up to date
	// for the others.
	lagPause = 5 * time.Second
	// lagStripes is the number of stripes that the channels are divided into for lagPause.
	lagStripes = 16
)

// eventsOrWait is cachedEvents, except that it waits up to CacheLagTimeout while the error is
// errCacheBehind. When ten thousand subscribers return to busy channels, most of them ask between
// an entry's append and its caching; without the wait all of them would read the store.
func (r *Reader) eventsOrWait(ctx context.Context, channelID string, rg Range, reach int64) (CachedPage, error) {
	p, err := r.cachedEvents(ctx, channelID, rg, reach)
	noWaitUntil := &r.noWaitUntil[share(channelID, lagStripes)]
	if !errors.Is(err, errCacheBehind) || time.Now().UnixNano() < noWaitUntil.Load() {
		return p, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CacheLagTimeout)
	defer cancel()
	p, err = backoff.Retry(ctx, func() (CachedPage, error) {
		p, err := r.cachedEvents(ctx, channelID, rg, reach)
		if err != nil && !errors.Is(err, errCacheBehind) {
			return p, backoff.Permanent(err)
		}
		return p, err
	}, backoff.WithBackOff(&backoff.ExponentialBackOff{
		InitialInterval: 5 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 1.5, MaxInterval: 50 * time.Millisecond,
	}))
	if err != nil && ctx.Err() != nil {
		// The cache stayed behind; NATS may be down. Until lagPause has passed, replays of this shard
		// read the store at once.
		noWaitUntil.Store(time.Now().Add(lagPause).UnixNano())
		err = errNotCached
	}
	return p, err
}
