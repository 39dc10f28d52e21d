// Package channel manages channels apart from their logs: whether they are open or members-only,
// who their members are, how far each member has read, and the head of the log as of the change
// feed.
//
// The log is authoritative. A channel's row holds numbers that the change feed advances after the
// log, so that a list of a user's channels does not read every log. The row never holds text, so a
// recall need not change it.
package channel

import "time"

// Row is the stored record of a channel.
type Row struct {
	ChannelID string
	// MembersOnly never changes once the row exists.
	MembersOnly bool
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
}

// Numbers describe the extent of a log.
type Numbers struct {
	// Head is the seq of the last entry. Count is the number of messages in the log up to and
	// including it.
	Head, Count int64
	// LastMessage is the seq of the newest message; 0 if there is none.
	LastMessage int64
}

// Member is a user's membership of a channel.
type Member struct {
	ChannelID, UserID string
	JoinedAt          time.Time
	Cursor
}

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
}

// Change reports that users may have lost access to a channel: they were removed from it, or it was
// created as members-only.
type Change struct {
	ChannelID string
	// UserIDs are the users who may have lost access; empty means any user.
	UserIDs []string
}
