package channel

import (
	"context"
	"errors"
	"time"
)

// ErrExists reports that a channel with this id exists already.
var ErrExists = errors.New("channel exists")

// ErrNotFound reports that no channel with this id exists.
var ErrNotFound = errors.New("channel not found")

// Stamp is a position in the store's sequence of changes, for Store.Changes. It is opaque. The zero
// value requests no changes, only the current position.
type Stamp struct {
	Hi, Lo uint32
}

// Store keeps channels and their members. All methods may be called concurrently.
//
// An acknowledged write is durable (Mongo: majority and journaled; embedded: fsync'd). Every read
// on any node that begins afterwards sees it, unless the method says otherwise. After any error of
// a write other than the named ones the outcome is unknown; every write may be repeated. Times are
// kept in UTC, in milliseconds.
type Store interface { //nolint:interfacebloat // the whole contract; callers may take a part
	// Ensure returns the channel's row. It creates an open channel if there is none.
	Ensure(ctx context.Context, channelID string, now time.Time) (Row, error)
	// Create creates a channel with its members, all or nothing, and returns its row. Row.Numbers
	// are ignored. If there is a channel of this id, Create changes nothing and returns that
	// channel's row with ErrExists. After an unknown outcome, that can be the channel that the call
	// itself created.
	Create(ctx context.Context, row Row, userIDs []string) (Row, error)
	// Rows returns the rows of the channels that have one, by channel id. channelIDs has at most
	// 500 ids.
	Rows(ctx context.Context, channelIDs []string) (map[string]Row, error)
	// AddMembers adds users to a channel. userIDs has at most 500 ids. Existing members keep
	// JoinedAt, and cursors do not change. It returns ErrNotFound if the channel has no row.
	AddMembers(ctx context.Context, channelID string, userIDs []string, now time.Time) error
	// RemoveMembers removes users from a channel, at most 500. Users who are not members remain so.
	// left is the head of the log. A message at or before left does not make its sender a member
	// (see Advance), whether or not the sender was one: Advance may not have processed that message
	// yet. It returns ErrNotFound if the channel has no row.
	RemoveMembers(ctx context.Context, channelID string, userIDs []string, left int64) error
	// Members returns up to limit members of a channel whose user ids are greater than after, in
	// byte order of the ids.
	Members(ctx context.Context, channelID, after string, limit int) ([]Member, error)
	// CountMembers returns the number of a channel's members; 0 if the channel has no row.
	CountMembers(ctx context.Context, channelID string) (int, error)
	// Memberships returns up to limit memberships of the user in channels whose ids are greater
	// than after, in byte order of the ids.
	Memberships(ctx context.Context, userID, after string, limit int) ([]Member, error)
	// MembersOf returns the user's memberships in the given channels, by channel id. Channels of
	// which the user is not a member are omitted. channelIDs has at most 500 ids.
	MembersOf(ctx context.Context, userID string, channelIDs []string) (map[string]Member, error)
	// MarkRead moves a member's cursor forward to c and returns the resulting cursor. A c that is
	// not further on changes nothing. With join set, a user who is not a member becomes one if the
	// channel is open or has no row; a missing row is created as an open channel. Otherwise ok is
	// false for a user who is not a member.
	MarkRead(ctx context.Context, channelID, userID string, c Cursor, join bool, now time.Time) (cursor Cursor, ok bool, err error)
	// Advance moves rows and the senders' cursors forward, never back. It is idempotent, and takes at
	// most 4096 channels and senders together. Count moves with Head. LastMessage moves independently
	// of them; 0 leaves it unchanged.
	//
	// Advance creates an open channel if there is no row, because a restored store may have lost the
	// one from Ensure. In an open channel, a sender who is not a member becomes one if their cursor in
	// moves is beyond the seq at which they last left (see RemoveMembers). In a members-only channel
	// only members' cursors move. Cursors are moved before numbers, so that no user's own message is
	// unread to them.
	Advance(ctx context.Context, moves []Advance, now time.Time) error
	// Changes returns the changes after a stamp, and the stamp for the next call. It may return
	// changes again. A call returns the change of an acknowledged write if it begins after the
	// acknowledgement and its stamp is from before the write. From the zero stamp it returns no
	// changes, only the current stamp. Changes older than a minute may be omitted. Stamps of the
	// embedded store are valid only within its process.
	Changes(ctx context.Context, after Stamp) ([]Change, Stamp, error)
}
