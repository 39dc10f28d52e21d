package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
)

// Outcome is the outcome of a call.
type Outcome string

// The outcomes.
const (
	// OK means that the call succeeded.
	OK Outcome = "ok"
	// Failed means an error that guarantees that nothing was changed.
	Failed Outcome = "failed"
	// Unknown means any other end: a timeout, a lost connection, an `unavailable`. A write may or
	// may not be stored.
	Unknown Outcome = "unknown"
)

// Ending is the result of a call. Code, Reason and Err are zero if the outcome is OK.
type Ending struct {
	Outcome Outcome
	// Code is the name of the status code, such as `already_exists`.
	Code   string
	Reason parleyv1.ErrorReason
	Err    string
}

// String returns the code and the text of the error. It returns "" if the outcome is OK.
func (e Ending) String() string {
	if e.Outcome == OK {
		return ""
	}
	return e.Code + ": " + e.Err
}

// EndingOf returns the ending of a call of a generated client. A nil err is OK.
func EndingOf(err error) Ending {
	if err == nil {
		return Ending{Outcome: OK}
	}
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return Ending{Outcome: Unknown, Code: "unknown", Err: err.Error()}
	}
	reason := reasonOf(ce)
	return Ending{Outcome: outcomeOf(reason), Code: ce.Code().String(), Reason: reason, Err: ce.Message()}
}

// EndingOfItem returns the ending of one item of a call that was answered. A nil e is OK.
func EndingOfItem(e *parleyv1.ItemError) Ending {
	if e == nil {
		return Ending{Outcome: OK}
	}
	reason := e.GetDetail().GetReason()
	code := connect.Code(e.GetCode()).String() //nolint:gosec // gRPC's numbers, as connect's
	return Ending{Outcome: outcomeOf(reason), Code: code, Reason: reason, Err: e.GetMessage()}
}

// EndingOfSDK returns the ending of a call of the SDK. A nil err is OK. The SDK may have made
// several attempts, so only a reason that is not retryable guarantees that none of them changed
// anything.
func EndingOfSDK(err error) Ending {
	if err == nil {
		return Ending{Outcome: OK}
	}
	pe, ok := errors.AsType[*parley.Error](err)
	switch {
	case !ok:
		return Ending{Outcome: Unknown, Code: "deadline_exceeded", Err: err.Error()}
	case errors.Is(err, context.DeadlineExceeded):
		return Ending{Outcome: Unknown, Code: "deadline_exceeded", Reason: pe.Reason, Err: err.Error()}
	case pe.Reason != 0 && pe.Reason < firstRetryable:
		return Ending{Outcome: Failed, Code: pe.Code.String(), Reason: pe.Reason, Err: pe.Error()}
	default:
		return Ending{Outcome: Unknown, Code: pe.Code.String(), Reason: pe.Reason, Err: pe.Error()}
	}
}

func reasonOf(err *connect.Error) parleyv1.ErrorReason {
	for _, d := range err.Details() {
		if v, err := d.Value(); err == nil {
			if detail, ok := v.(*parleyv1.ErrorDetail); ok {
				return detail.GetReason()
			}
		}
	}
	return parleyv1.ErrorReason_ERROR_REASON_UNSPECIFIED
}

// firstRetryable is the lowest reason of a retryable error. An error with a lower reason, except
// 0, is final: a retry would get it again.
const firstRetryable = 100

// outcomeOf returns the outcome of one attempt that failed for a reason. The proto guarantees that
// nothing was stored if the reason is final or one of the retryable ones named here.
func outcomeOf(r parleyv1.ErrorReason) Outcome {
	switch {
	case r == parleyv1.ErrorReason_ERROR_REASON_UNSPECIFIED:
		return Unknown
	case r < firstRetryable,
		r == parleyv1.ErrorReason_ERROR_REASON_RATE_LIMITED,
		r == parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE,
		r == parleyv1.ErrorReason_ERROR_REASON_TOPIC_FULL,
		r == parleyv1.ErrorReason_ERROR_REASON_TOPIC_PAUSED,
		r == parleyv1.ErrorReason_ERROR_REASON_NODE_FULL,
		r == parleyv1.ErrorReason_ERROR_REASON_BATCH_ABORTED,
		r == parleyv1.ErrorReason_ERROR_REASON_CHANNEL_DELETING:
		return Failed
	default:
		return Unknown
	}
}

// Tally counts calls by kind and outcome.
type Tally[K ~string] map[K]map[Outcome]int

// Add counts a call.
func (t Tally[K]) Add(kind K, o Outcome) {
	if t[kind] == nil {
		t[kind] = make(map[Outcome]int)
	}
	t[kind][o]++
}

// Write writes a heading and a line for each kind, sorted by name.
func (t Tally[K]) Write(w io.Writer) {
	_, _ = fmt.Fprintf(w, "%-10s %9s %9s %9s\n", "op", OK, Failed, Unknown)
	for _, kind := range slices.Sorted(maps.Keys(t)) {
		_, _ = fmt.Fprintf(w, "%-10s %9d %9d %9d\n", kind, t[kind][OK], t[kind][Failed], t[kind][Unknown])
	}
}
