// Package limit bounds how often one subject may call one node: a token bucket each.
package limit

import (
	"container/list"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/parleyhq/parley/server/internal/fault"
)

// maxSubjects is how many buckets are kept. Beyond that the one used longest ago is forgotten, which fills it again:
// whoever wants to gain by that needs this many tokens of different subjects.
const maxSubjects = 100_000

// Config says how often.
type Config struct {
	// PerSecond is the lasting rate, and Burst how many calls may come at once.
	PerSecond float64
	Burst     int
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Limiter holds the buckets. It is safe for concurrent use.
type Limiter struct {
	cfg Config

	mu       sync.Mutex // guards what follows
	subjects map[string]*list.Element
	recent   *list.List // of *bucket, the last used in front
}

type bucket struct {
	subject string
	tokens  *rate.Limiter
}

// New makes a Limiter whose buckets are full.
func New(cfg Config) *Limiter {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Limiter{cfg: cfg, subjects: make(map[string]*list.Element), recent: list.New()}
}

// Allow takes one call from the subject's bucket. Over the limit it takes nothing and gives a RATE_LIMITED fault that
// says when to come again.
func (l *Limiter) Allow(subject string) error {
	now := l.cfg.Now()
	r := l.bucket(subject).ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait == 0 {
		return nil
	}
	r.CancelAt(now)
	f := fault.New(fault.ResourceExhausted, fault.RateLimited, "over the rate limit of %g calls a second", l.cfg.PerSecond)
	f.RetryAfter = wait.Truncate(time.Millisecond) + time.Millisecond
	return f
}

// Charge takes n calls more for work that turned out to be larger than one, up to a whole burst. It always passes, and
// is paid back by later calls.
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
