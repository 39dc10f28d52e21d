package presence

import (
	"context"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle"
)

// schedule is a set of keys, each with a time at which it is due. It is safe for concurrent use.
type schedule[K comparable] struct {
	// wake has an element after a key was added.
	wake chan struct{}

	mu sync.Mutex // guards at
	at map[K]time.Time
}

func newSchedule[K comparable]() *schedule[K] {
	return &schedule[K]{wake: make(chan struct{}, 1), at: map[K]time.Time{}}
}

// set makes key due at the time at, unless it is due earlier.
func (q *schedule[K]) set(key K, at time.Time) {
	q.mu.Lock()
	if due, ok := q.at[key]; ok && !at.Before(due) {
		q.mu.Unlock()
		return
	}
	q.at[key] = at
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// drop removes a key.
func (q *schedule[K]) drop(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.at, key)
}

// take removes and returns up to limit keys that are due. If there are none, next is when the next
// key is due; zero if there is no key.
func (q *schedule[K]) take(now time.Time, limit int) (due []K, next time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, at := range q.at {
		switch {
		case !at.After(now):
			due = append(due, key)
			delete(q.at, key)
		case next.IsZero() || at.Before(next):
			next = at
		}
		if len(due) == limit {
			break
		}
	}
	return due, next
}

// await blocks until keys are due, and returns up to limit of them. It returns nil once ctx has
// ended.
func (q *schedule[K]) await(ctx context.Context, limit int) []K {
	for {
		now := time.Now()
		due, next := q.take(now, limit)
		if len(due) > 0 {
			return due
		}
		var timer *time.Timer
		var fired <-chan time.Time
		if !next.IsZero() {
			timer = time.NewTimer(next.Sub(now))
			fired = timer.C
		}
		select {
		case <-fired:
		case <-q.wake:
		case <-ctx.Done():
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// start calls work with up to limit due keys at a time, in up to parallel goroutines, until the run
// ends.
func (q *schedule[K]) start(run *lifecycle.Run, limit, parallel int, work func(ctx context.Context, due []K)) {
	slots := make(chan struct{}, parallel)
	run.Go(func(ctx context.Context) {
		for {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			due := q.await(ctx, limit)
			if due == nil {
				return
			}
			run.Go(func(ctx context.Context) {
				defer func() { <-slots }()
				work(ctx, due)
			})
		}
	})
}
