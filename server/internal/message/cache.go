package message

import "context"

// Cache holds the newest part of each log in faster storage. Only the consumer of the change feed
// writes it; this package reads it. It is safe for concurrent use.
type Cache interface {
	// Page returns the cached entries of a range, all read at one moment. It ignores
	// Range.MessagesOnly and MaxBytes. For an empty or absent set it returns a zero page and no
	// error.
	Page(ctx context.Context, channelID string, r Range) (CachedPage, error)
}

// CachedPage is the part of a range that a cache holds.
type CachedPage struct {
	// Epoch is the epoch of the set's newest entry; empty if there is no set.
	Epoch string
	// Oldest and Newest are the lowest and the highest seq of the whole set, which is dense between
	// them.
	Oldest, Newest int64
	// Count is the count of the newest entry.
	Count int64
	// Entries are the entries of the range, in its order, up to its limit.
	Entries []Cached
}
