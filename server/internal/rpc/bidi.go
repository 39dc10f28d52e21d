package rpc

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/rpc/intercept"
)

// errClientClosed reports that the client has closed its half of the stream.
var errClientClosed = errors.New("the client closed its half of the stream")

// serveBidi runs the two halves of a bidirectional stream: write writes frames, and serve reads and
// answers requests, until either returns. serving is locked while a request is served. It returns
// the error that the stream ends with.
func serveBidi(
	ctx context.Context, control *http.ResponseController, serving sync.Locker, write, serve func(ctx context.Context) error,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	var served error
	go func() {
		defer close(done)
		served = intercept.Catch(func() error { return serve(ctx) })
		cancel(served)
	}()
	err := write(ctx)
	if ctx.Err() == nil {
		// If a settlement lets the session end, the settlement is answered before the stream ends.
		serving.Lock()
		serving.Unlock() //nolint:staticcheck // it was waited for
	}
	ended := context.Cause(ctx)
	cancel(nil)
	// This unblocks the pending Receive; the stream is over.
	_ = control.SetReadDeadline(time.Now().Add(-time.Second))
	<-done
	if _, ok := errors.AsType[*intercept.PanicError](served); ok {
		return served // also if the stream ended before: a panic must be logged
	}
	switch {
	case errors.Is(ended, errClientClosed):
		return nil
	case ended != nil && errors.Is(ended, served):
		return served
	default:
		return err
	}
}
