package embedded

import (
	"slices"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/channel"
)

// changesKept is how long a change of a channel stays in memory for Changes to return it.
const changesKept = time.Minute

// changes holds recent changes of channels: members-only channels that were created, and members
// who were removed. Memory suffices because the streams that lose a channel by such a change end
// with this process. The zero value is ready to use.
type changes struct {
	mu     sync.Mutex
	recent []change // guarded by mu; ascending by number
	last   uint64   // guarded by mu; the number of the last change
}

type change struct {
	channel.Change
	number uint64
	at     time.Time
}

// add records changes. The caller must have made them durable before.
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

// forget drops changes older than changesKept. The caller holds mu.
func (c *changes) forget() {
	old := 0
	for old < len(c.recent) && time.Since(c.recent[old].at) > changesKept {
		old++
	}
	c.recent = slices.Delete(c.recent, 0, old)
}

// since returns the changes added after a stamp, and the stamp for the next call. A stamp is one
// more than a change's number, so that no stamp is zero. The zero stamp returns no changes.
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
