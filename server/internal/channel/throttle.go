package channel

import (
	"sync"
	"time"
)

// throttle admits each key at most once per interval; the field every is the interval. It is safe
// for concurrent use.
type throttle struct {
	every time.Duration

	mu sync.Mutex
	// taken holds the time at which each key was last admitted. Keys that may be admitted again are
	// dropped about once per interval.
	taken map[membership]time.Time
	// swept is when such keys were last dropped from taken.
	swept time.Time
}

// take reports whether the key is admitted at the time now, and records it if so.
func (t *throttle) take(k membership, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, ok := t.taken[k]; ok && now.Sub(last) < t.every {
		return false
	}
	if t.taken == nil {
		t.taken = make(map[membership]time.Time)
	}
	if now.Sub(t.swept) >= t.every {
		for k, last := range t.taken {
			if now.Sub(last) >= t.every {
				delete(t.taken, k)
			}
		}
		t.swept = now
	}
	putBounded(t.taken, k, now)
	return true
}
