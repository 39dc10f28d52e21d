package channel

import (
	"context"
	"errors"
	"time"
)

// ErrExists says that there is a channel of this id already.
var ErrExists = errors.New("channel exists")

// ErrNotFound says that there is no channel of this id.
var ErrNotFound = errors.New("channel not found")

// Stamp is a place in the sequence of changes, as the store counts it. It is opaque; the zero value is the beginning.
type Stamp struct {
	Hi, Lo uint32
}

// Store keeps channels and their members. Every method may be called concurrently. What a write has acknowledged is
// durable (Mongo: majority and journaled; embedded: fsync'd) and is seen by every read of any node that begins
// afterwards, unless the method says otherwise. After an error of a write, other than the named ones, its outcome is
// unknown; each may be repeated. Times are kept in milliseconds, in UTC.
type Store interface { //nolint:interfacebloat // the whole contract; callers may take a part
	// Ensure gives the channel's row, and makes an open one if there is none.
	Ensure(ctx context.Context, channelID string, now time.Time) (Row, error)
	// Create creates a channel with its members, all or nothing, and returns its row. Row.Numbers are ignored. If there
	// is a channel of this id, Create changes nothing and returns that channel's row with ErrExists. After an unknown
	// outcome, that can be the channel that the call itself created.
	Create(ctx context.Context, row Row, userIDs []string) (Row, error)
	// Rows gives the rows of those of the channels that have one, by channel id; at most 500.
	Rows(ctx context.Context, channelIDs []string) (map[string]Row, error)
	// AddMembers makes users members; at most 500. Who is one already keeps JoinedAt; cursors stay as they were. Of a
	// channel without a row it is ErrNotFound.
	AddMembers(ctx context.Context, channelID string, userIDs []string, now time.Time) error
	// RemoveMembers ends memberships; at most 500. Who is no member stays none. A message at or before left, which is the
	// log's head, does not make its sender a member (see Advance), whether he was one or not: he may be one by a message
	// that Advance has yet to come to. Of a channel without a row it is ErrNotFound.
	RemoveMembers(ctx context.Context, channelID string, userIDs []string, left int64) error
	// Members gives a channel's members with a user id above after, ascending by its bytes; at most limit.
	Members(ctx context.Context, channelID, after string, limit int) ([]Member, error)
	// Memberships gives the user's memberships of channels with an id above after, ascending by its bytes; at most limit.
	Memberships(ctx context.Context, userID, after string, limit int) ([]Member, error)
	// MembersOf gives the user's memberships of those of the channels in which he is a member, by channel id; at most 500.
	MembersOf(ctx context.Context, userID string, channelIDs []string) (map[string]Member, error)
	// MarkRead moves a member's cursor to a place further on and gives the cursor as it is then; a place that is not
	// further on changes nothing. With join, who is no member becomes one, if the channel is open or has no row, which makes
	// it one; else ok is false for him.
	MarkRead(ctx context.Context, channelID, userID string, c Cursor, join bool, now time.Time) (cursor Cursor, ok bool, err error)
	// Advance moves rows and the senders' cursors forward, never back; repeating it changes nothing. Head takes Count along;
	// LastMessage moves by itself, so 0 means that there is no newer one. It makes an open row where there is none (Ensure
	// may have been forgotten by a store that was restored). In an open channel a sender who is no member becomes one if his
	// cursor here is beyond the place at which he last left; in a members-only channel only members' cursors move. Cursors
	// are moved before numbers, so that nobody's own message is unread to himself. At most 4096 channels and senders
	// together.
	Advance(ctx context.Context, moves []Advance, now time.Time) error
	// Changes gives what happened after a place, and the place to ask from next. It may give changes again; what an
	// acknowledged write changed is given by a call that begins afterwards and was given a place of before. From the zero
	// place it gives none. Changes older than a minute may be left out. The embedded store's places end
	// with its process, as do the streams that they are for.
	Changes(ctx context.Context, after Stamp) ([]Change, Stamp, error)
}
