package queue

import (
	"errors"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
)

// lost returns the error for deliveries that the worker has lost, with the reason DELIVERY_LOST.
func lost(message string) *parley.Error {
	return &parley.Error{
		Code: connect.CodeFailedPrecondition, Reason: parleyv1.ErrorReason_ERROR_REASON_DELIVERY_LOST, Message: message,
	}
}

// lostBy returns the error for deliveries that the server has reported as lost.
func lostBy(cause parleyv1.LostDeliveries_Cause) *parley.Error {
	switch cause {
	case parleyv1.LostDeliveries_CAUSE_ACK_TIMEOUT:
		return lost("the delivery is lost: its ack timeout has passed")
	case parleyv1.LostDeliveries_CAUSE_MAX_RUN_TIME:
		return lost("the delivery is lost: it ran longer than the group's max_run_time")
	case parleyv1.LostDeliveries_CAUSE_CANCELLED:
		return lost("the delivery is lost: its message was cancelled, or the group was moved or deleted")
	case parleyv1.LostDeliveries_CAUSE_NO_CONTACT:
		return lost("the delivery is lost: the session was without contact for too long")
	default:
		return lost("the session no longer holds the delivery")
	}
}

// retryable returns an error for a stream that has ended, or is left, after which another stream
// may work.
func retryable(message string) error {
	return &parley.Error{Code: connect.CodeAborted, Retryable: true, Message: message}
}

var (
	errHandlerTimeout = errors.New("the handler took longer than its timeout")
	errGoexit         = errors.New("the handler ended its goroutine")
	// errUnanswered is the error of a stream that accepts requests but does not answer them.
	errUnanswered = &parley.Error{
		Code: connect.CodeUnavailable, Retryable: true, Message: "a request on the stream was not answered in time",
	}
	// errStreamOver is the error of a request on a stream that has ended.
	errStreamOver = &parley.Error{
		Code: connect.CodeUnavailable, Retryable: true, Message: "the stream ended before the answer",
	}
)
