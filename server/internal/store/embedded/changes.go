package embedded

import (
	"slices"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/channel"
)

// changesKept is how long a change is kept.
const changesKept = time.Minute

// changes are the channels' recent changes, in memory: this process holds all the streams that could ask for them, and
// they end with it. The zero value is ready.
type changes struct {
	mu     sync.Mutex
	recent []change // guarded by mu; ascending
	last   uint64   // guarded by mu; the last change's number
}

type change struct {
	channel.Change
	number uint64
	at     time.Time
}

// add adds changes that are durable.
func (c *changes) add(changed []channel.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	for _, what := range changed {
		what.UserIDs = slices.Clone(what.UserIDs)
		c.last++
		c.recent = append(c.recent, change{Change: what, number: c.last, at: time.Now()})
	}
}

// forget drops what is too old; the lock is held.
func (c *changes) forget() {
	old := 0
	for old < len(c.recent) && time.Since(c.recent[old].at) > changesKept {
		old++
	}
	c.recent = slices.Delete(c.recent, 0, old)
}

// since gives what was added after a place, and the place now. Places are one more than numbers, so that none is zero.
func (c *changes) since(after channel.Stamp) (changed []channel.Change, next channel.Stamp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	if after != (channel.Stamp{}) {
		number := uint64(after.Hi)<<32 | uint64(after.Lo)
		for _, r := range c.recent {
			if r.number >= number {
				changed = append(changed, r.Change)
			}
		}
	}
	place := c.last + 1
	return changed, channel.Stamp{Hi: uint32(place >> 32), Lo: uint32(place)} //nolint:gosec // its two halves
}
