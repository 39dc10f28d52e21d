package parley

import (
	"context"
	"errors"
	"strings"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// firstRetryable is the lowest ErrorReason that is retryable. All higher ones are retryable too,
// including those that this version of the SDK does not know.
const firstRetryable = 100

// Error is the error of a failed call, of a failed item of a batch, or of a subscription that
// ended. Get it with errors.As. To compare its reason, use errors.Is with a sentinel such as
// ErrMessageNotFound.
type Error struct {
	// Code is the status code.
	Code connect.Code
	// Reason is the machine-readable reason. It is unspecified if the error is not Parley's own,
	// for example if it comes from the network, a proxy or the client.
	Reason parleyv1.ErrorReason
	// Retryable reports whether the same call may succeed later.
	Retryable bool
	// Message is a description for humans.
	Message string
	// Field is the path of the invalid request field. Empty if no field is invalid.
	Field string
	// Limit is the exceeded limit, in the field's unit. 0 if no limit was exceeded.
	Limit int64
	// RetryAfter is the minimum time to wait before a retry. 0 if the server does not require one.
	RetryAfter time.Duration
	// RequestID identifies the request in the server's log. It may be empty.
	RequestID string
	// Positions are set if the server ended a stream with this error: the last position that it sent
	// of each channel. With ErrNotMember and ErrCapabilityMissing from Subscribe they name the refused
	// channels.
	Positions []Position
	// Kick is set with ErrKicked: what ended the stream.
	Kick *Kick
	// UserIDs are set with ErrNoSharedChannel: the users that were refused, up to the first 50.
	UserIDs []string

	// unanswered is true if the error arose on the client's side because no complete answer
	// arrived.
	unanswered bool
	// ofStream is true if the error is about the node of a stream, and another node may have answered.
	ofStream bool
	cause    error
}

// Error returns the code, the reason if there is one, the message and the request id.
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

// Unwrap returns the underlying error. It may be nil.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is the sentinel of the error's reason.
func (e *Error) Is(target error) bool {
	reason, ok := target.(reasonError)
	return ok && e.Reason == parleyv1.ErrorReason(reason)
}

// reasonError is the sentinel of a reason.
type reasonError parleyv1.ErrorReason

// Error returns the reason's name.
func (r reasonError) Error() string {
	return "parley: " + strings.TrimPrefix(parleyv1.ErrorReason(r).String(), "ERROR_REASON_")
}

// One sentinel for each ErrorReason, for errors.Is. Its name is Err followed by the reason's name;
// ErrorReason in the proto describes each reason. These are final: the same call fails again.
var (
	ErrInvalidField         error = reasonError(parleyv1.ErrorReason_ERROR_REASON_INVALID_FIELD)
	ErrMalformedRequest     error = reasonError(parleyv1.ErrorReason_ERROR_REASON_MALFORMED_REQUEST)
	ErrTokenInvalid         error = reasonError(parleyv1.ErrorReason_ERROR_REASON_TOKEN_INVALID)
	ErrCapabilityMissing    error = reasonError(parleyv1.ErrorReason_ERROR_REASON_CAPABILITY_MISSING)
	ErrSenderMismatch       error = reasonError(parleyv1.ErrorReason_ERROR_REASON_SENDER_MISMATCH)
	ErrNotSender            error = reasonError(parleyv1.ErrorReason_ERROR_REASON_NOT_SENDER)
	ErrMessageNotFound      error = reasonError(parleyv1.ErrorReason_ERROR_REASON_MESSAGE_NOT_FOUND)
	ErrMessageRecalled      error = reasonError(parleyv1.ErrorReason_ERROR_REASON_MESSAGE_RECALLED)
	ErrMessageOpen          error = reasonError(parleyv1.ErrorReason_ERROR_REASON_MESSAGE_OPEN)
	ErrMessageClosed        error = reasonError(parleyv1.ErrorReason_ERROR_REASON_MESSAGE_CLOSED)
	ErrAppendSuperseded     error = reasonError(parleyv1.ErrorReason_ERROR_REASON_APPEND_SUPERSEDED)
	ErrSessionDeleted       error = reasonError(parleyv1.ErrorReason_ERROR_REASON_SESSION_DELETED)
	ErrClientMsgIDReused    error = reasonError(parleyv1.ErrorReason_ERROR_REASON_CLIENT_MSG_ID_REUSED)
	ErrPositionOutOfRange   error = reasonError(parleyv1.ErrorReason_ERROR_REASON_POSITION_OUT_OF_RANGE)
	ErrPageTokenInvalid     error = reasonError(parleyv1.ErrorReason_ERROR_REASON_PAGE_TOKEN_INVALID)
	ErrPageTokenForeign     error = reasonError(parleyv1.ErrorReason_ERROR_REASON_PAGE_TOKEN_FOREIGN)
	ErrResync               error = reasonError(parleyv1.ErrorReason_ERROR_REASON_RESYNC)
	ErrStreamNotFound       error = reasonError(parleyv1.ErrorReason_ERROR_REASON_STREAM_NOT_FOUND)
	ErrTooLarge             error = reasonError(parleyv1.ErrorReason_ERROR_REASON_TOO_LARGE)
	ErrLimitExceeded        error = reasonError(parleyv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED)
	ErrUnimplemented        error = reasonError(parleyv1.ErrorReason_ERROR_REASON_UNIMPLEMENTED)
	ErrNotMember            error = reasonError(parleyv1.ErrorReason_ERROR_REASON_NOT_MEMBER)
	ErrChannelExists        error = reasonError(parleyv1.ErrorReason_ERROR_REASON_CHANNEL_EXISTS)
	ErrChannelNotFound      error = reasonError(parleyv1.ErrorReason_ERROR_REASON_CHANNEL_NOT_FOUND)
	ErrIdempotencyKeyReused error = reasonError(parleyv1.ErrorReason_ERROR_REASON_IDEMPOTENCY_KEY_REUSED)
	ErrKicked               error = reasonError(parleyv1.ErrorReason_ERROR_REASON_KICKED)
	ErrNoSharedChannel      error = reasonError(parleyv1.ErrorReason_ERROR_REASON_NO_SHARED_CHANNEL)
	ErrChannelOpen          error = reasonError(parleyv1.ErrorReason_ERROR_REASON_CHANNEL_OPEN)
	ErrEtagMismatch         error = reasonError(parleyv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH)
	ErrErasureNotFound      error = reasonError(parleyv1.ErrorReason_ERROR_REASON_ERASURE_NOT_FOUND)
	ErrTokenRevoked         error = reasonError(parleyv1.ErrorReason_ERROR_REASON_TOKEN_REVOKED)
	ErrAPIKeyNotFound       error = reasonError(parleyv1.ErrorReason_ERROR_REASON_API_KEY_NOT_FOUND)
)

// The retryable reasons: the same call may succeed later.
var (
	ErrRateLimited      error = reasonError(parleyv1.ErrorReason_ERROR_REASON_RATE_LIMITED)
	ErrStoreUnavailable error = reasonError(parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE)
	ErrOutcomeUnknown   error = reasonError(parleyv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN)
	ErrBatchAborted     error = reasonError(parleyv1.ErrorReason_ERROR_REASON_BATCH_ABORTED)
	ErrSlowConsumer     error = reasonError(parleyv1.ErrorReason_ERROR_REASON_SLOW_CONSUMER)
	ErrTokenExpired     error = reasonError(parleyv1.ErrorReason_ERROR_REASON_TOKEN_EXPIRED)
	ErrShuttingDown     error = reasonError(parleyv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN)
	ErrDeadlineExceeded error = reasonError(parleyv1.ErrorReason_ERROR_REASON_DEADLINE_EXCEEDED)
	ErrInternal         error = reasonError(parleyv1.ErrorReason_ERROR_REASON_INTERNAL)
	ErrStreamStalled    error = reasonError(parleyv1.ErrorReason_ERROR_REASON_STREAM_STALLED)
	ErrNodeFull         error = reasonError(parleyv1.ErrorReason_ERROR_REASON_NODE_FULL)
	// ErrRevocationUnknown says nothing about the token, which may be valid.
	ErrRevocationUnknown error = reasonError(parleyv1.ErrorReason_ERROR_REASON_REVOCATION_UNKNOWN)
)

// The reasons of queues. ErrTopicFull and ErrTopicPaused are retryable. The others are final.
var (
	ErrTopicNotFound        error = reasonError(parleyv1.ErrorReason_ERROR_REASON_TOPIC_NOT_FOUND)
	ErrTopicExists          error = reasonError(parleyv1.ErrorReason_ERROR_REASON_TOPIC_EXISTS)
	ErrGroupNotFound        error = reasonError(parleyv1.ErrorReason_ERROR_REASON_GROUP_NOT_FOUND)
	ErrGroupExists          error = reasonError(parleyv1.ErrorReason_ERROR_REASON_GROUP_EXISTS)
	ErrHistoryGone          error = reasonError(parleyv1.ErrorReason_ERROR_REASON_HISTORY_GONE)
	ErrConfirmationRequired error = reasonError(parleyv1.ErrorReason_ERROR_REASON_CONFIRMATION_REQUIRED)
	ErrScheduledNotFound    error = reasonError(parleyv1.ErrorReason_ERROR_REASON_SCHEDULED_NOT_FOUND)
	ErrDeliveryTokenInvalid error = reasonError(parleyv1.ErrorReason_ERROR_REASON_DELIVERY_TOKEN_INVALID)
	ErrDeliveryLost         error = reasonError(parleyv1.ErrorReason_ERROR_REASON_DELIVERY_LOST)
	ErrSessionLost          error = reasonError(parleyv1.ErrorReason_ERROR_REASON_SESSION_LOST)
	ErrDeliveryGone         error = reasonError(parleyv1.ErrorReason_ERROR_REASON_DELIVERY_GONE)
	ErrUniqueKeyInUse       error = reasonError(parleyv1.ErrorReason_ERROR_REASON_UNIQUE_KEY_IN_USE)
	ErrMessageRunning       error = reasonError(parleyv1.ErrorReason_ERROR_REASON_MESSAGE_RUNNING)
	ErrSequenceTooOld       error = reasonError(parleyv1.ErrorReason_ERROR_REASON_SEQUENCE_TOO_OLD)
	ErrGroupExclusive       error = reasonError(parleyv1.ErrorReason_ERROR_REASON_GROUP_EXCLUSIVE)
	ErrTopicFull            error = reasonError(parleyv1.ErrorReason_ERROR_REASON_TOPIC_FULL)
	ErrTopicPaused          error = reasonError(parleyv1.ErrorReason_ERROR_REASON_TOPIC_PAUSED)
	ErrChannelDeleting      error = reasonError(parleyv1.ErrorReason_ERROR_REASON_CHANNEL_DELETING)
)

// ErrClosed is the error of a Subscription and of a Presence after its Close.
var ErrClosed = errors.New("parley: closed")

// toError converts an error of a generated client to an *Error. errors.Is still finds a context's
// error in it.
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
	e := &Error{Code: ce.Code(), Message: ce.Message(), cause: err}
	answered := connect.IsWireError(err)
	if answered {
		// Meta is called only for answers: it writes to an error that has no metadata, and connect shares
		// one error value among streams that end without an answer.
		e.RequestID = ce.Meta().Get("X-Request-Id")
	}
	if detail := findDetail(ce); detail != nil {
		e.fill(detail)
		return e
	}
	if answered {
		e.Retryable = temporary(ce.Code())
	} else {
		// The error arose on the client's side. A broken connection produces many different codes.
		// Only an answer that is too large to read, and an unimplemented call, are final.
		e.Retryable = ce.Code() != connect.CodeResourceExhausted && ce.Code() != connect.CodeUnimplemented
		e.unanswered = true
	}
	return e
}

