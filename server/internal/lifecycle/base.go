package lifecycle

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// state is what a service does now.
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

// Base implements the contract of Service for the type that has it as a field. The zero value is a service that was not
// started. It must not be copied.
type Base struct {
	mu    sync.Mutex // guards what follows
	state state
	run   *Run // nil until starting
	// begun is closed once Start's begin has returned, and abort ends begin's context; nil until starting.
	begun chan struct{}
	abort context.CancelCauseFunc
	// ended is closed once stopped; nil until stopping.
	ended chan struct{}
	// startErr is begin's error, stopErr that of the end.
	startErr, stopErr error
}

// Start implements Service.Start. It calls begin once, which starts goroutines by Run.Go and returns when the service works.
// The ctx of begin ends with that of Start, and with Stop. If begin fails, what it has begun is ended as Stop does.
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

// started is a further Start: it waits for the first one, whose begin closes begun; nil if there was none.
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

// Stop implements Service.Stop. It calls the functions of Run.OnStop, ends the run's context, waits for its goroutines, and calls
// the functions of Run.OnEnd. All are called, whatever the others return; their errors are joined.
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

// end ends the run and closes ended. Only the one who made the state stopping calls it.
func (b *Base) end(ctx context.Context) {
	b.stopErr = b.run.end(ctx)
	b.mu.Lock()
	b.state = stopped
	b.mu.Unlock()
	close(b.ended)
}

// Run is what one service has running, from Start to the end of Stop.
type Run struct {
	ctx    context.Context //nolint:containedctx // the service's own life, not a call's
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	// onStop and onEnd belong to begin, and then to end.
	onStop, onEnd []func(ctx context.Context) error
}

func newRun(ctx context.Context) *Run {
	r := &Run{}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return r
}

// Context returns the context of the run's goroutines, with the values of Start's. Stop ends it, after the functions of OnStop.
func (r *Run) Context() context.Context { return r.ctx }

// Go calls fn in a goroutine that Stop waits for. fn must return soon after its ctx, which is Context's, has ended. Go may be
// called by begin, by a goroutine that Go has started, and by a caller that knows that the functions of OnStop have not returned.
func (r *Run) Go(fn func(ctx context.Context)) {
	r.tasks.Go(func() { fn(r.ctx) })
}

// OnStop has fn called when Stop begins, while the goroutines still work. The last fn is called first. fn may wait for work to be
// finished, until its ctx, which is that of Stop, has ended. Only begin may call OnStop.
func (r *Run) OnStop(fn func(ctx context.Context) error) { r.onStop = append(r.onStop, fn) }

// OnEnd has fn called after all goroutines have ended, with the ctx of Stop. The last fn is called first. Only begin may call
// OnEnd.
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
