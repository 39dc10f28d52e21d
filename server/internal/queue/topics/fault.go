package topics

import (
	"context"
	"errors"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

func noTopic() *fault.Error {
	e := fault.New(fault.NotFound, fault.TopicNotFound, "there is no such topic")
	e.Field = "topic"
	return e
}

func noGroup() *fault.Error {
	e := fault.New(fault.NotFound, fault.GroupNotFound, "the topic has no such consumer group")
	e.Field = "group"
	return e
}

func topicExists() *fault.Error {
	e := fault.New(fault.AlreadyExists, fault.TopicExists, "there is already a topic of this name")
	e.Field = "topic.name"
	return e
}

func groupExists() *fault.Error {
	e := fault.New(fault.AlreadyExists, fault.GroupExists, "the topic already has a consumer group of this name")
	e.Field = "group.name"
	return e
}

// contended returns the fault of a topic that others change all the time.
func contended() *fault.Error {
	return fault.New(fault.Unavailable, fault.StoreUnavailable, "the topic is changed by others all the time; try again")
}

// confirmed refuses a deletion unless confirm is the name of what is deleted.
func confirmed(confirm, name, what string) error {
	if confirm == name {
		return nil
	}
	e := fault.New(fault.FailedPrecondition, fault.ConfirmationRequired, "confirm: must be the name of the %s", what)
	e.Field = "confirm"
	return e
}

// readFault returns the fault of a read that failed.
func readFault(err error) error {
	if _, ok := fault.As(err); ok {
		return err
	}
	switch {
	case errors.Is(err, qlog.ErrNoTopic):
		return noTopic()
	case errors.Is(err, context.Canceled):
		return fault.Wrap(err, fault.DeadlineExceeded, fault.DeadlinePassed, "the deadline passed")
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "the store does not answer")
	default:
		return err
	}
}

// writeFault returns the fault of a change that failed. It may have been made in part.
func writeFault(err error) error {
	if _, ok := fault.As(err); ok {
		return err
	}
	switch {
	case errors.Is(err, qlog.ErrNoTopic):
		return noTopic()
	case errors.Is(err, qlog.ErrNoMemory):
		return fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "the store is out of memory")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(err, fault.Unavailable, fault.OutcomeUnknown, "the deadline passed; the change may have been made: try again")
	case errors.Is(err, qlog.ErrUnknownOutcome):
		return fault.Wrap(err, fault.Unavailable, fault.OutcomeUnknown, "the store does not answer; the change may have been made: try again")
	default:
		return err
	}
}
