package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Stack holds resources and services, to be closed in reverse order. The zero value is empty. Only
// Close may be called concurrently.
type Stack struct {
	closers []closer
	once    sync.Once
	err     error
}

type closer struct {
	name  string
	close func(ctx context.Context) error
}

// Push registers fn to be called by Close. name appears in Close's error.
func (s *Stack) Push(name string, fn func(ctx context.Context) error) {
	s.closers = append(s.closers, closer{name, fn})
}

// Start starts a service and pushes its Stop. If the service fails to start, Start returns its
// error and pushes nothing. If ctx has ended, Start returns ctx's error and starts nothing.
func (s *Stack) Start(ctx context.Context, name string, service Service) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	if err := service.Start(ctx); err != nil {
		return err
	}
	s.Push(name, service.Stop)
	return nil
}

// Close calls the pushed functions in reverse order, even after errors, and returns their joined
// errors. A further call waits for the first one and returns its error.
func (s *Stack) Close(ctx context.Context) error {
	s.once.Do(func() {
		var errs []error
		for _, c := range slices.Backward(s.closers) {
			if err := c.close(ctx); err != nil {
				errs = append(errs, fmt.Errorf("close %s: %w", c.name, err))
			}
		}
		s.err = errors.Join(errs...)
	})
	return s.err
}