// temporary reports whether an error with this code and without a detail, for example from a proxy,
// is temporary.
func temporary(code connect.Code) bool {
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
	e.Kick, e.UserIDs = d.GetKick(), d.GetUserIds()
	for _, p := range d.GetPositions() {
		e.Positions = append(e.Positions, Position{ChannelID: p.GetChannelId(), Seq: p.GetSeq(), Epoch: p.GetEpoch()})
	}
}

// itemError converts the error of a batch item.
func itemError(item *parleyv1.ItemError) *Error {
	e := &Error{Code: statusCode(item.GetCode()), Message: item.GetMessage()}
	if d := item.GetDetail(); d != nil {
		e.fill(d)
	} else {
		e.Retryable = temporary(e.Code)
	}
	return e
}

// statusCode converts a code of the proto. The numbers of both are those of gRPC.
func statusCode(code parleyv1.StatusCode) connect.Code {
	if code < parleyv1.StatusCode_STATUS_CODE_CANCELLED || code > parleyv1.StatusCode_STATUS_CODE_UNAUTHENTICATED {
		return connect.CodeUnknown
	}
	return connect.Code(code)
}

// tokenError converts the error of a token source. It is final if it wraps ErrTokenInvalid.
func tokenError(err error) error {
	e := &Error{Code: connect.CodeUnauthenticated, Message: err.Error(), Retryable: true, cause: err}
	if errors.Is(err, ErrTokenInvalid) {
		e.Reason, e.Retryable = parleyv1.ErrorReason_ERROR_REASON_TOKEN_INVALID, false
	}
	return e
}

