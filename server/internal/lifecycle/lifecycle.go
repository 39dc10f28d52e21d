// Package lifecycle starts and stops the background services of the server.
//
// A Service is one of them. Its type has a Base as a field, which implements the contract of
// Service: the type only provides what a run begins (Base.Start) and what happens at its end
// (Run.OnStop, Run.OnEnd). A Stack starts services in order and stops them in reverse, together
// with other resources that were opened on the way. lifecycletest.Stress tests the contract for one
// service. TestServices in package server fails for services without that test, and for goroutines
// that no service owns.
//
// A resource that is open once its constructor returns, such as a store, a connection or a
// listener, is not a Service. Its Close is pushed on the Stack.
package lifecycle

import (
	"context"
	"errors"
)

// ErrStopped is returned by Start of a service that was stopped.
var ErrStopped = errors.New("the service was stopped")

// Service is a part of the server that works in the background between Start and Stop. Both may be
// called at any time and concurrently, but not by the service's own goroutines.
//
// A service runs once: after Stop, or after a Start that failed, it cannot be started again. To run
// it again, create a new one.
type Service interface {
	// Start starts the service and returns once it works. ctx bounds Start alone: the service does
	// not end with ctx, only with Stop. After an error nothing runs. A further Start waits for the
	// first one and returns its error. Start returns ErrStopped after Stop, and if Stop is called
	// before Start has returned; nothing runs in either case.
	Start(ctx context.Context) error
	// Stop stops the service and returns once everything that Start started has ended. A service
	// that finishes its pending work does so until ctx ends, and aborts the rest; Stop waits for
	// the end in either case. A further Stop waits for the first one and returns its error. Stop of
	// a service that was never started returns nil, and makes every later Start return ErrStopped.
	Stop(ctx context.Context) error
}
