package parley

import (
	"context"
	"errors"
	"strings"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// firstRetryable is the lowest ErrorReason that is retryable. A reason that this version of the SDK does not know is
// judged by it.
const firstRetryable = 100

// Error is a failed call, a failed item of a batch, or the end of a subscription. Use errors.As to see it, and errors.Is
// with ErrNotFound and its like to switch on the reason.
type Error struct {
	// Code is the status code.
	Code connect.Code
	// Reason is why, for programs. It is unspecified if the failure is not one that Parley itself raised: the network,
	// a proxy, the client.
	Reason parleyv1.ErrorReason
	// Retryable says whether the same call may succeed later.
	Retryable bool
	// Message is for people.
	Message string
	// Field is the request's field at fault, as a path; empty if none is.
	Field string
	// Limit is the limit that was broken, in the field's unit; 0 if none was.
	Limit int64
	// RetryAfter is the least time to wait before a retry; 0 says nothing.
	RetryAfter time.Duration
	// RequestID finds the request in the server's log; may be empty.
	RequestID string
	// Positions are where a cut stream stood, by what the server had sent; with ErrNotMember from Subscribe, the channels
	// refused.
	Positions []Position

	// unanswered is true if the failure arose on the client's side, for want of a sound answer.
	unanswered bool
	cause      error
}

// Error gives the text for people, with the reason where there is one.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Code.String())
	if e.Reason != parleyv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		b.WriteString(" (" + strings.TrimPrefix(e.Reason.String(), "ERROR_REASON_") + ")")
	}
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	if e.RequestID != "" {
		b.WriteString(" [request " + e.RequestID + "]")
	}
	return b.String()
}

// Unwrap gives what the error was made from.
func (e *Error) Unwrap() error { return e.cause }

// Is compares the reason with that of ErrNotFound and its like.
func (e *Error) Is(target error) bool {
	reason, ok := target.(reasonError)
	return ok && e.Reason == parleyv1.ErrorReason(reason)
}

// reasonError stands for every Error of its reason.
type reasonError parleyv1.ErrorReason

// Error gives the reason's name.
func (r reasonError) Error() string {
	return "parley: " + strings.TrimPrefix(parleyv1.ErrorReason(r).String(), "ERROR_REASON_")
}

// What errors.Is compares the reason of an Error with. ErrorReason in the proto says what each one means.
var (
	ErrInvalidField      error = reasonError(parleyv1.ErrorReason_ERROR_REASON_INVALID_FIELD)
	ErrTokenInvalid      error = reasonError(parleyv1.ErrorReason_ERROR_REASON_TOKEN_INVALID)
	ErrCapabilityMissing error = reasonError(parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING)
	ErrSenderMismatch    error = reasonError(parleyv1.ErrorReason_ERROR_REASON_SENDER_MISMATCH)
	ErrNotSender         error = reasonError(parleyv1.ErrorReason_ERROR_REASON_NOT_SENDER)
	ErrNotFound          error = reasonError(parleyv1.ErrorReason_ERROR_REASON_MESSAGE_NOT_FOUND)
	ErrRecalled          error = reasonError(parleyv1.ErrorReason_ERROR_REASON_MESSAGE_RECALLED)
	ErrClientMsgIDReused error = reasonError(parleyv1.ErrorReason_ERROR_REASON_CLIENT_MSG_ID_REUSED)
	ErrOutOfRange        error = reasonError(parleyv1.ErrorReason_ERROR_REASON_POSITION_OUT_OF_RANGE)
	ErrResync            error = reasonError(parleyv1.ErrorReason_ERROR_REASON_RESYNC)
	ErrTooLarge          error = reasonError(parleyv1.ErrorReason_ERROR_REASON_TOO_LARGE)
	ErrLimitExceeded     error = reasonError(parleyv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED)
	ErrNotMember         error = reasonError(parleyv1.ErrorReason_ERROR_REASON_NOT_MEMBER)
	ErrChannelExists     error = reasonError(parleyv1.ErrorReason_ERROR_REASON_CHANNEL_EXISTS)
	ErrChannelNotFound   error = reasonError(parleyv1.ErrorReason_ERROR_REASON_CHANNEL_NOT_FOUND)
	ErrRateLimited       error = reasonError(parleyv1.ErrorReason_ERROR_REASON_RATE_LIMITED)
	ErrStoreUnavailable  error = reasonError(parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE)
	ErrOutcomeUnknown    error = reasonError(parleyv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN)
	ErrSlowConsumer      error = reasonError(parleyv1.ErrorReason_ERROR_REASON_SLOW_CONSUMER)
	ErrTokenExpired      error = reasonError(parleyv1.ErrorReason_ERROR_REASON_TOKEN_EXPIRED)
	ErrShuttingDown      error = reasonError(parleyv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN)
)

