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
	pendingWrite

	send    func(message any) error
	timeout time.Duration

	mu sync.Mutex // held during a write; guards deadline
	// deadline is the write deadline that was set last; zero if there is none.
	deadline time.Time
}

// newFrameWriter creates the writer for the call that ctx belongs to. M is the type that the codecs
// encode as the stream's response. The writer is one of live until ctx ends; live may be nil.
func newFrameWriter[M any](
	ctx context.Context, conn connect.StreamingHandlerConn, timeout time.Duration, live *liveWrites,
) *frameWriter[M] {
	w := &frameWriter[M]{send: conn.Send, timeout: timeout}
	w.control = controllerOf(ctx)
	if live != nil {
		live.add(ctx, &w.pendingWrite)
	}
	return w
}

// pendingWrite is the write of a stream that is under way.
type pendingWrite struct {
	control *http.ResponseController

	// cutting is held while a deadline is set from outside. The write does not end meanwhile, so the
	// handler does not return: net/http does not allow the call after that.
	cutting sync.Mutex // guards began
	began   time.Time  // when the write began; zero while there is none
}

// set sets when the write began, or the zero time when it has ended.
func (p *pendingWrite) set(began time.Time) {
	p.cutting.Lock()
	defer p.cutting.Unlock()
	p.began = began
}

// cut makes the write fail if it began more than age before now.
func (p *pendingWrite) cut(now time.Time, age time.Duration) {
	p.cutting.Lock()
	defer p.cutting.Unlock()
	if !p.began.IsZero() && now.Sub(p.began) > age {
		_ = p.control.SetWriteDeadline(now) // the connection may have ended
	}
}

// cutWait is how long a stream that the server has ended may take to write its last frame.
const cutWait = 500 * time.Millisecond

// liveWrites holds the writers of the live streams. It is safe for concurrent use.
type liveWrites struct {
	mu     sync.Mutex // guards writes
	writes map[*pendingWrite]struct{}
}

// add adds a writer until ctx, the call's, ends.
func (l *liveWrites) add(ctx context.Context, p *pendingWrite) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writes == nil {
		l.writes = make(map[*pendingWrite]struct{})
	}
	l.writes[p] = struct{}{}
	context.AfterFunc(ctx, func() {
		if _, ok := fault.As(context.Cause(ctx)); ok {
			// The token was revoked. A client that does not read must not keep the stream.
			time.AfterFunc(cutWait, func() { p.cut(time.Now(), 0) })
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.writes, p)
	})
}

// cut makes the writes fail that began more than age ago: their clients do not read.
func (l *liveWrites) cut(age time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for p := range l.writes {
		p.cut(now, age)
	}
}

// write writes a message to the connection and flushes it. It moves the write deadline at most
// every eighth of the timeout, because that costs as much as writing a small frame. Heartbeats are
// frequent enough that the deadline does not pass while nothing else is written.
func (w *frameWriter[M]) write(ctx context.Context, m M) error {
	if f, ok := fault.As(context.Cause(ctx)); ok && ctx.Err() != nil {
		return f // the token was revoked: nothing more is written
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.deadline.Sub(now) < w.timeout-w.timeout/8 {
		w.deadline = now.Add(w.timeout)
		if err := w.control.SetWriteDeadline(w.deadline); err != nil {
			return fmt.Errorf("set write deadline: %w", err)
		}
	}
	w.set(now)
	err := w.send(m)
	w.set(time.Time{})
	if err != nil {
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
