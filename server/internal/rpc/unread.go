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

// countedResponse is the size in bytes from which a unary response counts against the budget of
// unread bytes. What smaller ones occupy is bounded by the number of calls.
const countedResponse = 16 << 10

// unreadRetry is the time that a call waits before it is repeated because too many responses wait
// to be read.
const unreadRetry = time.Second

// unreadResponses is an interceptor that takes each large unary response from the budget until its
// connection has taken it. If the budget is used up, it drops the response. The hubs bound what
// waits for streams.
type unreadResponses struct{ budget *unread.Budget }

// WrapUnary implements connect.Interceptor.
func (u unreadResponses) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		res, err := next(ctx, req)
		if err != nil {
			return nil, err
		}
		message, ok := res.Any().(proto.Message)
		if !ok {
			return res, nil
		}
		size := int64(proto.Size(message))
		if size < countedResponse {
			return res, nil
		}
		var subject string
		if p := ident.FromContext(ctx); p != nil { // nil for health checks
			subject = p.Subject
		}
		if !u.budget.Take(subject, size) {
			return nil, dropped(req.Spec().Procedure, u.budget)
		}
		intercept.AtEnd(ctx, func() { u.budget.Return(subject, size) })
		return res, nil
	}
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
