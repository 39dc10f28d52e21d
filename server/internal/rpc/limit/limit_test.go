package limit

import (
	"strconv"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

func setup(perSecond float64, burst int) (*Limiter, *time.Time) {
	now := time.Unix(1_700_000_000, 0)
	return New(Config{PerSecond: perSecond, Burst: burst, Now: func() time.Time { return now }}), &now
}

func TestAllow(t *testing.T) {
	t.Parallel()
	l, now := setup(10, 3)
	for i := range 3 {
		if err := l.Allow("ada"); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	var wait time.Duration
	for range 5 { // a refused call takes nothing from the bucket
		f, ok := fault.As(l.Allow("ada"))
		if !ok || f.Kind != fault.ResourceExhausted || f.Reason != fault.RateLimited || f.RetryAfter <= 0 || f.RetryAfter > 101*time.Millisecond {
			t.Fatalf("over the limit: %+v", f)
		}
		wait = f.RetryAfter
	}
	if err := l.Allow("bob"); err != nil {
		t.Errorf("another pays for it: %v", err)
	}
	*now = now.Add(wait)
	if err := l.Allow("ada"); err != nil {
		t.Errorf("after the wait that was told: %v", err)
	}
}

func TestCheckTakesNothing(t *testing.T) {
	t.Parallel()
	l, now := setup(10, 3)
	for i := range 10 {
		if err := l.Check("ada"); err != nil {
			t.Fatalf("check %d of a full bucket: %v", i, err)
		}
	}
	for i := range 3 {
		if err := l.Allow("ada"); err != nil {
			t.Errorf("call %d after the checks: %v", i, err)
		}
	}
	f, ok := fault.As(l.Check("ada"))
	if !ok || f.Reason != fault.RateLimited || f.RetryAfter <= 0 {
		t.Fatalf("check of an empty bucket: %+v", f)
	}
	*now = now.Add(f.RetryAfter)
	if err := l.Check("ada"); err != nil {
		t.Errorf("after the wait: %v", err)
	}
}

func TestCharge(t *testing.T) {
	t.Parallel()
	l, now := setup(10, 10)
	l.Charge("ada", 500) // takes a whole burst and no more
	if err := l.Allow("ada"); err == nil {
		t.Error("a large batch cost nothing")
	}
	*now = now.Add(time.Second)
	if err := l.Allow("ada"); err != nil {
		t.Errorf("paid back: %v", err)
	}
	l.Charge("ada", 0)
	l.Charge("ada", 20)
	l.Charge("ada", 20)
	*now = now.Add(time.Second)
	if err := l.Allow("ada"); err == nil {
		t.Error("two batches cost as much as one")
	}
}

func TestBucketsAreBounded(t *testing.T) {
	t.Parallel()
	l, _ := setup(1, 1)
	for i := range maxSubjects + 10 {
		if err := l.Allow(strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.subjects) != maxSubjects || l.recent.Len() != maxSubjects {
		t.Errorf("holds %d and %d", len(l.subjects), l.recent.Len())
	}
	if err := l.Allow(strconv.Itoa(maxSubjects + 9)); err == nil {
		t.Error("forgot the newest")
	}
}
