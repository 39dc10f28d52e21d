package cli

import (
	"context"
	"time"
)

// withIdleTimeout gives a context that ends with context.DeadlineExceeded as its cause once limit has passed since the
// last call of progress.
func withIdleTimeout(parent context.Context, limit time.Duration) (ctx context.Context, progress, cancel func()) {
	ctx, end := context.WithCancelCause(parent)
	timer := time.AfterFunc(limit, func() { end(context.DeadlineExceeded) })
	return ctx, func() { timer.Reset(limit) }, func() { timer.Stop(); end(nil) }
}
