package feed

import (
	"sync"
	"time"
)

// oldest holds, by shard, when the oldest entry was appended that was read but is not published
// yet. It is safe for concurrent use.
type oldest struct {
	mu     sync.Mutex
	shards map[int]time.Time
}

// set records the time of a shard's oldest unpublished entry; the zero time means that it has
// none.
func (o *oldest) set(shard int, appended time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if appended.IsZero() {
		delete(o.shards, shard)
		return
	}
	if o.shards == nil {
		o.shards = make(map[int]time.Time)
	}
	o.shards[shard] = appended
}

// age returns the age of the oldest of all; 0 if there is none.
func (o *oldest) age(now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	var age time.Duration
	for _, appended := range o.shards {
		age = max(age, now.Sub(appended))
	}
	return age
}
