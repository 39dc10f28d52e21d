package cluster

import (
	"time"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/fault"
)

// faultToWire tells another node of a failure; nil for none. The cause stays here, and an error that is no fault tells
// nothing. The positions of a cut stream don't travel.
func faultToWire(err error) *clusterv1.Fault {
	if err == nil {
		return nil
	}
	e, ok := fault.As(err)
	if !ok {
		e = fault.Wrap(err, fault.Internal, fault.InternalError, "internal error")
	}
	return &clusterv1.Fault{
		Kind: int32(e.Kind), Reason: string(e.Reason), Msg: e.Msg, Field: e.Field, Limit: e.Limit,
		// Rounded up: a retry must not come too early.
		RetryAfterMs: (e.RetryAfter + time.Millisecond - 1).Milliseconds(),
	}
}

// faultFromWire reads what faultToWire made. A kind that this version does not know is internal.
func faultFromWire(w *clusterv1.Fault) error {
	if w == nil {
		return nil
	}
	kind := fault.Internal
	if k := w.GetKind(); k > 0 && k <= int32(fault.DeadlineExceeded) {
		kind = fault.Kind(k)
	}
	e := fault.New(kind, fault.Reason(w.GetReason()), "%s", w.GetMsg())
	e.Field, e.Limit = w.GetField(), w.GetLimit()
	e.RetryAfter = time.Duration(w.GetRetryAfterMs()) * time.Millisecond
	return e
}
