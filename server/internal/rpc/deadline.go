package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// unreadBodyTimeout bounds how long net/http reads the rest of a body that the handler left unread,
// to keep an HTTP/1 connection open for the next request.
const unreadBodyTimeout = 500 * time.Millisecond

// responseGrace is the time for writing a unary response after UnaryTimeout.
const responseGrace = 10 * time.Second

type controllerKey struct{}

// controllerOf returns the controller that sets the read and write deadlines of a call; nil outside
// of timeLimits.
func controllerOf(ctx context.Context) *http.ResponseController {
	c, _ := ctx.Value(controllerKey{}).(*http.ResponseController)
	return c
}

// timeLimits returns next with limits on the time of a request's body and of a unary response, and
// on the size of a single request. frameWriter bounds the responses of a stream. A stream of
// requests has BodyTimeout in total, until its handler clears the read deadline. Over HTTP/1
// net/http itself clears the read deadline of a connection at the end of the body, and the write
// deadline at the end of the response.
func timeLimits(cfg *Config, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// This function stays on the stack for as long as a stream lives, see intercept.Calls.Wrap.
		r, err := limited(cfg, w, r)
		if err != nil {
			http.Error(w, "internal error", http.StatusInternalServerError) // w is not one of net/http's writers
			return
		}
		next.ServeHTTP(w, r)
		limitUnreadBody(r)
	})
}

// limited sets the read and write deadlines of a request, and returns it with a body of limited
// size. It fails if w does not support deadlines.
func limited(cfg *Config, w http.ResponseWriter, r *http.Request) (*http.Request, error) {
	control := http.NewResponseController(w)
	now := time.Now()
	m := api.forProcedure(r.URL.Path)
	limit := cfg.BodyTimeout + cfg.UnaryTimeout + responseGrace
	if m.streams() {
		limit = cfg.FrameTimeout
	}
	err := control.SetWriteDeadline(now.Add(limit))
	if r.ContentLength != 0 {
		err = errors.Join(err, control.SetReadDeadline(now.Add(cfg.BodyTimeout)))
	}
	body := &timedBody{ReadCloser: r.Body}
	if !m.clientStreams { // connect bounds each message of a stream
		body.ReadCloser = http.MaxBytesReader(w, r.Body, int64(m.readBytes(cfg))+sizeSlack)
	}
	r = r.WithContext(context.WithValue(r.Context(), controllerKey{}, control))
	r.Body = body
	return r, err
}

// limitUnreadBody bounds the time in which net/http reads the rest of a body that the handler has
// not read, over HTTP/1. A client that was refused before the end of its body gets the response
// only after that.
func limitUnreadBody(r *http.Request) {
	body, ok := r.Body.(*timedBody)
	if ok && !body.ended && r.ContentLength != 0 && r.ProtoMajor == 1 {
		_ = controllerOf(r.Context()).SetReadDeadline(time.Now().Add(unreadBodyTimeout))
	}
}

// timedBody is a request's body. Its errors contain no network addresses. ended is set once all of
// it was read.
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
		err = bodyError(err)
	}
	return n, err
}
