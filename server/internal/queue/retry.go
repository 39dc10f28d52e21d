package queue

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Backoff gives how long to wait before the next delivery, when delivery number attempt (from 1) has failed: a random time
// up to min(MaxBackoff, MinBackoff · 2^(attempt-1)), in whole milliseconds and at least one. Full jitter spreads what failed
// together better than a bound that is only blurred.
func (p RetryPolicy) Backoff(attempt int) time.Duration {
	bound := max(p.MinBackoff, time.Millisecond)
	limit := max(p.MaxBackoff, bound)
	for range attempt - 1 {
		if bound > limit/2 {
			bound = limit
			break
		}
		bound *= 2
	}
	ms := bound.Milliseconds()
	return time.Duration(1+rand.Int64N(ms)) * time.Millisecond
}

// Final reports whether a message is a dead letter when delivery number attempt has failed with the code; empty is none.
func (p RetryPolicy) Final(attempt int, code string) bool {
	return attempt >= p.MaxAttempts || code != "" && slices.Contains(p.NonRetryable, code)
}
