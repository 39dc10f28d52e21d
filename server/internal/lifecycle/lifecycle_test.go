package lifecycle_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errProvoked = errors.New("provoked")

// service is a lifecycle.Service that notes what it is called for, in order.
type service struct {
	life lifecycle.Base
	// begin is called within Start; nil does nothing.
	begin func(ctx context.Context, run *lifecycle.Run) error

	mu    sync.Mutex
	notes []string
}

func (s *service) Start(ctx context.Context) error {
	return s.life.Start(ctx, func(ctx context.Context, run *lifecycle.Run) error {
		s.note("begin")
		if s.begin == nil {
			return nil
		}
		return s.begin(ctx, run)
	})
}

func (s *service) Stop(ctx context.Context) error { return s.life.Stop(ctx) }

func (s *service) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, what)
}

func (s *service) want(t *testing.T, notes ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if diff := cmp.Diff(notes, s.notes); diff != "" {
		t.Error(diff)
	}
}

// noting returns a function for OnStop or OnEnd that notes what and returns err.
func (s *service) noting(what string, err error) func(context.Context) error {
	return func(context.Context) error { s.note(what); return err }
}

// work returns a begin that starts a goroutine, which takes a second to end, and registers
// functions with OnStop and OnEnd. Some of those return err.
func (s *service) work(err error) func(context.Context, *lifecycle.Run) error {
	return func(_ context.Context, run *lifecycle.Run) error {
		run.OnStop(s.noting("second stop", err))
		run.OnStop(s.noting("first stop", nil))
		run.OnEnd(s.noting("second end", nil))
		run.OnEnd(s.noting("first end", err))
		run.Go(func(ctx context.Context) {
			<-ctx.Done()
			<-time.After(time.Second)
			s.note("ended")
		})
		return nil
	}
}

func TestServiceStartsAndStops(t *testing.T) {
	t.Parallel()
	lifecycletest.Stress[*service](t, func(*testing.T) *service {
		return &service{begin: func(_ context.Context, run *lifecycle.Run) error {
			run.Go(func(ctx context.Context) {
				run.Go(func(context.Context) {})
				<-ctx.Done()
			})
			return nil
		}}
	})
}

func TestStopOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		s.begin = s.work(errProvoked)
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if err := s.Stop(t.Context()); !errors.Is(err, errProvoked) || strings.Count(err.Error(), "provoked") != 2 {
					t.Errorf("Stop returned %v", err)
				}
				if took := time.Since(began); took != time.Second {
					t.Errorf("Stop took %s", took)
				}
			})
		}
		all.Wait()
		s.want(t, "begin", "first stop", "second stop", "ended", "first end", "second end")
	})
}

func TestStartContextDoesNotStopService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		s := &service{}
		s.begin = func(_ context.Context, run *lifecycle.Run) error {
			run.Go(func(ctx context.Context) {
				if ctx.Value(key{}) != "value" || run.Context() != ctx {
					t.Error("the goroutine has another context")
				}
				<-ctx.Done()
				s.note("ended")
			})
			return nil
		}
		if err := s.Start(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		synctest.Wait()
		s.want(t, "begin")
		lifecycletest.Stop(t, s)
		s.want(t, "begin", "ended")
	})
}

func TestFailedStartCleansUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		s.begin = func(ctx context.Context, run *lifecycle.Run) error {
			_ = s.work(nil)(ctx, run)
			return errProvoked
		}
		for range 2 {
			if err := s.Start(t.Context()); !errors.Is(err, errProvoked) {
				t.Errorf("Start returned %v", err)
			}
		}
		s.want(t, "begin", "first stop", "second stop", "ended", "first end", "second end")
		lifecycletest.Stop(t, s)
	})
}

// Stop ends a Start that hangs, and the calls of Start that wait for it.
func TestStopDuringStart(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"that succeeds all the same": nil, "that fails": errProvoked} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &service{}
				s.begin = func(ctx context.Context, run *lifecycle.Run) error {
					_ = s.work(nil)(ctx, run)
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), lifecycle.ErrStopped) || run.Context().Err() != nil {
						t.Errorf("begin was ended by %v, the run by %v", context.Cause(ctx), run.Context().Err())
					}
					return failure
				}
				var all sync.WaitGroup
				for range 3 {
					all.Go(func() {
						if err := s.Start(t.Context()); !errors.Is(err, lifecycle.ErrStopped) {
							t.Errorf("Start returned %v", err)
						}
					})
				}
				synctest.Wait()
				hurried, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				lifecycletest.Stop(t, s)
				all.Wait()
				if err := s.Start(hurried); !errors.Is(err, lifecycle.ErrStopped) {
					t.Errorf("Start after Stop returned %v", err)
				}
				if took := time.Since(began); took != time.Second {
					t.Errorf("it took %s", took)
				}
				s.want(t, "begin", "first stop", "second stop", "ended", "first end", "second end")
			})
		})
	}
}

// A further Start waits no longer than its own context.
func TestSecondStartTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{begin: func(context.Context, *lifecycle.Run) error { <-time.After(time.Minute); return nil }}
		var first sync.WaitGroup
		first.Go(func() { lifecycletest.Start(t, s) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second Start returned %v", err)
		}
		first.Wait()
	})
}

func TestStack(t *testing.T) {
	t.Parallel()
	var stack lifecycle.Stack
	s := &service{}
	stack.Push("store", s.noting("store", errProvoked))
	s.begin = func(_ context.Context, run *lifecycle.Run) error {
		run.OnEnd(s.noting("service", errProvoked))
		return nil
	}
	if err := stack.Start(t.Context(), "service", s); err != nil {
		t.Fatal(err)
	}
	failing := &service{begin: func(context.Context, *lifecycle.Run) error { return errProvoked }}
	if err := stack.Start(t.Context(), "failing", failing); !errors.Is(err, errProvoked) {
		t.Errorf("Start returned %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	unstarted := &service{}
	if err := stack.Start(ended, "unstarted", unstarted); !errors.Is(err, context.Canceled) {
		t.Errorf("Start returned %v after its context had ended", err)
	}
	unstarted.want(t)
	stack.Push("listener", s.noting("listener", nil))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			err := stack.Close(t.Context())
			if want := "close service: provoked\nclose store: provoked"; err == nil || err.Error() != want {
				t.Errorf("Close returned %v, want %s", err, want)
			}
		})
	}
	all.Wait()
	s.want(t, "begin", "listener", "service", "store")
}
