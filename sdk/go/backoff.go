package parley

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff sets the waits between attempts. Each wait is a random time between 0 and a bound. The
// bound starts at Base and doubles with each attempt up to Max. This is full jitter: the bound is
// capped before the time is drawn, so that many clients that failed together do not retry together.
type Backoff struct {
	// Base bounds the first wait. The default is 200 ms.
	Base time.Duration
	// Max bounds every wait. The default is 10 s.
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

// bound returns the longest wait after a failure. failures is the number of failures before that
// one.
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

// wait returns a random wait after a failure. failures is the number of failures before that one.
// The random time is added to retryAfter: clients that got the same retryAfter must not retry
// together either.
func (b Backoff) wait(failures int, retryAfter time.Duration) time.Duration {
	return max(retryAfter, 0) + upTo(b.bound(failures))
}

// upTo returns a random time from 0 to bound, both inclusive.
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
