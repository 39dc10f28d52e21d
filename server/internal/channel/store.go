package channel

import (
	"context"
	"errors"
	"time"
)

// ErrExists reports that a channel with this id exists already.
var ErrExists = errors.New("channel exists")

// ErrNotFound reports that no channel with this id exists, or that it was deleted.
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
	BoundaryStore
	// Ensure returns the channel's row, which may be of a deleted channel. It creates an open channel
	// if there is no row; for a session it returns ErrNotFound then.
	Ensure(ctx context.Context, channelID string, now time.Time) (Row, error)
	// Create creates a channel with its members, all or nothing, and returns its row. Row.CreatedBy
	// becomes Owner if it is among userIDs; the others become RoleMember. Row.Numbers,
	// SettingsRev, Boundary and Trim are ignored; Trim.Due is set to CreatedAt if Row.Retention is
	// set. Row.Rev is stored. If there is a channel of this id, Create changes nothing and returns
	// that channel's row with ErrExists. After an unknown outcome, that can be the channel that the
	// call itself created.
	//
	// A session's channel is created once only. Any other Deleted channel becomes Live, unless row has
	// a CreateKey and both CreateKey and CreatedBy are those of the deleted channel: then the call is
	// a repeat, and Create returns ErrExists. Rev and SettingsRev are then one more than they were,
	// Began is Oldest, and Row.Numbers, Boundary and Trim stay.
	Create(ctx context.Context, row Row, userIDs []string) (Row, error)
	// SetSettings replaces a channel's settings, increases Row.SettingsRev, and Row.Rev if MembersOnly
	// changes, and sets Trim.Due to now. It returns the resulting row. If SettingsRev is not rev it
	// changes nothing and returns the row with ErrChanged. After an unknown outcome, that can be the
	// result of the call itself. It returns ErrNotFound if the channel has no row or is not Live.
	SetSettings(ctx context.Context, channelID string, rev int64, set Settings, now time.Time) (Row, error)
	// Delete makes a Live channel Deleting, increases SettingsRev and Rev, and sets Trim.Stripped
	// to 0, because the entries after Trim.Deleted must be cleared, and Trim.Due to now. It returns
	// the resulting row. If SettingsRev is not rev or the channel is not Live, it changes nothing
	// and returns the row with ErrChanged. After an unknown outcome, that can be the result of the
	// call itself. It returns ErrNotFound if the channel has no row.
	Delete(ctx context.Context, channelID string, rev int64, now time.Time) (Row, error)
	// Sessions returns the rows of up to limit Live sessions that the user created and that are after
	// a place in the list: by Active, the latest first, and then by channel id.
	Sessions(ctx context.Context, ownerID string, after SessionPlace, limit int) ([]Row, error)
	// EverySession is Sessions for the sessions of all users. Its cost depends on limit only.
	EverySession(ctx context.Context, after SessionPlace, limit int) ([]Row, error)
	// Owners returns the memberships of the users who created the given channels, as far as they are
	// members, by channel id. channelIDs has at most 500 ids, all of sessions.
	Owners(ctx context.Context, channelIDs []string) (map[string]Member, error)
	// SetTitle sets Row.Title of a channel. It returns ErrNotFound if the channel has no row or is not
	// Live.
	SetTitle(ctx context.Context, channelID, title string) error
	// Rows returns the rows of the channels that have one, by channel id. channelIDs has at most
	// 500 ids.
	Rows(ctx context.Context, channelIDs []string) (map[string]Row, error)
	// AddMembers makes users members of a channel with the role RoleMember. userIDs has at most 500
	// ids. Existing members keep their role and JoinedAt; followers become members. Cursors do not
	// change. It returns ErrNotFound if the channel has no row or is not Live.
	AddMembers(ctx context.Context, channelID string, userIDs []string, now time.Time) error
	// SetRole makes a user a member of a channel with this role, which is not Follower. An existing
	// member keeps JoinedAt. The cursor does not change. It returns ErrNotFound if the channel has no
	// row or is not Live.
	SetRole(ctx context.Context, channelID, userID string, role Role, now time.Time) error
	// RemoveMembers removes members and followers from a channel, at most 500. Users who are neither
	// remain so. left is the head of the log. A message at or before left does not make its sender a
	// follower (see Advance), whether or not the sender was one: Advance may not have processed that
	// message yet. It returns ErrNotFound if the channel has no row or is not Live: a record of a
	// former member would be one of the channel that is created next.
	RemoveMembers(ctx context.Context, channelID string, userIDs []string, left int64) error
	// Members returns up to limit members and followers of a channel whose user ids are greater than
	// after, in byte order of the ids.
	Members(ctx context.Context, channelID, after string, limit int) ([]Member, error)
	// CountMembers returns the number of a channel's members without followers; 0 if the channel has
	// no row.
	CountMembers(ctx context.Context, channelID string) (int, error)
	// Memberships returns up to limit memberships of the user, and channels that the user follows,
	// whose ids are greater than after, in byte order of the ids.
	Memberships(ctx context.Context, userID, after string, limit int) ([]Member, error)
	// MembersOf returns the user's memberships in the given channels, by channel id, also as a
	// follower. Channels of which the user is neither are omitted. channelIDs has at most 500 ids.
	MembersOf(ctx context.Context, userID string, channelIDs []string) (map[string]Member, error)
	// MembersIn returns the memberships of the given users in a channel, by user id. Users who are
	// neither members nor followers are omitted. userIDs has at most 500 ids.
	MembersIn(ctx context.Context, channelID string, userIDs []string) (map[string]Member, error)
	// MarkRead moves the cursor of a member or follower forward to c and returns the resulting cursor.
	// A c that is not further on changes nothing. With join set, any other user becomes a follower if
	// the channel is open and Live or has no row; a missing row is created as an open channel, except
	// for a session. Otherwise ok is false for such a user.
	MarkRead(ctx context.Context, channelID, userID string, c Cursor, join bool, now time.Time) (cursor Cursor, ok bool, err error)
	// Advance moves rows and the senders' cursors forward, never back. It is idempotent, and takes at
	// most 4096 channels and senders together. Count moves with Head. LastMessage and Active move
	// independently of them; 0 leaves them unchanged.
	//
	// Each move is judged by the channel's mode at Advance.Rev or later.
	//
	// Advance creates an open channel if there is no row, because a restored store may have lost the
	// one from Ensure. It does not create a session's channel, whose owner it does not know. In an
	// open channel, a sender who is neither member nor follower becomes a follower if their cursor in
	// moves is beyond the seq at which they last left (see RemoveMembers), and not before Row.Began.
	// In a channel that is members-only or not Live, only the cursors of members and followers move.
	// Cursors are moved before numbers, so that no user's own message is unread to them.
	Advance(ctx context.Context, moves []Advance, now time.Time) error
	// Changes returns the changes after a stamp, and the stamp for the next call. It may return
	// changes again. A call returns the change of an acknowledged write if it begins after the
	// acknowledgement and its stamp is from before the write. From the zero stamp it returns no
	// changes, only the current stamp. Changes older than a minute may be omitted. Stamps of the
	// embedded store are valid only within its process.
	Changes(ctx context.Context, after Stamp) ([]Change, Stamp, error)
}
