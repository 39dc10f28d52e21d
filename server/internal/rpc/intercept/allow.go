package intercept

import (
	"context"

	"connectrpc.com/connect"

	"github.com/parleyhq/parley/server/internal/ident"
)

// Allow asks whether the caller may make a request, before anything else is judged of it. Of a stream it asks for each
// message.
func Allow(may func(p *ident.Principal, request any) error) connect.Interceptor {
	return &wrapper{
		unary: func(ctx context.Context, _ connect.Spec, request any, next func(context.Context) error) error {
			if err := may(ident.FromContext(ctx), request); err != nil {
				return err
			}
			return next(ctx)
		},
		stream: func(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
			return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
				check := func(_ connect.Spec, message any) error { return may(ident.FromContext(ctx), message) }
				return next(ctx, &receiver{conn, check})
			}
		},
	}
}
