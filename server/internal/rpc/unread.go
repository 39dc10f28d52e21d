package rpc

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/rpc/intercept"
	"github.com/parleyhq/parley/server/internal/unread"
)

// largeResponse is the size in bytes from which a unary response is large: it may not take the part
// of the budget that is reserved for small ones.
const largeResponse = 16 << 10

// waitingCall is what a call occupies besides its response while it waits for its client, in bytes:
// its goroutine's stack and the server's buffers. Its request is released by then. 2,000 such calls
// had 19 to 30 KiB of heap and stacks each.
const waitingCall = 32 << 10

// unreadRetry is the time that a call waits before it is repeated because too many responses wait
// to be read. It is also the time that the connection has to take the error.
const unreadRetry = time.Second

// unreadResponses is an interceptor that takes each unary response, or error, from the budget until
// its connection has taken it. If the budget is used up, it drops the response. The hubs bound what
// waits for streams.
type unreadResponses struct{ budget *unread.Budget }

// WrapUnary implements connect.Interceptor.
func (u unreadResponses) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		res, err := next(ctx, req)
		size := int64(0) // of an error: it is within waitingCall
		if err == nil {
			if message, ok := res.Any().(proto.Message); ok {
				size = int64(proto.Size(message))
			}
		}
		if u.take(ctx, size) {
			return res, err
		}
		if control := controllerOf(ctx); control != nil {
			_ = control.SetWriteDeadline(time.Now().Add(unreadRetry)) // the connection may have ended
		}
		if err == nil {
			err = dropped(req.Spec().Procedure, u.budget)
		}
		return nil, err
	}
}

// take takes a response of this size from the caller's budget until the call ends.
func (u unreadResponses) take(ctx context.Context, size int64) bool {
	p := ident.FromContext(ctx)
	if p == nil { // a health check, whose response has a few bytes
		return true
	}
	take := u.budget.TakeSmall
	if size >= largeResponse {
		take = u.budget.Take
	}
	size += waitingCall
	if !take(p.Subject, size) {
		return false
	}
	subject := p.Subject
	intercept.AtEnd(ctx, func() { u.budget.Return(subject, size) })
	return true
}

// WrapStreamingClient implements connect.Interceptor.
func (unreadResponses) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (unreadResponses) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// dropped returns the error of a call whose response was dropped.
func dropped(procedure string, budget *unread.Budget) error {
	perSubject, total := budget.Limits()
	if api.forProcedure(procedure).sideEffects {
		return fault.New(fault.Unavailable, fault.OutcomeUnknown,
			"the call was made, but its response was dropped: more than %d bytes of responses to this subject, or %d of all, are not read yet",
			perSubject, total)
	}
	f := fault.New(fault.ResourceExhausted, fault.RateLimited,
		"more than %d bytes of responses to this subject, or %d of all, are not read yet", perSubject, total)
	f.RetryAfter = unreadRetry
	return f
}
