// Package channel manages channels apart from their logs: whether they are open or members-only,
// who their members are, how far each member has read, and the head of the log as of the change
// feed.
//
// The log is authoritative. A channel's row holds numbers that the change feed advances after the
// log, so that a list of a user's channels does not read every log. The row never holds text, so a
// recall need not change it.
package channel

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

// Row is the stored record of a channel.
type Row struct {
	ChannelID string
	// MembersOnly is set for a closed channel, which only its members may use. An open channel may be
	// used by everyone whose token allows it.
	MembersOnly bool
	// State says whether the channel was deleted.
	State State
	// Began is the seq of the channel's first entry, if it was created again after a deletion, and
	// otherwise 0. What is before it in the log is of the deleted channel.
	Began int64
	// Rev is the access revision: it rises whenever MembersOnly changes, and when the channel is
	// deleted or created again. A channel that is created open starts with 0, and one that is created
	// closed with 1. message.Entry describes its use.
	Rev int64
	// CreatedBy is the user who called Create. It is empty if the channel was created in another way,
	// such as by a first send.
	CreatedBy string
	CreatedAt time.Time
	// CreateKey is the idempotency key of the call that created the channel, and CreateDigest
	// identifies its request. Both are empty if the call had no key, or if the channel was not created
	// by Create.
	CreateKey, CreateDigest string
	// Numbers describe the log as far as the change feed has processed it.
	Numbers
	// Active is when the last message was appended, as far as the change feed has processed the log,
	// and CreatedAt before the first one. It is zero unless the channel is a Live session's.
	Active time.Time
	// Title is the title of a Live session; empty if it has none.
	Title string
	// Retention is the channel's own policy; nil means the server's default.
	Retention *Retention
	// SettingsRev changes whenever MembersOnly, Retention or State does, except from Deleting to
	// Deleted. It starts at 0.
	SettingsRev int64
	// Boundary is the start of the log's readable part.
	message.Boundary
	Trim Trim
}

// State is the state of a channel. A channel goes from Live to Deleting to Deleted, and from there
// back to Live if it is created again.
type State uint8

// The states. Stores keep their values.
const (
	Live State = iota
	// Deleting means that the channel was deleted, and that not all that it had is removed yet.
	Deleting
	// Deleted means that only the row and stubs of the log are left.
	Deleted
)

// Mode returns who may use the channel.
func (r *Row) Mode() message.Mode {
	switch {
	case r.State != Live:
		return message.ModeDeleted
	case r.MembersOnly:
		return message.ModeMembersOnly
	default:
		return message.ModeOpen
	}
}

// Etag returns a value that changes when the settings of the channel change, or when the channel is
// created anew. The log's positions and counts are not settings.
func (r *Row) Etag() string {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s %d %t %d", r.ChannelID, r.CreatedAt.UnixMilli(), r.MembersOnly, r.SettingsRev)
	return strconv.FormatUint(h.Sum64(), 36)
}

// Numbers describe the extent of a log.
type Numbers struct {
	// Head is the seq of the last entry. Count is the number of messages in the log up to and
	// including it.
	Head, Count int64
	// LastMessage is the seq of the newest message; 0 if there is none.
	LastMessage int64
}

// Role is what a user is in a channel. Stores keep its values. Later ones include the rights of
// earlier ones.
type Role uint8

// The roles.
const (
	// Follower is a user who has sent a message to an open channel or marked one as read there. A
	// follower has a cursor and is not a member.
	Follower Role = iota + 1
	RoleMember
	Moderator
	Owner
)

// Member is a user's membership of a channel. A follower has one too.
type Member struct {
	ChannelID, UserID string
	Role              Role
	JoinedAt          time.Time
	Cursor
}

// IsMember reports whether the user is a member, and not only a follower.
func (m *Member) IsMember() bool { return m.Role >= RoleMember }

// Cursor is how far a user has read: a seq of the log, and the number of messages in the log up to
// and including it.
type Cursor struct {
	Seq, Count int64
}

// Advance describes how far the change feed has processed a channel's log.
type Advance struct {
	ChannelID string
	Numbers
	// Senders maps the user ids of senders to their newest messages: users have read the log up to
	// their own messages.
	Senders map[string]Cursor
	// Rev is the highest access revision of the entries.
	Rev int64
	// Active is the time of the newest message; zero if there is none.
	Active time.Time
}

// SessionPlace is the place of a session in a list of sessions: by Active, the latest first, and
// then by channel id. The zero value is before
// all of them.
type SessionPlace struct {
	Active    time.Time
	ChannelID string
}

// Settings are the settings of a channel that can be changed.
type Settings struct {
	MembersOnly bool
	// Retention is the channel's own policy; nil means the server's default.
	Retention *Retention
}

// Change reports that users may have lost access to a channel: they were removed from it, or it was
// created as members-only or again, or it was closed, opened or deleted.
type Change struct {
	ChannelID string
	// UserIDs are the users who may have lost access; empty means any user.
	UserIDs []string
}
