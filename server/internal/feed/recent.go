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
	// A stream with several servers may hold acknowledged events only in their memory for a moment.
	// If all of them are killed at once, the newest events are lost. recentFor is much longer than
	// that moment; maxRecent bounds the entries kept.
	recentFor = 10 * time.Second
	maxRecent = 2048
)

// recent keeps the last published entries of one shard, to publish them again. It is safe for
// concurrent use.
type recent struct {
	// republish receives a value when the entries must be published again.
	republish chan struct{}

	mu      sync.Mutex
	entries []publishedEntry // guarded by mu; oldest first
}

type publishedEntry struct {
	message.Entry
	at time.Time
}

func newRecent() *recent { return &recent{republish: make(chan struct{}, 1)} }

// add adds entries that were just published. It drops entries older than recentFor, and the oldest
// beyond maxRecent.
func (r *recent) add(entries []message.Entry) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range entries {
		r.entries = append(r.entries, publishedEntry{entries[i], now})
	}
	old := max(0, len(r.entries)-maxRecent)
	for old < len(r.entries) && now.Sub(r.entries[old].at) > recentFor {
		old++
	}
	r.entries = slices.Delete(r.entries, 0, old)
}

// all returns a copy of the kept entries, oldest first.
func (r *recent) all() []message.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries := make([]message.Entry, len(r.entries))
	for i := range r.entries {
		entries[i] = r.entries[i].Entry
	}
	return entries
}

// Republish makes this Feeder publish its last events once more: for each shard that it owns, at
// least those of the last 10 s, but at most 2048. Call it when the connection to NATS is restored:
// the servers may have lost acknowledged events. Repeats are harmless, because all consumers
// identify events by seq. It returns at once and may be called concurrently.
func (f *Feeder) Republish() {
	for _, r := range f.recent {
		select {
		case r.republish <- struct{}{}:
		default:
		}
	}
}

// republishLoop publishes a shard's recent entries whenever Republish requests it, until ctx ends.
func (f *Feeder) republishLoop(ctx context.Context, logger *slog.Logger, r *recent) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.republish:
		}
		for piece := range slices.Chunk(r.all(), batchSize) {
			if _, err := f.send(ctx, logger, newBatch(piece)); err != nil {
				return // ctx has ended
			}
		}
	}
}
