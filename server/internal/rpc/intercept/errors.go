package intercept

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"time"

	"connectrpc.com/connect"
)

// Errors returns the interceptor that maps and logs every error of a call. It must be outside of
// Recover, Deadline and Check, whose errors it maps too. It ends a call whose request could not be
// decoded. On streams connect's own errors of receiving pass through the interceptors; there it
// replaces them with those of Explain.
func (c *Calls) Errors() connect.Interceptor {
	return &wrapper{
		unary: func(ctx context.Context, request any, next func(context.Context) error) error {
			callOf(ctx).handled = true
			err := c.DecodeError(request)
			if err == nil {
				err = next(ctx)
			}
			if err != nil {
				return c.Fail(ctx, err)
			}
			return nil
		},
		stream: func(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
			return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
				callOf(ctx).handled = true
				if err := next(ctx, &explainedConn{conn, c}); err != nil {
					return c.Fail(ctx, err)
				}
				return nil
			}
		},
	}
}

// explainedConn is a stream whose errors of receiving are those of Explain instead of connect's.
// The end of the stream and of the context pass unchanged.
type explainedConn struct {
	connect.StreamingHandlerConn

	calls *Calls
}

// Receive implements connect.StreamingHandlerConn.
func (c *explainedConn) Receive(message any) error {
	err := c.StreamingHandlerConn.Receive(message)
	switch {
	case err == nil:
		return c.calls.DecodeError(message)
	case errors.Is(err, io.EOF):
		return err
	}
	code := connect.CodeOf(err)
	if code == connect.CodeCanceled || code == connect.CodeDeadlineExceeded {
		return err
	}
	return c.calls.Explain(c.Spec().Procedure, c.RequestHeader(), code)
}

// Recover returns an interceptor that converts a panic to a *PanicError. It does not stop
// http.ErrAbortHandler, which is net/http's own.
func Recover() connect.Interceptor {
	return &wrapper{
		unary: func(ctx context.Context, _ any, next func(context.Context) error) (err error) {
			defer recovered(&err)
			return next(ctx)
		},
		stream: func(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
			return func(ctx context.Context, conn connect.StreamingHandlerConn) (err error) {
				defer recovered(&err)
				return next(ctx, conn)
			}
		},
	}
}

// Catch calls fn and returns its error. It converts a panic to a *PanicError, also one with
// http.ErrAbortHandler. It is for goroutines that a handler starts: Recover covers only the
// handler's own, and an unrecovered panic in any other ends the process.
func Catch(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return fn()
}

// recovered is the deferred function of Recover. It sets err if there is a panic.
func recovered(err *error) {
	switch p := recover(); p {
	case nil:
	case http.ErrAbortHandler:
		panic(p)
	default:
		*err = &PanicError{Value: p, Stack: debug.Stack()}
	}
}

// Deadline returns an interceptor that bounds the time of a unary call by limit, even if the
// caller's deadline is later. It does not bound streams.
func Deadline(limit time.Duration) connect.Interceptor {
	return &wrapper{unary: func(ctx context.Context, _ any, next func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return next(ctx)
	}}
}