// invalid returns the error for a field that the client refuses to send.
func invalid(field, message string) *Error {
	return &Error{
		Code:    connect.CodeInvalidArgument,
		Reason:  parleyv1.ErrorReason_ERROR_REASON_INVALID_FIELD,
		Field:   field,
		Message: field + ": " + message,
	}
}

// callTimeoutError is the error of a call that reached the client's default deadline. It wraps
// context.DeadlineExceeded.
type callTimeoutError struct{ timeout time.Duration }

// Error returns a text with the deadline.
func (e *callTimeoutError) Error() string {
	return "the call did not finish within its deadline of " + e.timeout.String()
}

// Unwrap returns context.DeadlineExceeded.
func (e *callTimeoutError) Unwrap() error { return context.DeadlineExceeded }

// interruptedError is the error of a call whose context ended during its retries. It wraps the
// context's error and the last failure.
type interruptedError struct{ end, last error }

// interrupted returns the error of a call whose context ended. last is the failure before that, or
// nil.
func interrupted(ctx context.Context, last error) error {
	end := ctx.Err()
	if timeout, ok := errors.AsType[*callTimeoutError](context.Cause(ctx)); ok {
		end = timeout
	}
	if last == nil {
		return end
	}
	return &interruptedError{end: end, last: last}
}

// failureBefore returns the failure to report when ctx has ended: last if it is not nil, else err
// unless the end of ctx caused it. It may return nil.
func failureBefore(ctx context.Context, last, err error) error {
	if last != nil || errors.Is(err, ctx.Err()) {
		return last
	}
	return err
}

// Error returns the texts of both errors.
func (e *interruptedError) Error() string {
	return e.end.Error() + "; last failure: " + e.last.Error()
}

// Unwrap returns both errors.
func (e *interruptedError) Unwrap() []error { return []error{e.end, e.last} }
