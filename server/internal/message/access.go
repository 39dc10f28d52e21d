package message

import (
	"context"

	"github.com/parleyhq/parley/server/internal/ident"
)

// Mode is who may use a channel besides the holders of the capability manage.
type Mode uint8

// The modes.
const (
	// ModeOpen is for everyone whose token allows it.
	ModeOpen Mode = iota
	// ModeMembersOnly is for members.
	ModeMembersOnly
	// ModeDeleted is for nobody, not even for holders of manage.
	ModeDeleted
)

// Access checks what the capabilities of the caller's token do not decide: a members-only channel
// also requires a membership or the capability `manage`, and some capabilities always require a
// membership. Its errors are PermissionDenied with NotMember, NotFound with ChannelNotFound if
// the channel was deleted, or is missing and sends do not create channels, and those of the
// function Unavailable if access cannot be determined. It is safe for concurrent use.
//
// All methods check p at the access revision atLeast of the channel, or at a later one, and return
// the revision at which they did. With an atLeast of 0 the answer may be a second old.
type Access interface {
	// ForSend returns a nil error if p may send to the channel. It creates the row of an open channel
	// if the channel has none, unless sends do not create channels.
	ForSend(ctx context.Context, p *ident.Principal, channelID string, atLeast int64) (rev int64, err error)
	// ForRead returns a nil error if p may use the channel for the action, which the token allows. A
	// channel that does not exist counts as open if sends create channels. It is not created.
	ForRead(ctx context.Context, p *ident.Principal, action ident.Action, channelID string, atLeast int64) (rev int64, err error)
	// ForRecall returns a nil error if p may recall messages in the channel. anySender is true for the
	// messages of all senders, and false for p's own.
	ForRecall(ctx context.Context, p *ident.Principal, channelID string, atLeast int64) (anySender bool, rev int64, err error)
}

// Appender appends drafts, which are entries without a seq, to their logs. *Writer implements it;
// see Writer.Append.
type Appender interface {
	Append(ctx context.Context, drafts []Draft) []Outcome
}
