package parley

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is how long to wait between attempts: a random time between 0 and a bound, which starts
// at Base and doubles with each attempt up to Max. This is full jitter: the bound is capped first
// and then the time is drawn, so that many clients that failed together do not come back together.
type Backoff struct {
	// Base bounds the first wait. Default 200 ms.
	Base time.Duration
	// Max bounds every wait. Default 10 s.
	Max time.Duration
}

func (b Backoff) withDefaults() Backoff {
	if b.Base <= 0 {
		b.Base = 200 * time.Millisecond
	}
	if b.Max <= 0 {
		b.Max = 10 * time.Second
	}
	return b
}

// bound is the longest wait after the given number of failures, from 0.
func (b Backoff) bound(failures int) time.Duration {
	bound := b.Base
	for range failures {
		if bound >= b.Max/2 {
			return b.Max
		}
		bound *= 2
	}
	return min(bound, b.Max)
}

// wait draws the wait after the given number of failures, from 0. What the server asked for comes
// on top of nothing less than itself: those that it told the same time must not come back together
// either.
func (b Backoff) wait(failures int, retryAfter time.Duration) time.Duration {
	return max(retryAfter, 0) + upTo(b.bound(failures))
}

// upTo draws a time from [0, bound].
func upTo(bound time.Duration) time.Duration {
	if bound <= 0 {
		return 0
	}
	return time.Duration(rand.Int64N(int64(bound) + 1))
}

// sleep waits for d. If ctx ends first, it returns the error of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
