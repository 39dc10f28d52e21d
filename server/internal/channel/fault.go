package channel

import (
	"context"
	"errors"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

func notFound() error {
	e := fault.New(fault.NotFound, fault.ChannelNotFound, "channel_id: the channel does not exist")
	e.Field = "channel_id"
	return e
}

// outcomeUnknown returns the fault for a store that does not answer a write. The write may have
// been done, or may be done later. If err is a fault already, it returns err.
func outcomeUnknown(err error) error {
	if _, ok := fault.As(err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return fault.Wrap(err, fault.DeadlineExceeded, fault.DeadlinePassed, "the deadline passed; the change may have been made")
	}
	return fault.Wrap(err, fault.Unavailable, fault.OutcomeUnknown, "the outcome is unknown, the change may have been made; retry")
}

// missingManage returns the fault for a caller without the capability manage.
func missingManage() error {
	return fault.New(fault.PermissionDenied, fault.CapabilityMissing,
		"the token has no capability %q for this channel", ident.Manage)
}