// The same, of queues.
var (
	ErrTopicNotFound        error = reasonError(parleyv1.ErrorReason_ERROR_REASON_TOPIC_NOT_FOUND)
	ErrTopicExists          error = reasonError(parleyv1.ErrorReason_ERROR_REASON_TOPIC_EXISTS)
	ErrTopicPaused          error = reasonError(parleyv1.ErrorReason_ERROR_REASON_TOPIC_PAUSED)
	ErrTopicFull            error = reasonError(parleyv1.ErrorReason_ERROR_REASON_TOPIC_FULL)
	ErrGroupNotFound        error = reasonError(parleyv1.ErrorReason_ERROR_REASON_GROUP_NOT_FOUND)
	ErrGroupExists          error = reasonError(parleyv1.ErrorReason_ERROR_REASON_GROUP_EXISTS)
	ErrGroupInUse           error = reasonError(parleyv1.ErrorReason_ERROR_REASON_GROUP_IN_USE)
	ErrIdempotencyKeyReused error = reasonError(parleyv1.ErrorReason_ERROR_REASON_IDEMPOTENCY_KEY_REUSED)
	ErrScheduledNotFound    error = reasonError(parleyv1.ErrorReason_ERROR_REASON_SCHEDULED_NOT_FOUND)
	ErrLeaseLost            error = reasonError(parleyv1.ErrorReason_ERROR_REASON_LEASE_LOST)
	ErrAlreadySettled       error = reasonError(parleyv1.ErrorReason_ERROR_REASON_ALREADY_SETTLED)
	ErrAckTimeout           error = reasonError(parleyv1.ErrorReason_ERROR_REASON_ACK_TIMEOUT)
	ErrConfirmationRequired error = reasonError(parleyv1.ErrorReason_ERROR_REASON_CONFIRMATION_REQUIRED)
)

// ErrClosed ends a subscription that was closed by its own side.
var ErrClosed = errors.New("parley: subscription closed")

// toError makes an *Error of what a generated client gave. Contexts' own errors stay recognisable by errors.Is.
func toError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return &Error{Code: connect.CodeUnknown, Message: err.Error(), Retryable: true, unanswered: true, cause: err}
	}
	e := &Error{Code: ce.Code(), Message: ce.Message(), RequestID: ce.Meta().Get("X-Request-Id"), cause: err}
	if detail := findDetail(ce); detail != nil {
		e.fill(detail)
		return e
	}
	if connect.IsWireError(err) {
		e.Retryable = passing(ce.Code())
	} else {
		// The client's own side: a broken connection has many codes. What cannot get better is an answer too large to read.
		e.Retryable = ce.Code() != connect.CodeResourceExhausted && ce.Code() != connect.CodeUnimplemented
		e.unanswered = true
	}
	return e
}

// passing says which codes may get better by themselves where nothing else is known, as from a proxy.
func passing(code connect.Code) bool {
	switch code {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeAborted, connect.CodeCanceled:
		return true
	default:
		return false
	}
}

func findDetail(ce *connect.Error) *parleyv1.ErrorDetail {
	for _, d := range ce.Details() {
		if value, err := d.Value(); err == nil {
			if detail, ok := value.(*parleyv1.ErrorDetail); ok {
				return detail
			}
		}
	}
	return nil
}

func (e *Error) fill(d *parleyv1.ErrorDetail) {
	e.Reason, e.Field, e.Limit = d.GetReason(), d.GetField(), d.GetLimit()
	e.RetryAfter = d.GetRetryAfter().AsDuration()
	if id := d.GetRequestId(); id != "" {
		e.RequestID = id
	}
	e.Retryable = d.GetReason() >= firstRetryable
	if d.GetReason() == parleyv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		e.Retryable = d.GetRetryable()
	}
	for _, p := range d.GetPositions() {
		e.Positions = append(e.Positions, Position{ChannelID: p.GetChannelId(), Seq: p.GetSeq(), Epoch: p.GetEpoch()})
	}
}

// itemError makes an *Error of a batch item's.
func itemError(item *parleyv1.ItemError) *Error {
	e := &Error{Code: connect.CodeUnknown, Message: item.GetMessage()}
	if err := e.Code.UnmarshalText([]byte(item.GetCode())); err != nil {
		e.Code = connect.CodeUnknown
	}
	if d := item.GetDetail(); d != nil {
		e.fill(d)
	} else {
		e.Retryable = passing(e.Code)
	}
	return e
}

// tokenError makes the error of a token source that failed: final if it says that the token will not come.
func tokenError(err error) error {
	e := &Error{Code: connect.CodeUnauthenticated, Message: err.Error(), Retryable: true, cause: err}
	if errors.Is(err, ErrTokenInvalid) {
		e.Reason, e.Retryable = parleyv1.ErrorReason_ERROR_REASON_TOKEN_INVALID, false
	}
	return e
}

// invalid makes the error of a field that the client refuses before it is sent.
func invalid(field, message string) *Error {
	return &Error{
		Code:    connect.CodeInvalidArgument,
		Reason:  parleyv1.ErrorReason_ERROR_REASON_INVALID_FIELD,
		Field:   field,
		Message: field + ": " + message,
	}
}

// interruptedError is a call that its context ended while it was being retried. It is both: the context's error, and
// the failure that it was waiting out.
type interruptedError struct{ ctxErr, last error }

func interrupted(ctx context.Context, last error) error {
	if last == nil || errors.Is(last, ctx.Err()) {
		return ctx.Err()
	}
	return &interruptedError{ctxErr: ctx.Err(), last: last}
}

// Error tells both.
func (e *interruptedError) Error() string {
	return e.ctxErr.Error() + "; last failure: " + e.last.Error()
}

// Unwrap gives both.
func (e *interruptedError) Unwrap() []error { return []error{e.ctxErr, e.last} }
