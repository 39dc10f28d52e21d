package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/parleyhq/parley/server/internal/fault"
)

// frameWriter writes a stream's responses, each of type M. Each must be written within the timeout.
// So a stream ends if its client stays connected and does not read. It is safe for concurrent use.
type frameWriter[M any] struct {
	send    func(message any) error
	control *http.ResponseController
	timeout time.Duration
	writes  *writes // may be nil

	mu sync.Mutex // held during a write; guards deadline
	// deadline is the write deadline that was set last; zero if there is none.
	deadline time.Time
}

// newFrameWriter creates the writer for the call that ctx belongs to. M is the type that the codecs
// encode as the stream's response.
func newFrameWriter[M any](ctx context.Context, conn connect.StreamingHandlerConn, timeout time.Duration, under *writes) *frameWriter[M] {
	return &frameWriter[M]{send: conn.Send, control: controllerOf(ctx), timeout: timeout, writes: under}
}

// writes holds the writes of frames that are under way. It is safe for concurrent use.
type writes struct {
	began sync.Map // *http.ResponseController -> time.Time
}

// cut makes the writes fail that began more than age ago: their clients do not read.
func (u *writes) cut(age time.Duration) {
	now := time.Now()
	u.began.Range(func(control, began any) bool {
		if now.Sub(began.(time.Time)) > age { //nolint:forcetypeassert // the map has no others
			_ = control.(*http.ResponseController).SetWriteDeadline(now) //nolint:forcetypeassert // as above
		}
		return true
	})
}

// write writes a message to the connection and flushes it. It moves the write deadline at most
// every eighth of the timeout, because that costs as much as writing a small frame. Heartbeats are
// frequent enough that the deadline does not pass while nothing else is written.
func (w *frameWriter[M]) write(ctx context.Context, m M) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.deadline.Sub(now) < w.timeout-w.timeout/8 {
		w.deadline = now.Add(w.timeout)
		if err := w.control.SetWriteDeadline(w.deadline); err != nil {
			return fmt.Errorf("set write deadline: %w", err)
		}
	}
	if w.writes != nil {
		w.writes.began.Store(w.control, now)
		defer w.writes.began.Delete(w.control)
	}
	if err := w.send(m); err != nil {
		return w.cause(ctx, fmt.Errorf("write frame: %w", err))
	}
	return nil
}

// ended returns the error that a stream ends with after its context has ended. err is what the
// stream returned.
func (w *frameWriter[M]) ended(ctx context.Context, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cause(ctx, err)
}

// cause returns why a write failed or the context ended: STREAM_STALLED if the write deadline has
// passed, then the context's error, then err. A flush that takes too long shows only as the end of
// the context. mu must be held.
func (w *frameWriter[M]) cause(ctx context.Context, err error) error {
	switch {
	case !w.deadline.IsZero() && !time.Now().Before(w.deadline):
		return fault.Wrap(err, fault.Unavailable, fault.StreamStalled, "the stream was not read for %v", w.timeout)
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return err
	}
}

// idle removes the write deadline until the next write, for a stream without heartbeats.
func (w *frameWriter[M]) idle() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline = time.Time{}
	return w.control.SetWriteDeadline(time.Time{})
}

// frameSource is the live stream of a subscriber or a consumer. It produces the frames of one
// stream, of type F.
type frameSource[F any] interface {
	// Next blocks until there is a frame. Any error ends the stream; with io.EOF the stream ends
	// without a failure.
	Next(ctx context.Context) (F, error)
}

// writeFrames passes the stream's frames to write until either fails, and returns the error that
// the stream ends with. The handler has written the stream's first message before the call. An idle
// stream waits in here, so the variables of this function and of its callers occupy memory for
// every idle stream.
func writeFrames[F, M any](
	ctx context.Context, out *frameWriter[M], stream frameSource[F], write func(ctx context.Context, out *frameWriter[M], f F) error,
) error {
	for {
		f, err := stream.Next(ctx)
		switch {
		case err == nil:
			err = write(ctx, out, f)
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			err = out.ended(ctx, err)
		}
		if err != nil {
			return err
		}
	}
}
