package message

import (
	"context"

	"github.com/parleyhq/parley/server/internal/ident"
)

// Access says who may use a channel, besides what the capabilities of the caller's token allow. Its faults are
// PermissionDenied with NotMember, and Unavailable where it can't be told. Safe for concurrent use.
type Access interface {
	// ForSend lets p send to the channel, as a member or because the channel is open; the first send makes its row.
	ForSend(ctx context.Context, p *ident.Principal, channelID string) error
	// ForRead lets p use the channel in every other way: read it, and edit and recall what is there. One that does not
	// exist is open, and nothing is made of it.
	ForRead(ctx context.Context, p *ident.Principal, channelID string) error
}

// OpenAccess is the Access of channels that are all open, and have no rows. For tests, and for what has no members.
type OpenAccess struct{}

// ForSend implements Access.
func (OpenAccess) ForSend(context.Context, *ident.Principal, string) error { return nil }

// ForRead implements Access.
func (OpenAccess) ForRead(context.Context, *ident.Principal, string) error { return nil }

// Appender appends drafts; see Writer.Append, which is one.
type Appender interface {
	Append(ctx context.Context, drafts []Draft) []Outcome
}
