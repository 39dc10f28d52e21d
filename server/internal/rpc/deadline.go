package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/parleyhq/parley/server/internal/fanout"
	"github.com/parleyhq/parley/server/internal/fault"
)

// restTimeout is how long the rest of a body that nobody wants is waited for, to keep the connection.
const restTimeout = 500 * time.Millisecond

// responseGrace is how long a unary response may take to be written after its call's own time limit.
const responseGrace = 10 * time.Second

type controllerKey struct{}

// controllerOf gives the control over the deadlines of a call's connection or stream.
func controllerOf(ctx context.Context) *http.ResponseController {
	c, _ := ctx.Value(controllerKey{}).(*http.ResponseController)
	return c
}

// timeLimits bounds the time that a request's body and a unary response may take, and the bytes of the body. A
// stream's responses have frameWriter; a stream's requests have as long as one body until the first of them has come.
// Over HTTP/1 net/http itself takes the read deadline off a connection where the body ends, and the write deadline where
// the response does.
func timeLimits(cfg *Config, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// As in intercept.Calls.Wrap, what follows stays on the stack of a stream.
		r, err := limited(cfg, w, r)
		if err != nil {
			http.Error(w, "internal error", http.StatusInternalServerError) // not one of net/http's writers
			return
		}
		next.ServeHTTP(w, r)
		leaveBody(r)
	})
}

// limited gives the request with its limits.
func limited(cfg *Config, w http.ResponseWriter, r *http.Request) (*http.Request, error) {
	control := http.NewResponseController(w)
	now := time.Now()
	m := api.at(r.URL.Path)
	limit := cfg.BodyTimeout + cfg.UnaryTimeout + responseGrace
	if m.streams() {
		limit = cfg.FrameTimeout
	}
	err := control.SetWriteDeadline(now.Add(limit))
	if r.ContentLength != 0 {
		err = errors.Join(err, control.SetReadDeadline(now.Add(cfg.BodyTimeout)))
	}
	body := &timedBody{ReadCloser: r.Body}
	if !m.clientStreams { // each message of which connect bounds
		body.ReadCloser = http.MaxBytesReader(w, r.Body, int64(m.readBytes(cfg))+sizeSlack)
	}
	r = r.WithContext(context.WithValue(r.Context(), controllerKey{}, control))
	r.Body = body
	return r, err
}

// leaveBody bounds the time in which net/http looks for the rest of a body that was not read. Who was turned away before
// that gets the answer only afterwards.
func leaveBody(r *http.Request) {
	body, ok := r.Body.(*timedBody)
	if ok && !body.ended && r.ContentLength != 0 && r.ProtoMajor == 1 {
		_ = controllerOf(r.Context()).SetReadDeadline(time.Now().Add(restTimeout))
	}
}

// timedBody is a request's body whose errors name no addresses.
type timedBody struct {
	io.ReadCloser

	ended bool
}

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		b.ended = true
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("the request's body took too long: %w", os.ErrDeadlineExceeded)
	default:
		err = brokenBody(err)
	}
	return n, err
}

// frameWriter writes a stream's messages, each within a time, so that a reader who is there but does not read is cut.
type frameWriter struct {
	send    func(message any) error
	control *http.ResponseController
	timeout time.Duration
	// deadline is what was last set.
	deadline time.Time
}

// write sends a message. The deadline is moved at most every eighth of the timeout, as that costs as much as a small
// frame; heartbeats come often enough that it never passes while nothing is written.
func (w *frameWriter) write(ctx context.Context, m any) error {
	if now := time.Now(); w.deadline.Sub(now) < w.timeout-w.timeout/8 {
		w.deadline = now.Add(w.timeout)
		if err := w.control.SetWriteDeadline(w.deadline); err != nil {
			return fmt.Errorf("set write deadline: %w", err)
		}
	}
	if err := w.send(m); err != nil {
		return w.ended(ctx, fmt.Errorf("write frame: %w", err))
	}
	return nil
}

// writeAll writes the session's frames until one of the two ends. An idle subscriber waits in here: the variables of this
// function and of those that call it are memory that each of them holds.
func (w *frameWriter) writeAll(ctx context.Context, session *fanout.Session) error {
	for {
		f, err := session.Next(ctx)
		switch {
		case err == nil:
			err = w.write(ctx, frameOf(&f))
		case ctx.Err() != nil:
			err = w.ended(ctx, err)
		}
		if err != nil {
			return err
		}
	}
}

// ended gives what the end of a write or of the context was in truth: a flush that took too long shows as nothing but
// the end of the context.
func (w *frameWriter) ended(ctx context.Context, err error) error {
	switch {
	case !w.deadline.IsZero() && !time.Now().Before(w.deadline):
		return fault.Wrap(err, fault.Unavailable, fault.StreamStalled, "the stream was not read for %v", w.timeout)
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return err
	}
}

// idle takes the deadline off, for a stream that has no heartbeats.
func (w *frameWriter) idle() error {
	w.deadline = time.Time{}
	return w.control.SetWriteDeadline(time.Time{})
}
