package message

import (
	"context"

	"github.com/parleyhq/parley/server/internal/ident"
)

// Access says who may use a channel, besides what the capabilities of the caller's token allow. Its faults are
// PermissionDenied with NotMember, and Unavailable where it can't be told. Safe for concurrent use.
type Access interface {
	// ForSend lets p send to the channel, edit and recall there, as a member or because the channel is open; the first
	// send makes its row.
	ForSend(ctx context.Context, p *ident.Principal, channelID string) error
	// ForRead lets p read the channel. One that does not exist is open.
	ForRead(ctx context.Context, p *ident.Principal, channelID string) error
}

// Appender appends drafts; see Writer.Append, which is one.
type Appender interface {
	Append(ctx context.Context, drafts []Draft) []Outcome
}
