package cluster

import (
	"time"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/fault"
)

// FaultToWire encodes an error for another node; nil stays nil. It omits a fault's cause. An error
// that is not a fault becomes INTERNAL without its text.
func FaultToWire(err error) *clusterv1.Fault {
	if err == nil {
		return nil
	}
	e, ok := fault.As(err)
	if !ok {
		e = fault.Wrap(err, fault.Internal, fault.InternalError, "internal error")
	}
	w := &clusterv1.Fault{
		Kind: int32(e.Kind), Reason: string(e.Reason), Msg: e.Msg, Field: e.Field, Limit: e.Limit,
		// Rounded up: a retry must not come too early.
		RetryAfterMs: (e.RetryAfter + time.Millisecond - 1).Milliseconds(),
	}
	for _, p := range e.Positions {
		w.Positions = append(w.Positions, &clusterv1.FaultPosition{ChannelId: p.ChannelID, Seq: p.Seq, Epoch: p.Epoch})
	}
	return w
}

// FaultFromWire decodes a fault encoded by FaultToWire; nil stays nil. An unknown kind becomes
// Internal.
func FaultFromWire(w *clusterv1.Fault) error {
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
	for _, p := range w.GetPositions() {
		e.Positions = append(e.Positions, fault.Position{ChannelID: p.GetChannelId(), Seq: p.GetSeq(), Epoch: p.GetEpoch()})
	}
	return e
}
