package lifecycle

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// state is the state of a service.
//
//	idle ---Start---> starting ---begin succeeded---> running ---Stop---> stopping ---> stopped
//	idle ---Stop----> stopped
//	                  starting ---begin failed, or Stop---> stopping
type state int

const (
	idle state = iota
	starting
	running
	stopping
	stopped
)

// Base implements the contract of Service for the type that has it as a field. The zero value is a
// service that was not started. It must not be copied.
type Base struct {
	mu    sync.Mutex // guards the fields below
	state state
	run   *Run // nil until starting
	// begun is closed once Start's begin has returned. abort ends begin's context. Both are nil
	// until starting.
	begun chan struct{}
	abort context.CancelCauseFunc
	// ended is closed once stopped; nil until stopping.
	ended chan struct{}
	// startErr is the error of begin, or ErrStopped if Stop was called before begin returned. stopErr
	// is the error that Stop returns.
	startErr, stopErr error
}

// Start implements Service.Start. It calls begin once, which starts goroutines with Run.Go and
// returns when the service works. The ctx of begin ends with that of Start, and with Stop. If begin
// fails, Start ends everything that begin has started, as Stop does.
func (b *Base) Start(ctx context.Context, begin func(ctx context.Context, run *Run) error) error {
	b.mu.Lock()
	if b.state != idle {
		begun := b.begun
		b.mu.Unlock()
		return b.started(ctx, begun)
	}
	beginning, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	b.state, b.begun, b.abort, b.run = starting, make(chan struct{}), abort, newRun(ctx)
	b.mu.Unlock()

	err := begin(beginning, b.run)

	b.mu.Lock()
	b.startErr = err
	close(b.begun)
	byStop := b.state == stopping
	switch {
	case byStop:
		b.startErr = ErrStopped
	case err != nil:
		b.state, b.ended = stopping, make(chan struct{})
	default:
		b.state = running
	}
	b.mu.Unlock()
	switch {
	case byStop:
		<-b.ended
		return ErrStopped
	case err != nil:
		b.end(context.WithoutCancel(ctx))
		return errors.Join(err, b.stopErr)
	}
	return nil
}

// started implements further calls of Start: it waits for the first one, whose begin closes begun;
// begun is nil if the service was stopped without being started.
func (b *Base) started(ctx context.Context, begun <-chan struct{}) error {
	if begun == nil {
		return ErrStopped
	}
	select {
	case <-begun:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.startErr != nil:
		return b.startErr
	case b.state != running:
		return ErrStopped
	}
	return nil
}

// Stop implements Service.Stop. It calls the functions of Run.OnStop, ends the run's context, waits
// for its goroutines, and calls the functions of Run.OnEnd. It calls all functions, even after
// errors, and joins their errors.
func (b *Base) Stop(ctx context.Context) error {
	b.mu.Lock()
	switch b.state {
	case idle:
		b.state = stopped
		b.mu.Unlock()
		return nil
	case starting, running:
		wasStarting := b.state == starting
		b.state, b.ended = stopping, make(chan struct{})
		b.mu.Unlock()
		if wasStarting {
			b.abort(ErrStopped)
			<-b.begun
		}
		b.end(ctx)
		return b.stopErr
	default:
		ended := b.ended
		b.mu.Unlock()
		if ended == nil {
			return nil // it was never started
		}
		<-ended
		return b.stopErr
	}
}

// end ends the run and closes ended. Only the goroutine that set the state to stopping calls it.
func (b *Base) end(ctx context.Context) {
	b.stopErr = b.run.end(ctx)
	b.mu.Lock()
	b.state = stopped
	b.mu.Unlock()
	close(b.ended)
}

// Run is one run of a service, from Start to the end of Stop.
type Run struct {
	ctx    context.Context //nolint:containedctx // the service's own life, not a call's
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	// onStop and onEnd hold the registered functions. begin appends to them, and then only end uses
	// them.
	onStop, onEnd []func(ctx context.Context) error
}

func newRun(ctx context.Context) *Run {
	r := &Run{}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return r
}

// Context returns the context of the run's goroutines. It has the values of Start's context but
// does not end with it: Stop ends it, after the functions of OnStop.
func (r *Run) Context() context.Context { return r.ctx }

// Go calls fn in a goroutine that Stop waits for. fn must return soon after its ctx, which is
// Context's, has ended. Go may be called by begin, by a goroutine that Go has started, and by a
// caller that knows that the functions of OnStop have not returned.
func (r *Run) Go(fn func(ctx context.Context)) {
	r.tasks.Go(func() { fn(r.ctx) })
}

// OnStop registers fn to be called when Stop begins, while the goroutines still run. Functions are
// called in reverse order. fn may wait for work to finish, until its ctx, which is that of Stop,
// has ended. Only begin may call OnStop.
func (r *Run) OnStop(fn func(ctx context.Context) error) { r.onStop = append(r.onStop, fn) }

// OnEnd registers fn to be called after all goroutines have ended, with the ctx of Stop. Functions
// are called in reverse order. Only begin may call OnEnd.
func (r *Run) OnEnd(fn func(ctx context.Context) error) { r.onEnd = append(r.onEnd, fn) }

func (r *Run) end(ctx context.Context) error {
	err := callAll(ctx, r.onStop)
	r.cancel()
	r.tasks.Wait()
	return errors.Join(err, callAll(ctx, r.onEnd))
}

func callAll(ctx context.Context, fns []func(context.Context) error) error {
	var errs []error
	for _, fn := range slices.Backward(fns) {
		errs = append(errs, fn(ctx))
	}
	return errors.Join(errs...)
}
