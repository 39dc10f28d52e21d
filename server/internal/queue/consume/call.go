package consume

import (
	"context"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
)

// errMoved: the lease is not here, or was lost before the settlement was durable. The caller asks
// the next holder.
var errMoved = fault.New(fault.Unavailable, fault.StoreUnavailable, "the partition has no dispatcher at present; repeat the call")

// call collects the results of one call's items. It belongs to the engine's goroutine until
// finished is closed.
type call struct {
	results  []error
	left     int
	finished chan struct{}
}

func newCall(n int) *call {
	return &call{results: make([]error, n), left: n, finished: make(chan struct{})}
}

// done sets the result of an item. Each item has one.
func (c *call) done(i int, err error) {
	c.results[i] = err
	if c.left--; c.left == 0 {
		close(c.finished)
	}
}

// wait waits for all results. If ctx ends before, the outcome of all is unknown.
func (c *call) wait(ctx context.Context) ([]error, error) {
	select {
	case <-c.finished:
		return c.results, nil
	case <-ctx.Done():
		f := fault.New(fault.Unavailable, fault.OutcomeUnknown, "the call may have been executed")
		f.Cause = ctx.Err()
		return nil, f
	}
}

// Settlement ends a delivery.
type Settlement struct {
	Token   Token
	Verdict dispatch.Verdict
	// Delay is the time until the next attempt, for Retry; 0 means the group's backoff.
	Delay        time.Duration
	Reason, Code string
}
