// Package lifecycletest provides helpers to test services.
package lifecycletest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle"
)

const (
	// Each part of Stress tests up to rounds new services. It stops earlier after minRounds and a
	// duration of enough.
	rounds, minRounds = 20, 2
	enough            = 500 * time.Millisecond
	// callers is the number of goroutines that call a service concurrently.
	callers = 8
	// patience is how long Stress waits for one call, and for goroutines that are ending.
	patience = 30 * time.Second
	// label is the key of the pprof label of the goroutines that a service has started, directly or
	// not.
	label = "lifecycletest"
)

// labels is the last number used as a value of label. Each tested service has its own.
var labels atomic.Int64

// Start starts a service, and stops it when the test ends. It fails the test if either returns an
// error.
func Start(tb testing.TB, service lifecycle.Service) {
	tb.Helper()
	if err := service.Start(tb.Context()); err != nil {
		tb.Fatalf("start %T: %v", service, err)
	}
	tb.Cleanup(func() { Stop(tb, service) })
}

// Stop stops a service without a deadline. It fails the test if that returns an error.
func Stop(tb testing.TB, service lifecycle.Service) {
	tb.Helper()
	if err := service.Stop(context.WithoutCancel(tb.Context())); err != nil {
		tb.Errorf("stop %T: %v", service, err)
	}
}

// Stress tests the contract of lifecycle.Service on services from newService, which must be new and
// not started. Start of such a service must succeed, and so must a Stop without a deadline. Run it
// under the race detector.
//
// After Stop, no goroutine may be left that newService, Start or Stop has started, directly or not.
// newService must therefore create only the service itself: create its dependencies before, so that
// they outlive it.
//
// Name the type S in the call, for example *feed.Feeder: TestServices in package server searches
// for it.
func Stress[S lifecycle.Service](t *testing.T, newService func(t *testing.T) S) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, *subject){
		"stopped before it is started": stoppedFirst,
		"each twice":                   twice,
		"Start and Stop at once":       hammer,
		"Stop without time":            hurried,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			for n := 0; n < minRounds || n < rounds && time.Since(began) < enough; n++ {
				s := &subject{t: t, id: fmt.Sprint(labels.Add(1))}
				s.labelled(func() { s.Service = newService(t) })
				s.expectNone("its constructor")
				test(t, s)
				s.expectNone("Stop")
			}
		})
	}
}

// subject is a service under test.
type subject struct {
	lifecycle.Service

	t  *testing.T
	id string
}

func stoppedFirst(t *testing.T, s *subject) {
	ctx := context.WithoutCancel(t.Context())
	s.call("Stop before Start", nil, func() error { return s.Stop(ctx) })
	s.call("Start after Stop", lifecycle.ErrStopped, func() error { return s.Start(ctx) })
	s.expectNone("a Start after Stop")
	s.call("Stop once more", nil, func() error { return s.Stop(ctx) })
}

func twice(t *testing.T, s *subject) {
	ctx := context.WithoutCancel(t.Context())
	s.call("Start", nil, func() error { return s.Start(ctx) })
	s.call("a second Start", nil, func() error { return s.Start(ctx) })
	s.call("Stop", nil, func() error { return s.Stop(ctx) })
	s.expectNone("Stop")
	s.call("a second Stop", nil, func() error { return s.Stop(ctx) })
	s.call("Start after Stop", lifecycle.ErrStopped, func() error { return s.Start(ctx) })
}

func hammer(t *testing.T, s *subject) {
	ctx := context.WithoutCancel(t.Context())
	begin := make(chan struct{})
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			<-begin
			for range rand.IntN(20) {
				runtime.Gosched()
			}
			if i%2 == 0 {
				s.call("Start beside others", nil, func() error {
					if err := s.Start(ctx); !errors.Is(err, lifecycle.ErrStopped) {
						return err
					}
					return nil
				})
				return
			}
			s.call("Stop beside others", nil, func() error { return s.Stop(ctx) })
		})
	}
	close(begin)
	all.Wait()
	s.call("Start after all", lifecycle.ErrStopped, func() error { return s.Start(ctx) })
}

func hurried(t *testing.T, s *subject) {
	ctx := context.WithoutCancel(t.Context())
	s.call("Start", nil, func() error { return s.Start(ctx) })
	ended, cancel := context.WithCancel(ctx)
	cancel()
	s.call("Stop without time", nil, func() error {
		if err := s.Stop(ended); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil // it may report that it had no time
	})
}

// call makes a call under the subject's label. It fails the test unless the call returns want in
// time.
func (s *subject) call(what string, want error, fn func() error) {
	s.t.Helper()
	done := make(chan error, 1)
	go s.labelled(func() { done <- fn() })
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-done:
		if !errors.Is(err, want) || want == nil && err != nil {
			s.t.Errorf("%s returned %v, want %v", what, err, want)
		}
	case <-timer.C:
		s.t.Errorf("%s does not return\n%s", what, stacks())
	}
}

// labelled calls fn so that the goroutines which it starts, directly or not, have the subject's
// label.
func (s *subject) labelled(fn func()) {
	pprof.Do(context.WithoutCancel(s.t.Context()), pprof.Labels(label, s.id), func(context.Context) { fn() })
}

// expectNone fails the test if goroutines of the service remain. It waits, because one that has
// signalled its end may not have exited yet.
func (s *subject) expectNone(after string) {
	s.t.Helper()
	for began := time.Now(); s.running() > 0; runtime.Gosched() {
		if time.Since(began) > patience {
			s.t.Fatalf("after %s there are %d of its goroutines\n%s", after, s.running(), stacks())
		}
	}
}

// running returns the number of goroutines that the service has started and that still run.
func (s *subject) running() int {
	mark := fmt.Sprintf("%q:%q", label, s.id)
	n := 0
	for record := range strings.SplitSeq(stacks(), "\n\n") {
		head, rest, _ := strings.Cut(record, "\n")
		if strings.Contains(rest, mark) {
			var same int
			if _, err := fmt.Sscanf(head, "%d @", &same); err == nil {
				n += same
			}
		}
	}
	return n
}

// stacks returns the stacks of all goroutines, with their labels.
func stacks() string {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1) // writing to a buffer does not fail
	return b.String()
}
