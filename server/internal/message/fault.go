package message

import "github.com/parleyhq/parley/server/internal/fault"

// BatchAborted returns the fault of a draft that was not stored because an earlier one of its
// channel failed. cause is for the log; it may be nil.
func BatchAborted(cause error) *fault.Error {
	return fault.Wrap(cause, fault.Aborted, fault.BatchAborted,
		"not stored because an earlier item of the same channel failed; retry")
}

// OutcomeUnknown returns the fault of a draft that may have been stored, or may be later. cause is
// for the log.
func OutcomeUnknown(cause error) *fault.Error {
	return fault.Wrap(cause, fault.Unavailable, fault.OutcomeUnknown,
		"the outcome is unknown, the entry may have been stored; retry with the same client_msg_id")
}

// isNotFound reports whether err is that of notFound.
func isNotFound(err error) bool {
	f, ok := fault.As(err)
	return ok && f.Reason == fault.MessageNotFound
}

// notFound returns the fault of a msg_id that the channel does not have, or whose message has
// expired.
func notFound() *fault.Error {
	f := fault.New(fault.NotFound, fault.MessageNotFound, "the channel has no message with this msg_id")
	f.Field = "msg_id"
	return f
}
