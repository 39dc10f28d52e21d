package message

import "context"

// Cache holds the newest messages of each log in faster storage. Only the consumer of the change
// feed writes it; this package reads it. It is safe for concurrent use.
type Cache interface {
	// Page returns the cached part of a range, all read at one moment. What it reads is within the
	// limits of the range, except for one message. If the cache holds nothing of the channel, it
	// returns a zero page and no error.
	Page(ctx context.Context, channelID string, r Range) (CachedPage, error)
}

// CachedPage is the part of a range that a cache holds.
type CachedPage struct {
	// Epoch is the epoch of the channel's log; empty if nothing is cached.
	Epoch string
	// Newest is the last entry of the log that the cached messages include. Count is the number of
	// messages in the log up to and including it.
	Newest, Count int64
	// Oldest is the seq from which on every message is cached: 1 if all messages of the log are,
	// otherwise the seq of the first one that is.
	Oldest int64
	// Unknown is the seq of the last edit or recall whose message is not cached; 0 if there is none.
	// The cache cannot tell which changes the log has up to it.
	Unknown int64
	// Events are the messages of the range, in the order of Range.Desc, each in its current state.
	// Unless Range.MessagesOnly is set, there is also an event for each cached message that was last
	// changed in the range, in the place of that change; Range.Desc must not be set then. Their Epoch,
	// Kind, Seq and Message are set.
	Events []Event
	// Cut is set if a limit of the range ended Events. The cache counts bytes as it stores them, so it
	// may be set although the messages are within MaxBytes.
	Cut bool
}

// CachedLog is what a cache holds of one channel.
type CachedLog struct {
	// Epoch, Newest, Count and Unknown are those of CachedPage.
	Epoch                  string
	Newest, Count, Unknown int64
	// Messages are consecutive messages up to the log's last one, in ascending order.
	Messages []Message
}
