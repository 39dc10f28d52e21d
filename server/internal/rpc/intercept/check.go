package intercept

import (
	"context"

	"connectrpc.com/connect"
)

// Check returns an interceptor that calls check with each request, also with each request of a
// client's stream, before the handler gets it. If check fails, the handler does not get the
// request, and the call fails with that error.
func Check(check func(ctx context.Context, request any) error) connect.Interceptor {
	return &wrapper{
		unary: func(ctx context.Context, request any, next func(context.Context) error) error {
			if err := check(ctx, request); err != nil {
				return err
			}
			return next(ctx)
		},
		stream: func(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
			return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
				return next(ctx, &checkedConn{conn, ctx, check})
			}
		},
	}
}

// checkedConn is a stream that checks each message before its handler receives it.
type checkedConn struct {
	connect.StreamingHandlerConn

	ctx   context.Context //nolint:containedctx // Receive has none, and the connection lives as long as its call
	check func(ctx context.Context, request any) error
}

// Receive implements connect.StreamingHandlerConn.
func (c *checkedConn) Receive(message any) error {
	if err := c.StreamingHandlerConn.Receive(message); err != nil {
		return err
	}
	return c.check(c.ctx, message)
}
