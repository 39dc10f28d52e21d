package channel

import (
	"context"
	"errors"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

// notMember refuses somebody the channels, all of which take members only.
func notMember(channelIDs ...string) error {
	e := fault.New(fault.PermissionDenied, fault.NotMember, "the channel takes members only, and the caller is none")
	for _, id := range channelIDs {
		e.Positions = append(e.Positions, fault.Position{ChannelID: id})
	}
	return e
}

func notFound() error {
	e := fault.New(fault.NotFound, fault.ChannelNotFound, "there is no such channel")
	e.Field = "channel_id"
	return e
}

// unknown is the fault of a store that does not answer a write. It may have been done, or be done later.
func unknown(err error) error {
	if _, ok := fault.As(err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return fault.Wrap(err, fault.DeadlineExceeded, fault.DeadlinePassed, "the deadline passed; it may have been done")
	}
	return fault.Wrap(err, fault.Unavailable, fault.OutcomeUnknown, "it is not known whether it was done: try again")
}

// notManager refuses a change that its caller may not make without the action manage.
func notManager() error {
	return fault.New(fault.PermissionDenied, fault.CapabilityMissing,
		"the token has no capability %q for this channel", ident.Manage)
}
