package message

import (
	"context"
	"strconv"
)

// ErasedUser replaces a user in what is kept of their messages, edits and recalls after an erasure.
// No token may have it as its subject.
//
// A recall by ErasedUser erases its message: besides the content it removes the sender, the
// client_msg_id and the trace context. It may follow another recall, and its message may have
// expired. Everything else is as for any recall.
const ErasedUser = "~erased"

// ErasedKey returns the client_msg_id of an entry whose sender was erased.
func ErasedKey(seq int64) string { return "erased/" + strconv.FormatInt(seq, 10) }

// EraseDraft returns the draft that erases a message. It always has the same client key, so that a
// repeat stores nothing.
func EraseDraft(e *Entry) Draft {
	return Draft{
		Kind: KindRecall, ChannelID: e.ChannelID, MsgID: e.MsgID, FromID: ErasedUser, ClientMsgID: "erase/" + e.MsgID,
		AnySender: true,
	}
}

// Erases reports whether the entry is a recall that erases its message. A recall by a user whom
// Scrub removed later is none, although its sender is ErasedUser too.
func (e *Entry) Erases() bool {
	return e.Kind == KindRecall && e.FromID == ErasedUser && e.ClientMsgID != ErasedKey(e.Seq)
}

// erases reports whether the draft erases its message.
func (d *Draft) erases() bool { return d.Kind == KindRecall && d.FromID == ErasedUser }

// LogEraser finds and erases the entries of a user. The methods may be called concurrently and
// repeated.
type LogEraser interface {
	// BySender returns up to limit entries of all logs whose FromID is the user: messages, edits,
	// recalls, and what is left of them after Strip. Texts and metadata may be missing. It covers
	// every entry whose Insert returned before the call began. Its cost does not depend on the number
	// of other users' entries, except that the embedded store seeks twice in each log.
	BySender(ctx context.Context, userID string, limit int) ([]Entry, error)
	// Scrub removes a user from entries of one log, at most 1,000. Of these it changes only entries
	// whose FromID is the user and which are not sends: FromID becomes ErasedUser, ClientMsgID becomes
	// ErasedKey, and Digest and Traceparent are removed. Writes with their ClientKeys are no longer
	// recognized as repeats. The text of a pending edit remains until it is applied. Scrub is durable
	// when it returns.
	Scrub(ctx context.Context, channelID, userID string, seqs []int64) error
}
