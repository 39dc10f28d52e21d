package feed

import (
	"sync"
	"time"
)

// oldest holds, by bucket, when the oldest entry was appended that was read but is not published
// yet. It is safe for concurrent use.
type oldest struct {
	mu      sync.Mutex
	buckets map[int]time.Time
}

// set records the time of a bucket's oldest unpublished entry; the zero time means that it has
// none.
func (o *oldest) set(bucket int, appended time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if appended.IsZero() {
		delete(o.buckets, bucket)
		return
	}
	if o.buckets == nil {
		o.buckets = make(map[int]time.Time)
	}
	o.buckets[bucket] = appended
}

// age returns the age of the oldest of all; 0 if there is none.
func (o *oldest) age(now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	var age time.Duration
	for _, appended := range o.buckets {
		age = max(age, now.Sub(appended))
	}
	return age
}
