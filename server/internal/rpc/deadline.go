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
