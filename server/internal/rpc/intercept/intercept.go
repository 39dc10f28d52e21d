// Package intercept implements what every call passes through besides its own code: request id,
// log, recovery from panics, mapping of errors, deadline and checks of the input. It has two
// halves, because interceptors of unary calls run only after the body was read and decoded: Calls
// is HTTP middleware around everything, the rest are interceptors.
//
// Every failed call is logged once: by Errors if it reached the interceptors, by Calls.Fail if
// middleware or connect refused it, and otherwise by Calls, which then knows only the status.
package intercept

import (
	"context"

	"connectrpc.com/connect"
)

// wrapper is an interceptor with separate functions for unary calls and streams. The function for
// streams stays on the stack of a stream's goroutine for as long as the stream lives, and so in the
// memory of every idle subscriber. That is why it is separate, with as few frames around it as
// possible.
type wrapper struct {
	// unary gets the decoded request. next calls the rest of the interceptors and the handler.
	unary func(ctx context.Context, request any, next func(context.Context) error) error
	// stream implements WrapStreamingHandler; nil leaves streams unchanged.
	stream func(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc
}

var _ connect.Interceptor = (*wrapper)(nil)

// WrapUnary implements connect.Interceptor.
func (w *wrapper) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		var resp connect.AnyResponse
		err := w.unary(ctx, req.Any(), func(ctx context.Context) error {
			var err error
			resp, err = next(ctx, req)
			return err
		})
		if err != nil {
			return nil, err
		}
		return resp, nil
	}
}

// WrapStreamingClient implements connect.Interceptor. It returns next: the server has no clients.
func (w *wrapper) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (w *wrapper) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	if w.stream == nil {
		return next
	}
	return w.stream(next)
}
