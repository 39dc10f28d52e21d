// Package channel is what the system knows of channels besides their logs: whether they are open or take members only,
// who their members are, how far each has read, and where the log stands as of the change feed.
//
// The truth about a log is the log. A channel's row holds numbers that the change feed moves forward after it, so that
// a list of somebody's channels needs no look at each log; text is never kept in it, so a recall need not look here.
package channel

import "time"

// Row is what is stored of a channel.
type Row struct {
	ChannelID string
	// MembersOnly never changes once the row is there.
	MembersOnly bool
	// CreatedBy is empty for a channel that a first send made.
	CreatedBy string
	CreatedAt time.Time
	// CreateKey is the idempotency key of the call that created the channel, and CreateDigest identifies what that
	// call asked for. Both are empty if the call had no key, and for a channel that a first send made.
	CreateKey, CreateDigest string
	// Numbers are the log's, as far as the feed has come.
	Numbers
}

// Numbers say how far a log has come.
type Numbers struct {
	// Head is the last entry's seq, Count how many messages the log holds up to and with it.
	Head, Count int64
	// LastMessage is the seq of the newest message; 0 while there is none.
	LastMessage int64
}

// Member is a user's place in a channel.
type Member struct {
	ChannelID, UserID string
	JoinedAt          time.Time
	Cursor
}

// Cursor is how far somebody has read: a place in the log, and how many messages the log holds up to and with it.
type Cursor struct {
	Seq, Count int64
}

// Advance is how far the feed has come with a channel's log.
type Advance struct {
	ChannelID string
	Numbers
	// Senders are how far those who sent something have come by that, by user id.
	Senders map[string]Cursor
}

// Change says that users may have lost a channel: they were removed from it, or it was made and takes members only.
type Change struct {
	ChannelID string
	// UserIDs are the users concerned; none means all.
	UserIDs []string
}
