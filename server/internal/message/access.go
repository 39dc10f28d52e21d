package message

import (
	"context"

	"github.com/parleyhq/parley/server/internal/ident"
)

// Access decides who may use a channel, in addition to the capabilities of the caller's token. Its
// errors are PermissionDenied with NotMember, and Unavailable if access cannot be determined. It is
// safe for concurrent use.
type Access interface {
	// ForSend returns nil if p may send to the channel, as a member or because the channel is open.
	// The first send creates the channel's row.
	ForSend(ctx context.Context, p *ident.Principal, channelID string) error
	// ForRead returns nil if p may use the channel in any other way: read it, or edit and recall
	// its messages. A channel that does not exist counts as open, and is not created.
	ForRead(ctx context.Context, p *ident.Principal, channelID string) error
}

// OpenAccess is an Access for channels that are all open and have no rows. It serves tests and
// programs without members.
type OpenAccess struct{}

// ForSend implements Access. It always returns nil.
func (OpenAccess) ForSend(context.Context, *ident.Principal, string) error { return nil }

// ForRead implements Access. It always returns nil.
func (OpenAccess) ForRead(context.Context, *ident.Principal, string) error { return nil }

// Appender appends drafts. *Writer implements it; see Writer.Append.
type Appender interface {
	Append(ctx context.Context, drafts []Draft) []Outcome
}
