package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// closers is what has been opened so far, to be closed in reverse. It makes New all or nothing. Not for concurrent
// use, but for close, which does its work once.
type closers struct {
	stack []closer
	once  sync.Once
	err   error
}

type closer struct {
	name  string
	close func(ctx context.Context) error
}

func (c *closers) push(name string, f func(ctx context.Context) error) {
	c.stack = append(c.stack, closer{name, f})
}

// close closes everything, whatever fails on the way.
func (c *closers) close(ctx context.Context) error {
	c.once.Do(func() {
		var errs []error
		for _, v := range slices.Backward(c.stack) {
			if err := v.close(ctx); err != nil {
				errs = append(errs, fmt.Errorf("close %s: %w", v.name, err))
			}
		}
		c.err = errors.Join(errs...)
	})
	return c.err
}
