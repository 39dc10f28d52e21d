package channel

import (
	"sync"
	"time"
)

// throttle lets each key through at most once per interval. It is safe for concurrent use.
type throttle struct {
	every time.Duration

	mu sync.Mutex
	// taken holds the time at which each key was last let through.
	taken map[membership]time.Time
	// swept is when expired keys were last dropped.
	swept time.Time
}

// take reports whether the key is let through.
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
	makeRoom(t.taken)
	t.taken[k] = now
	return true
}
