// Package fault defines the error model of the server's domain: the kind of a failure, its reason,
// and the details that a client may see. The transport maps faults onto the wire in one place. An
// error that is not a fault is internal, and none of its text is sent to a client.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Kind is the class of a failure. Each kind corresponds to the gRPC status code that the transport
// maps it to.
type Kind uint8

// The kinds. Internal is the zero value, so that a fault without a kind reveals nothing.
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

// Reason is the machine-readable cause. Its values are the names of parley.v1.ErrorReason without
// their prefix; a test in the transport compares the two.
type Reason string

// The reasons that the domain uses.
const (
	InvalidField         Reason = "INVALID_FIELD"
	MalformedRequest     Reason = "MALFORMED_REQUEST"
	TokenInvalid         Reason = "TOKEN_INVALID"
	CapabilityMissing    Reason = "CAPABILITY_MISSING"
	SenderMismatch       Reason = "SENDER_MISMATCH"
	NotSender            Reason = "NOT_SENDER"
	MessageNotFound      Reason = "MESSAGE_NOT_FOUND"
	MessageRecalled      Reason = "MESSAGE_RECALLED"
	MessageOpen          Reason = "MESSAGE_OPEN"
	MessageClosed        Reason = "MESSAGE_CLOSED"
	SessionDeleted       Reason = "SESSION_DELETED"
	AppendSuperseded     Reason = "APPEND_SUPERSEDED"
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
	DeliveryTokenInvalid Reason = "DELIVERY_TOKEN_INVALID"
	ScheduledNotFound    Reason = "SCHEDULED_NOT_FOUND"
	ConfirmationRequired Reason = "CONFIRMATION_REQUIRED"
	HistoryGone          Reason = "HISTORY_GONE"
	Kicked               Reason = "KICKED"
	NoSharedChannel      Reason = "NO_SHARED_CHANNEL"
	ChannelOpen          Reason = "CHANNEL_OPEN"
	EtagMismatch         Reason = "ETAG_MISMATCH"
	ErasureNotFound      Reason = "ERASURE_NOT_FOUND"
	TokenRevoked         Reason = "TOKEN_REVOKED"
	APIKeyNotFound       Reason = "API_KEY_NOT_FOUND" //nolint:gosec // no credential
	DeliveryLost         Reason = "DELIVERY_LOST"
	SessionLost          Reason = "SESSION_LOST"
	DeliveryGone         Reason = "DELIVERY_GONE"
	UniqueKeyInUse       Reason = "UNIQUE_KEY_IN_USE"
	MessageRunning       Reason = "MESSAGE_RUNNING"
	SequenceTooOld       Reason = "SEQUENCE_TOO_OLD"
	GroupExclusive       Reason = "GROUP_EXCLUSIVE"
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
	NodeFull             Reason = "NODE_FULL"
	ChannelDeleting      Reason = "CHANNEL_DELETING"
	RevocationUnknown    Reason = "REVOCATION_UNKNOWN"
)

// Position is a stream's position in a channel: the last entry that was sent.
type Position struct {
	ChannelID string
	Seq       int64
	Epoch     string
}

// Kick describes what ended a login or a stream.
type Kick struct {
	// Cause and Platform are values of parley.v1.KickCause and parley.v1.Platform.
	Cause, Platform    uint8
	Device, Connection string
	// Reason is what an operator gave as the reason.
	Reason string
}

// Error is a failure that a client may see. Msg must not contain internals of the server: no
// address, no path, no text of a driver. Those belong in Cause, which is logged and never sent.
type Error struct {
	Kind   Kind
	Reason Reason
	Msg    string
	// Field is the path of the request field at fault; empty if there is none.
	Field string
	// Limit is the limit that was exceeded, in the field's unit; 0 if there is none.
	Limit int64
	// RetryAfter is the minimum time to wait before a retry; 0 means unspecified.
	RetryAfter time.Duration
	// Positions are the positions of a stream that has ended. With the reasons NotMember and
	// CapabilityMissing they name the refused channels instead.
	Positions []Position
	// Kick is only there with the reason Kicked.
	Kick *Kick
	// Users are the refused users with the reason NoSharedChannel.
	Users []string
	// Cause is for the log only; may be nil.
	Cause error
}

// Error returns Msg, which a client may see.
func (e *Error) Error() string { return e.Msg }

// Unwrap returns Cause, so that errors.Is and errors.As find it.
func (e *Error) Unwrap() error { return e.Cause }

// Retryable reports whether the same call may succeed later, according to Reason.
func (e *Error) Retryable() bool {
	switch e.Reason {
	case RateLimited, StoreUnavailable, OutcomeUnknown, BatchAborted, SlowConsumer, TokenExpired, ShuttingDown,
		DeadlinePassed, InternalError, StreamStalled, TopicFull, NodeFull, TopicPaused, ChannelDeleting,
		RevocationUnknown:
		return true
	default:
		return false
	}
}

// New returns a fault with a formatted message.
func New(kind Kind, reason Reason, format string, args ...any) *Error {
	return &Error{Kind: kind, Reason: reason, Msg: fmt.Sprintf(format, args...)}
}

// NotMemberOf returns the fault of a caller who is not a member of the given members-only channels,
// of which there must be at least one.
func NotMemberOf(channelIDs ...string) *Error {
	e := New(PermissionDenied, NotMember, "the caller is not a member of channel %s", channelIDs[0])
	for _, id := range channelIDs {
		e.Positions = append(e.Positions, Position{ChannelID: id})
	}
	return e
}

// Invalid returns the fault of a field that violates its rule. The message should name the field
// and the limit.
func Invalid(field string, limit int64, format string, args ...any) *Error {
	e := New(InvalidArgument, InvalidField, format, args...)
	e.Field, e.Limit = field, limit
	return e
}

// OverLimit returns the fault of a request that would exceed a limit. The format has one verb, for
// the limit.
func OverLimit(limit int64, format string) *Error {
	e := New(ResourceExhausted, LimitExceeded, format, limit)
	e.Limit = limit
	return e
}

// Full returns the fault of a node that has reached a limit of its own, such as that of streams;
// another node may have room. The format has one verb, for the limit.
func Full(limit int64, format string) *Error {
	e := New(ResourceExhausted, NodeFull, format, limit)
	e.Limit = limit
	return e
}

// Wrap returns a fault that keeps cause for the log and hides it from the client.
func Wrap(cause error, kind Kind, reason Reason, format string, args ...any) *Error {
	e := New(kind, reason, format, args...)
	e.Cause = cause
	return e
}

// As returns the first fault in err's chain. ok is false if there is none.
func As(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}

// Is reports whether the first fault in err's chain has this reason.
func Is(err error, reason Reason) bool {
	e, ok := As(err)
	return ok && e.Reason == reason
}
