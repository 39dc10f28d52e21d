package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
)

// skewedStore is a store whose clock is ahead of the test's.
type skewedStore struct {
	mu    sync.Mutex // guards the fields below
	ahead time.Duration
	err   error
	fails int           // calls that fail before the others
	slow  time.Duration // how long an answer takes after the clock was read
}

func (s *skewedStore) Time(context.Context) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails > 0 {
		s.fails--
		return time.Time{}, errors.New("a lost reply")
	}
	at := time.Now().Add(s.ahead)
	time.Sleep(s.slow) //nolint:forbidigo // synctest's clock
	return at, s.err
}

func (s *skewedStore) set(ahead time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead, s.err = ahead, err
}

func TestStoreClockStartsAndStops(t *testing.T) {
	t.Parallel()
	lifecycletest.Stress[*storeClock](t, func(*testing.T) *storeClock {
		return newStoreClock(&skewedStore{}, time.Now, slog.New(slog.DiscardHandler))
	})
}

func TestStoreClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &skewedStore{ahead: -10 * time.Second}
		c := newStoreClock(store, time.Now, slog.New(slog.DiscardHandler))
		lifecycletest.Start(t, c)
		expect := func(when string, ahead time.Duration) {
			t.Helper()
			if got := time.Until(c.Now()); (got - ahead).Abs() > time.Millisecond {
				t.Errorf("%s: %v ahead, want %v", when, got, ahead)
			}
		}
		expect("at the start", -10*time.Second)
		for _, step := range []struct {
			when  string
			ahead time.Duration
			err   error
			want  time.Duration
		}{
			{"the store is away", 0, errors.New("away"), -10 * time.Second},
			{"the store's clock was set", time.Minute, nil, time.Minute},
			{"the clocks differ little", 400 * time.Millisecond, nil, 0},
			{"the store's clock is too fast", 600 * time.Millisecond, nil, 600 * time.Millisecond},
			{"the clocks agree", 0, nil, 0},
		} {
			store.set(step.ahead, step.err)
			time.Sleep(clockEvery + time.Millisecond) //nolint:forbidigo // synctest's clock
			synctest.Wait()
			expect(step.when, step.want)
		}
	})
}

// TestStoreClockRetries tests that a node with a wrong clock that cannot read the store's once, or
// gets a slow answer, does not keep its own for longer than that.
func TestStoreClockRetries(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		store  *skewedStore
		after  time.Duration // from the start
		want   time.Duration
		within time.Duration
	}{
		{"a reply is lost", &skewedStore{ahead: 10 * time.Second, fails: 1}, 0, 10 * time.Second, time.Millisecond},
		{"the store is away", &skewedStore{ahead: 10 * time.Second, fails: 2 * clockTries}, (clockTries + 1) * clockRetry, 10 * time.Second, time.Millisecond},
		{"the store is slow", &skewedStore{ahead: 10 * time.Second, slow: 1900 * time.Millisecond}, 0, 10 * time.Second, time.Second},
		{"the store is slow and agrees", &skewedStore{slow: 1900 * time.Millisecond}, 0, 0, time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newStoreClock(test.store, time.Now, slog.New(slog.DiscardHandler))
				lifecycletest.Start(t, c)
				time.Sleep(test.after) //nolint:forbidigo // synctest's clock
				synctest.Wait()
				if got := time.Until(c.Now()); (got - test.want).Abs() > test.within {
					t.Errorf("the clock is %v ahead, want %v", got, test.want)
				}
			})
		})
	}
}

// TestStoreClockWithoutStoreClock tests that a store in this process has the node's clock.
func TestStoreClockWithoutStoreClock(t *testing.T) {
	t.Parallel()
	fast := func() time.Time { return time.Now().Add(time.Hour) }
	c := newStoreClock(struct{}{}, fast, slog.New(slog.DiscardHandler))
	lifecycletest.Start(t, c)
	if ahead := time.Until(c.Now()); ahead < 59*time.Minute {
		t.Errorf("the clock is %v ahead", ahead)
	}
}
