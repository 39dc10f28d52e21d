package channel

import (
	"context"
	"errors"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

func notFound() error {
	e := fault.New(fault.NotFound, fault.ChannelNotFound, "channel_id: the channel does not exist")
	e.Field = "channel_id"
	return e
}

// missingChannels returns the fault for channels that do not exist, of which there is at least one.
func missingChannels(channelIDs ...string) error {
	e := fault.New(fault.NotFound, fault.ChannelNotFound, "channel %s does not exist", channelIDs[0])
	if sessionID, ok := ident.SessionOf(channelIDs[0]); ok {
		e.Msg = "the user has no session " + sessionID
	}
	for _, id := range channelIDs {
		e.Positions = append(e.Positions, fault.Position{ChannelID: id})
	}
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

// etagMismatch returns the fault for a call with an etag from before a change of the settings.
func etagMismatch() error {
	e := fault.New(fault.FailedPrecondition, fault.EtagMismatch, "etag: the channel's settings have changed")
	e.Field = "etag"
	return e
}

// changedByOthers returns the fault for a change that others have prevented maxUpdates times.
func changedByOthers() error {
	return fault.New(fault.Unavailable, fault.StoreUnavailable, "the channel's settings are changed by others at the same time; retry")
}

// beingDeleted returns the fault for the creation of a channel that is Deleting.
func beingDeleted() error {
	e := fault.New(fault.FailedPrecondition, fault.ChannelDeleting, "channel_id: the channel is being deleted; retry within a minute")
	e.Field, e.RetryAfter = "channel_id", 5*time.Second
	return e
}

// missingManage returns the fault for a caller without the capability manage.
func missingManage() error {
	return fault.New(fault.PermissionDenied, fault.CapabilityMissing,
		"the token has no capability %q for this channel", ident.Manage)
}

// lowRole returns the fault for a caller whose role in the channel does not allow the call.
func lowRole() error {
	return fault.New(fault.PermissionDenied, fault.CapabilityMissing, "the caller's role in the channel does not allow this")
}
