package presence

import (
	"sync/atomic"
	"time"
)

// slowResponse is the time of a step from which its response is slow.
const slowResponse = 500 * time.Millisecond

// clock estimates the store's time in each shard. The masters of a cluster have clocks of their
// own. It is safe for concurrent use.
type clock struct {
	start time.Time // with the monotonic reading that all estimates count from
	// shards holds the store's time minus the time since start, in nanoseconds since the epoch of Unix
	// time; 0 while nothing is known.
	shards [Shards]atomic.Int64
}

func newClock() *clock { return &clock{start: time.Now()} }

// saw records the store's time in a shard that the response to a step has just carried. The step
// was sent at the time sent. The store read its clock at any moment between, so the time in a slow
// response is only used if it contradicts the estimate.
func (c *clock) saw(shard int, now, sent time.Time) {
	if now.IsZero() {
		return
	}
	took := time.Since(sent)
	offset := now.UnixNano() - int64(time.Since(c.start))
	if known := c.shards[shard].Load(); took > slowResponse && known >= offset && known <= offset+int64(took) {
		return
	}
	c.shards[shard].Store(offset)
}

// now returns the estimated time of the store in a shard. It is the zero time if no response has
// carried one yet. The estimate is behind by up to the time that a response took that is not slow.
func (c *clock) now(shard int) time.Time {
	offset := c.shards[shard].Load()
	if offset == 0 {
		return time.Time{}
	}
	return time.Unix(0, offset+int64(time.Since(c.start)))
}

// notAfter returns the latest time, by the store's clock in a shard, for a step that its caller
// stops waiting for after timeout. While the time is not known, it is a time that has passed: the
// step is Late, and its response has the time.
func (c *clock) notAfter(shard int, timeout time.Duration) time.Time {
	now := c.now(shard)
	if now.IsZero() {
		return time.UnixMilli(1)
	}
	return now.Add(timeout + 200*time.Millisecond)
}
