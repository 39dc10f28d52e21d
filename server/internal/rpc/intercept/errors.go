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
	return &wrapper{do: func(ctx context.Context, _ connect.Spec, _ any, next func(context.Context) error) error {
		callOf(ctx).settled = true
		err := next(ctx)
		if err == nil {
			return nil
		}
		wire := toWire(ctx, err)
		logFailure(ctx, log, err, wire)
		return wire
	}}
}

// Recover turns a panic into a *PanicError. http.ErrAbortHandler is net/http's own and passes.
func Recover() connect.Interceptor {
	return &wrapper{do: func(ctx context.Context, _ connect.Spec, _ any, next func(context.Context) error) (err error) {
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				panic(p)
			default:
				err = &PanicError{Value: p, Stack: debug.Stack()}
			}
		}()
		return next(ctx)
	}}
}

// Deadline bounds a unary call, whatever deadline it came with. Streams live as long as they are wanted.
func Deadline(limit time.Duration) connect.Interceptor {
	return &wrapper{do: func(ctx context.Context, spec connect.Spec, _ any, next func(context.Context) error) error {
		if spec.StreamType == connect.StreamTypeUnary {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, limit)
			defer cancel()
		}
		return next(ctx)
	}}
}
