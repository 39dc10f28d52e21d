package produce

import (
	"context"
	"errors"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// fullWait is what a producer is told to wait when a partition is full.
const fullWait = time.Second

// unread is the fault of a read that failed.
func unread(err error) error {
	if _, ok := fault.As(err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return fault.Wrap(err, fault.DeadlineExceeded, fault.DeadlinePassed, "the deadline passed")
	}
	return fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "the store does not answer")
}

// unhealed is the fault of a partition whose keys were lost and could not be restored. It is not
// final: the next call tries again.
func unhealed(err error) error {
	if f, ok := fault.As(err); ok && f.Retryable() {
		return err
	}
	// Not as a cause: it must not be taken for a topic that does not exist.
	return fault.Wrap(errors.New(err.Error()), fault.Unavailable, fault.StoreUnavailable, "the store has lost the partition and has not restored it yet")
}

// undone is the fault of a write that failed. Unless it was refused, it may have been done, or be
// done later.
func undone(err error) error {
	if _, ok := fault.As(err); ok {
		return err
	}
	switch {
	case errors.Is(err, qlog.ErrPaused):
		return fault.Wrap(err, fault.FailedPrecondition, fault.TopicPaused, "the topic is paused")
	case errors.Is(err, qlog.ErrNoMemory):
		f := fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "the store has no memory for new messages")
		f.RetryAfter = fullWait
		return f
	case errors.Is(err, context.Canceled):
		return fault.Wrap(err, fault.DeadlineExceeded, fault.DeadlinePassed, "the deadline passed; it may have been done")
	case errors.Is(err, qlog.ErrUnknownOutcome), errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(err, fault.Unavailable, fault.OutcomeUnknown, "it is not known whether it was done: try again")
	}
	return err
}

// refused is the fault of one message.
func refused(t *qlog.Topic, m *Message, err error) error {
	switch {
	case errors.Is(err, qlog.ErrFull):
		f := fault.Wrap(err, fault.ResourceExhausted, fault.TopicFull, "the partition holds as many messages as the topic allows, %d", t.MaxMessages)
		f.Limit, f.RetryAfter = t.MaxMessages, fullWait
		return f
	case errors.Is(err, qlog.ErrKeyReused) && m.IdempotencyKey == "":
		f := fault.Wrap(err, fault.AlreadyExists, fault.IdempotencyKeyReused, "the sequence was used for another request")
		f.Field = "sequence"
		return f
	case errors.Is(err, qlog.ErrKeyReused):
		f := fault.Wrap(err, fault.AlreadyExists, fault.IdempotencyKeyReused, "the idempotency key was used with another payload")
		f.Field = "idempotency_key"
		return f
	case errors.Is(err, qlog.ErrUnique):
		f := fault.Wrap(err, fault.AlreadyExists, fault.UniqueKeyInUse, "another message has the unique key")
		f.Field = "unique.key"
		return f
	case errors.Is(err, qlog.ErrSequenceOld):
		f := fault.Wrap(err, fault.FailedPrecondition, fault.SequenceTooOld, "later requests of the producer were accepted; it is not known any more whether this one was")
		f.Field = "sequence"
		return f
	case errors.Is(err, qlog.ErrTooFar) && m.At.IsZero():
		return tooFar("delay")
	case errors.Is(err, qlog.ErrTooFar):
		return tooFar("deliver_at")
	}
	return undone(err)
}

// behind is the fault of a message that was not put because one before it in its partition failed.
func behind(err error) error {
	if errors.Is(err, qlog.ErrNoTopic) || fault.Is(err, fault.TopicFull) {
		return err
	}
	if f, ok := fault.As(err); ok && f.Reason != fault.OutcomeUnknown && f.Reason != fault.DeadlinePassed {
		return err
	}
	return fault.Wrap(err, fault.Aborted, fault.BatchAborted, "an earlier message of the partition failed; this one was not stored")
}

// whole returns the fault that all results share, if it is one of the call rather than of its
// items.
func whole(results []Result) error {
	var reason fault.Reason
	for i := range results {
		f, ok := fault.As(results[i].Err)
		if !ok || i > 0 && f.Reason != reason {
			return nil
		}
		reason = f.Reason
	}
	switch reason {
	case fault.TopicNotFound, fault.TopicPaused, fault.StoreUnavailable, fault.OutcomeUnknown, fault.DeadlinePassed:
		return results[0].Err
	default:
		return nil
	}
}

// resultOf returns the outcome of messages whose call failed: refused only if certainly nothing was
// stored.
func resultOf(err error) outcome {
	if fault.Is(err, fault.TopicPaused) {
		return resultRefused
	}
	return resultFailed
}
