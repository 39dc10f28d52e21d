package message

import "context"

// Cache holds the newest piece of each log in a faster place. Only the change feed's consumer ever writes it; the
// pipeline reads it. Safe for concurrent use.
type Cache interface {
	// Page reads cached entries of a range, all at one moment. Range.MessagesOnly and MaxBytes do not apply. An empty or
	// absent set is a zero page without error.
	Page(ctx context.Context, channelID string, r Range) (CachedPage, error)
}

// CachedPage is what a cache holds of a range.
type CachedPage struct {
	// Epoch is that of the set's newest entry; empty if there is no set.
	Epoch string
	// Oldest and Newest are the ends of the whole set, which is dense between them.
	Oldest, Newest int64
	// Count is that of the newest entry.
	Count int64
	// Entries are those of the range, in its order, up to its limit.
	Entries []Cached
}
