package message

import (
	"context"

	"github.com/parleyhq/parley/server/internal/ident"
)

// Access checks what the capabilities of the caller's token do not decide: a members-only channel
// also requires a membership or the capability `manage`. Its errors are PermissionDenied with
// NotMember and, if access cannot be determined, those of the function Unavailable. It is safe for
// concurrent use.
type Access interface {
	// ForSend returns nil if p may send to the channel. It creates the row of an open channel if the
	// channel has none.
	ForSend(ctx context.Context, p *ident.Principal, channelID string) error
	// ForRead returns nil if p may read the channel, and edit and recall messages in it. A channel
	// that does not exist counts as open, and is not created.
	ForRead(ctx context.Context, p *ident.Principal, channelID string) error
}

// Appender appends drafts, which are entries without a seq, to their logs. *Writer implements it;
// see Writer.Append.
type Appender interface {
	Append(ctx context.Context, drafts []Draft) []Outcome
}
