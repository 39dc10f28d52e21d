package feed

import (
	"context"
	"errors"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

// ErrStaleLoad is returned by CacheWriter.Replace if the entries were read too long ago to be
// cached.
var ErrStaleLoad = errors.New("stale load")

// CacheWriter writes the cache, which has one set per channel: the newest messages of its log, and
// the seq up to which they include it. A session's set is a list in Redis, any other a sorted set.
// Only the Builder writes. Every call may be repeated without harm, so an error leaves nothing to
// undo.
type CacheWriter interface {
	// Limits returns the limits of the channel's set: how many messages it holds, and their size in
	// bytes.
	Limits(channelID string) (messages, bytes int)
	// Page is message.Cache.Page.
	Page(ctx context.Context, channelID string, r message.Range) (message.CachedPage, error)
	// Append applies the changes of each run in order; each run is of another channel. It returns for
	// each run how many of its changes, from the front, are applied.
	//
	// An entry that the channel's set already includes changes nothing. An entry that follows is
	// applied: a send adds its message, and an edit, recall or close replaces its message if the
	// set holds it. An edit, recall or close that does not follow deletes the set. A send that does
	// not follow ends the run before it: the caller must replace the set first. No entry can follow
	// if the channel has no set or a set of another epoch.
	Append(ctx context.Context, runs []ChannelChanges) ([]int, error)
	// Now returns the time of the server that holds the channel's set, for Replace.
	Now(ctx context.Context, channelID string) (time.Time, error)
	// Replace replaces the channel's set; log has at least one message. It does nothing if the set has
	// that epoch and reaches as far. began is the result of Now from before the messages were read
	// from the store. If that is more than 2 s ago when the cache would be written, Replace writes
	// nothing and returns ErrStaleLoad.
	Replace(ctx context.Context, channelID string, began time.Time, log message.CachedLog) error
	// Drop deletes the channel's set, if there is one.
	Drop(ctx context.Context, channelID string) error
}

// ChannelChanges is a sequence of entries of one channel and one epoch, in the order in which they
// arrived.
type ChannelChanges struct {
	ChannelID string
	Epoch     string
	Changes   []CacheChange
}

// CacheChange is the effect of one entry on a cached set.
type CacheChange struct {
	// Seq is the seq of the entry. Count is the number of messages in the log up to and including it.
	Seq, Count int64
	// Sent is set if the entry is a send.
	Sent bool
	// Message is the message that was sent, edited, recalled or closed, in its current state.
	Message message.Message
}
