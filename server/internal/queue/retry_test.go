package queue

import (
	"math"
	"testing"
	"time"
)

func TestBackoffIsFullJitterBelowABoundThatDoubles(t *testing.T) {
	t.Parallel()
	p := RetryPolicy{MinBackoff: 100 * time.Millisecond, MaxBackoff: time.Second}
	for attempt, bound := range map[int]time.Duration{
		1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 3: 400 * time.Millisecond, 4: 800 * time.Millisecond,
		5: time.Second, 6: time.Second, 1000: time.Second, math.MaxInt: time.Second,
	} {
		const n = 4000
		var sum, least, most time.Duration
		least = math.MaxInt64
		for range n {
			d := p.Backoff(attempt)
			if d <= 0 || d > bound || d%time.Millisecond != 0 {
				t.Fatalf("attempt %d: %s, want whole ms up to %s", attempt, d, bound)
			}
			sum, least, most = sum+d, min(least, d), max(most, d)
		}
		if mean := sum / n; mean < bound*45/100 || mean > bound*55/100 {
			t.Errorf("attempt %d: mean %s of a bound of %s", attempt, mean, bound)
		}
		if least > bound/10 || most < bound*9/10 {
			t.Errorf("attempt %d: from %s to %s below a bound of %s", attempt, least, most, bound)
		}
	}
}

func TestBackoffAtItsBounds(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]RetryPolicy{
		"nothing said": {}, "least": {MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond},
		"max below min": {MinBackoff: time.Millisecond},
	} {
		for _, attempt := range []int{0, 1, 2, 64} {
			if d := p.Backoff(attempt); d != time.Millisecond {
				t.Errorf("%s: attempt %d waits %s", name, attempt, d)
			}
		}
	}
	huge := RetryPolicy{MinBackoff: math.MaxInt64/2 + 1, MaxBackoff: math.MaxInt64}
	for range 100 {
		if d := huge.Backoff(70); d <= 0 {
			t.Fatalf("%s", d)
		}
	}
}

func TestFinal(t *testing.T) {
	t.Parallel()
	p := RetryPolicy{MaxAttempts: 3, NonRetryable: []string{"bad"}}
	for _, c := range []struct {
		attempt int
		code    string
		want    bool
	}{{1, "", false}, {2, "other", false}, {3, "", true}, {4, "", true}, {1, "bad", true}, {1, "Bad", false}} {
		if got := p.Final(c.attempt, c.code); got != c.want {
			t.Errorf("attempt %d with %q: %v", c.attempt, c.code, got)
		}
	}
}
