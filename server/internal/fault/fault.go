// Package fault is the error model of the server's domain: what kind of failure it is, why, and what a client may be
// told of it. The transport maps a fault onto the wire in one place; an error that is no fault is internal, and shows
// a client nothing.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Kind is what went wrong, in the terms of the gRPC status codes that the transport maps it to.
type Kind uint8

// The kinds. Internal is the zero value, so a fault that forgot its kind tells nothing.
const (
	Internal Kind = iota
	InvalidArgument
	NotFound
	AlreadyExists
	PermissionDenied
	Unauthenticated
	ResourceExhausted
	FailedPrecondition
	Aborted
	OutOfRange
	Unimplemented
	Unavailable
	DeadlineExceeded
)

// Reason is the machine-readable cause. Its values are the names of parley.v1.ErrorReason without their prefix; a test
// in the transport holds the two together.
type Reason string

// The reasons that the domain gives.
const (
	InvalidField         Reason = "INVALID_FIELD"
	MalformedRequest     Reason = "MALFORMED_REQUEST"
	TokenInvalid         Reason = "TOKEN_INVALID"
	CapabilityMissing    Reason = "CAPABILITY_MISSING"
	SenderMismatch       Reason = "SENDER_MISMATCH"
	NotSender            Reason = "NOT_SENDER"
	MessageNotFound      Reason = "MESSAGE_NOT_FOUND"
	MessageRecalled      Reason = "MESSAGE_RECALLED"
	ClientMsgIDReused    Reason = "CLIENT_MSG_ID_REUSED"
	PositionOutOfRange   Reason = "POSITION_OUT_OF_RANGE"
	PageTokenInvalid     Reason = "PAGE_TOKEN_INVALID"
	PageTokenForeign     Reason = "PAGE_TOKEN_FOREIGN"
	Resync               Reason = "RESYNC"
	StreamNotFound       Reason = "STREAM_NOT_FOUND"
	TooLarge             Reason = "TOO_LARGE"
	LimitExceeded        Reason = "LIMIT_EXCEEDED"
	UnimplementedCall    Reason = "UNIMPLEMENTED"
	NotMember            Reason = "NOT_MEMBER"
	ChannelExists        Reason = "CHANNEL_EXISTS"
	ChannelNotFound      Reason = "CHANNEL_NOT_FOUND"
	TopicNotFound        Reason = "TOPIC_NOT_FOUND"
	TopicExists          Reason = "TOPIC_EXISTS"
	GroupNotFound        Reason = "GROUP_NOT_FOUND"
	GroupExists          Reason = "GROUP_EXISTS"
	IdempotencyKeyReused Reason = "IDEMPOTENCY_KEY_REUSED"
	TopicPaused          Reason = "TOPIC_PAUSED"
	LeaseLost            Reason = "LEASE_LOST"
	AlreadySettled       Reason = "ALREADY_SETTLED"
	DeliveryTokenInvalid Reason = "DELIVERY_TOKEN_INVALID"
	ScheduledNotFound    Reason = "SCHEDULED_NOT_FOUND"
	ConfirmationRequired Reason = "CONFIRMATION_REQUIRED"
	GroupInUse           Reason = "GROUP_IN_USE"
	HistoryGone          Reason = "HISTORY_GONE"
	RateLimited          Reason = "RATE_LIMITED"
	StoreUnavailable     Reason = "STORE_UNAVAILABLE"
	OutcomeUnknown       Reason = "OUTCOME_UNKNOWN"
	BatchAborted         Reason = "BATCH_ABORTED"
	SlowConsumer         Reason = "SLOW_CONSUMER"
	TokenExpired         Reason = "TOKEN_EXPIRED"
	ShuttingDown         Reason = "SHUTTING_DOWN"
	DeadlinePassed       Reason = "DEADLINE_EXCEEDED"
	InternalError        Reason = "INTERNAL"
	StreamStalled        Reason = "STREAM_STALLED"
	TopicFull            Reason = "TOPIC_FULL"
	AckTimeout           Reason = "ACK_TIMEOUT"
	NodeFull             Reason = "NODE_FULL"
)

// Position is the last entry of a channel that a stream was sent.
type Position struct {
	ChannelID string
	Seq       int64
	Epoch     string
}

// Error is a failure that a client may be told of. Msg must hold nothing of the server's inside: no address, no path,
// no driver's text. Those belong to Cause, which is logged and never sent.
type Error struct {
	Kind   Kind
	Reason Reason
	Msg    string
	// Field is the request's field at fault, as a path; empty if none is.
	Field string
	// Limit is the limit that was broken, in the field's unit; 0 if none was.
	Limit int64
	// RetryAfter is the least time to wait before a retry; 0 says nothing.
	RetryAfter time.Duration
	// Positions tell where a cut stream stood; with NotMember they name the channels refused.
	Positions []Position
	// Cause is for the log only.
	Cause error
}

// Error gives what a client may read.
func (e *Error) Error() string { return e.Msg }

// Unwrap gives the cause, so that errors.Is sees through a fault.
func (e *Error) Unwrap() error { return e.Cause }

// Retryable reports whether the same call may succeed later.
func (e *Error) Retryable() bool {
	switch e.Reason {
	case RateLimited, StoreUnavailable, OutcomeUnknown, BatchAborted, SlowConsumer, TokenExpired, ShuttingDown,
		DeadlinePassed, InternalError, StreamStalled, TopicFull, AckTimeout, NodeFull, TopicPaused:
		return true
	default:
		return false
	}
}

// New makes a fault with a formatted message.
func New(kind Kind, reason Reason, format string, args ...any) *Error {
	return &Error{Kind: kind, Reason: reason, Msg: fmt.Sprintf(format, args...)}
}

// Invalid makes the fault of a field that breaks its rule. The message names field and limit.
func Invalid(field string, limit int64, format string, args ...any) *Error {
	e := New(InvalidArgument, InvalidField, format, args...)
	e.Field, e.Limit = field, limit
	return e
}

// OverLimit makes the fault of one more than there may be. The format has one verb, for the limit.
func OverLimit(limit int64, format string) *Error {
	e := New(ResourceExhausted, LimitExceeded, format, limit)
	e.Limit = limit
	return e
}

// Full returns the fault of a node that serves as many streams as it can; another node may have room. The format has one
// verb, for the limit.
func Full(limit int64, format string) *Error {
	e := New(ResourceExhausted, NodeFull, format, limit)
	e.Limit = limit
	return e
}

// Wrap makes a fault that hides cause from the client and keeps it for the log.
func Wrap(cause error, kind Kind, reason Reason, format string, args ...any) *Error {
	e := New(kind, reason, format, args...)
	e.Cause = cause
	return e
}

// As finds the fault in err's chain.
func As(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}

// Is reports whether err holds a fault of this reason.
func Is(err error, reason Reason) bool {
	e, ok := As(err)
	return ok && e.Reason == reason
}
