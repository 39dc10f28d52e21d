package channel

import (
	"context"
	"errors"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

// notMember returns the fault for a caller who is not a member of the given members-only channels.
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

// unknown returns the fault for a store that does not answer a write. The write may have been done,
// or may be done later.
func unknown(err error) error {
	if _, ok := fault.As(err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return fault.Wrap(err, fault.DeadlineExceeded, fault.DeadlinePassed, "the deadline passed; it may have been done")
	}
	return fault.Wrap(err, fault.Unavailable, fault.OutcomeUnknown, "it is not known whether it was done: try again")
}

// notManager returns the fault for a caller without the capability manage.
func notManager() error {
	return fault.New(fault.PermissionDenied, fault.CapabilityMissing,
		"the token has no capability %q for this channel", ident.Manage)
}
