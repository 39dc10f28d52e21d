package feed

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

const (
	// What a stream of several servers acknowledges may be in nothing but their memory for a moment: if all of them are
	// killed at once, the newest events are gone. recentFor is far longer than such a moment, recentMost bounds what is kept.
	recentFor  = 10 * time.Second
	recentMost = 2048
)

// recent are the entries that were published last, of one bucket. Safe for concurrent use.
type recent struct {
	// again asks for them to be published again.
	again chan struct{}

	mu      sync.Mutex
	entries []publishedEntry // guarded by mu; oldest first
}

type publishedEntry struct {
	message.Entry
	at time.Time
}

func newRecent() *recent { return &recent{again: make(chan struct{}, 1)} }

// add remembers entries that were just published.
func (r *recent) add(entries []message.Entry) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range entries {
		r.entries = append(r.entries, publishedEntry{entries[i], now})
	}
	old := max(0, len(r.entries)-recentMost)
	for old < len(r.entries) && now.Sub(r.entries[old].at) > recentFor {
		old++
	}
	r.entries = slices.Delete(r.entries, 0, old)
}

// all are those that are remembered.
func (r *recent) all() []message.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries := make([]message.Entry, len(r.entries))
	for i := range r.entries {
		entries[i] = r.entries[i].Entry
	}
	return entries
}

// Republish has what was published in the last 10 s published once more, by the buckets' owners. It is to be called when
// NATS is back: its servers may have lost what they had acknowledged, and the cache, the channels' rows and everybody
// else know events by their seq. It returns at once, and may be called by any goroutine.
func (f *Feeder) Republish() {
	for _, r := range f.recent {
		select {
		case r.again <- struct{}{}:
		default:
		}
	}
}

// republishing publishes a bucket's recent entries whenever Republish asks, until ctx ends.
func (f *Feeder) republishing(ctx context.Context, logger *slog.Logger, r *recent) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.again:
		}
		for piece := range slices.Chunk(r.all(), batchSize) {
			if _, err := f.send(ctx, logger, newBatch(piece)); err != nil {
				return // ctx has ended
			}
		}
	}
}
