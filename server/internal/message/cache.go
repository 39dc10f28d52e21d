package message

import "context"

// Cache holds the newest part of each log in faster storage. Only the consumer of the change feed
// writes it; this package reads it. It is safe for concurrent use.
type Cache interface {
	// Page returns the cached entries of a range, all read at one moment. It ignores
	// Range.MaxBytes. If the cache holds no entries of the channel, it returns a zero page and no
	// error.
	Page(ctx context.Context, channelID string, r Range) (CachedPage, error)
}

// CachedPage is the part of a range that a cache holds.
type CachedPage struct {
	// Epoch is the epoch of the channel's newest cached entry; empty if none is cached.
	Epoch string
	// Oldest and Newest are the lowest and the highest seq that are cached for the channel, inside the
	// range or not. Every seq between them is cached too.
	Oldest, Newest int64
	// Count is the number of messages in the log up to and including Newest.
	Count int64
	// Entries are the cached entries of the range, in the order of Range.Desc, at most Range.Limit.
	Entries []Cached
}
