package intercept

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"connectrpc.com/connect"
)

// Errors maps every error of a call by toWire and logs it. It stands outside Recover, Deadline and Input, whose errors
// it maps too.
func Errors(log *slog.Logger, toWire Mapper) connect.Interceptor {
	failed := func(ctx context.Context, err error) error {
		wire := toWire(ctx, err)
		logFailure(ctx, log, err, wire)
		return wire
	}
	return &wrapper{
		unary: func(ctx context.Context, _ connect.Spec, _ any, next func(context.Context) error) error {
			callOf(ctx).settled = true
			if err := next(ctx); err != nil {
				return failed(ctx, err)
			}
			return nil
		},
		stream: func(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
			return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
				callOf(ctx).settled = true
				if err := next(ctx, conn); err != nil {
					return failed(ctx, err)
				}
				return nil
			}
		},
	}
}

// Recover turns a panic into a *PanicError. http.ErrAbortHandler is net/http's own and passes.
func Recover() connect.Interceptor {
	return &wrapper{
		unary: func(ctx context.Context, _ connect.Spec, _ any, next func(context.Context) error) (err error) {
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

// recovered is what Recover defers.
func recovered(err *error) {
	switch p := recover(); p {
	case nil:
	case http.ErrAbortHandler:
		panic(p)
	default:
		*err = &PanicError{Value: p, Stack: debug.Stack()}
	}
}

// Deadline bounds a unary call, whatever deadline it came with. Streams live as long as they are wanted.
func Deadline(limit time.Duration) connect.Interceptor {
	return &wrapper{unary: func(ctx context.Context, _ connect.Spec, _ any, next func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return next(ctx)
	}}
}
