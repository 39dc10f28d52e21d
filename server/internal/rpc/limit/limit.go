// Package limit limits the rate of each subject's calls on one node, with a token bucket per
// subject.
package limit

import (
	"container/list"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/parleyhq/parley/server/internal/fault"
)

// maxSubjects bounds the buckets, of which each subject has one. Beyond it the least recently used
// one is removed, and its subject starts with a full bucket again. To profit from that, a caller
// needs tokens for this many different subjects.
const maxSubjects = 100_000

// Config sets the limit, which applies to each subject.
type Config struct {
	// PerSecond is the sustained rate in calls per second. Burst is the size of a bucket: how many
	// calls may come at once.
	PerSecond float64
	Burst     int
	// Now returns the current time; nil means time.Now.
	Now func() time.Time
}

// Limiter limits the rate of calls. It holds a token bucket for each subject. It is safe for
// concurrent use.
type Limiter struct {
	cfg Config

	mu       sync.Mutex // guards the fields below
	subjects map[string]*list.Element
	recent   *list.List // of *bucket, most recently used first
}

type bucket struct {
	subject string
	tokens  *rate.Limiter
}

// New creates a Limiter. All buckets are full at first.
func New(cfg Config) *Limiter {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Limiter{cfg: cfg, subjects: make(map[string]*list.Element), recent: list.New()}
}

// Allow takes one call from the subject's bucket. It does not block. If the bucket is empty, it
// takes nothing and returns a RATE_LIMITED fault, whose RetryAfter is the time to wait.
func (l *Limiter) Allow(subject string) error {
	return l.take(subject, false)
}

// Check returns the error that Allow would, but takes nothing from the bucket. It is for calls that
// Charge charges once their outcome is known.
func (l *Limiter) Check(subject string) error { return l.take(subject, true) }

// take is Allow. With giveBack it returns what it took to the bucket.
func (l *Limiter) take(subject string, giveBack bool) error {
	now := l.cfg.Now()
	r := l.bucket(subject).ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if giveBack || wait > 0 {
		r.CancelAt(now)
	}
	if wait == 0 {
		return nil
	}
	f := fault.New(fault.ResourceExhausted, fault.RateLimited, "rate limit of %g calls per second exceeded", l.cfg.PerSecond)
	f.RetryAfter = wait.Truncate(time.Millisecond) + time.Millisecond
	return f
}

// Charge takes n calls from the subject's bucket, at most a whole burst, for a call that turned out
// to be more work than was taken for it. It never fails: the bucket may become negative, and later
// calls are refused until it is refilled. It does nothing if n is not positive.
func (l *Limiter) Charge(subject string, n int) {
	if n = min(n, l.cfg.Burst); n > 0 {
		l.bucket(subject).ReserveN(l.cfg.Now(), n)
	}
}

func (l *Limiter) bucket(subject string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.subjects[subject]; ok {
		l.recent.MoveToFront(e)
		return e.Value.(*bucket).tokens //nolint:forcetypeassert // the list holds nothing else
	}
	if l.recent.Len() >= maxSubjects {
		oldest := l.recent.Back()
		delete(l.subjects, oldest.Value.(*bucket).subject) //nolint:forcetypeassert // as above
		l.recent.Remove(oldest)
	}
	b := &bucket{subject: subject, tokens: rate.NewLimiter(rate.Limit(l.cfg.PerSecond), l.cfg.Burst)}
	l.subjects[subject] = l.recent.PushFront(b)
	return b.tokens
}
