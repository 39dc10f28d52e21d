package channel

import (
	"context"
	"errors"
	"time"

	"github.com/parleyhq/parley/server/internal/message"
)

// ErrChanged reports that a channel's settings have changed since they were read.
var ErrChanged = errors.New("channel settings have changed")

// Retention is a policy for how much of a log is kept. Messages expire, the oldest first, while
// they exceed any of its limits. 0 means no limit. A log may exceed MaxMessages and MaxBytes by a
// tenth for a while, and messages may be older than MaxAge by a fiftieth and a minute.
type Retention struct {
	MaxAge      time.Duration
	MaxMessages int64
	// MaxBytes limits message.Entry.Bytes of the kept entries.
	MaxBytes int64
}

// Unlimited reports whether the policy keeps everything.
func (r Retention) Unlimited() bool { return r == Retention{} }

// Trim is how far the expired entries of a log have been removed, and when a trimmer must look at
// the log again.
type Trim struct {
	// Stripped and Deleted are the seqs up to which entries have been stripped and deleted; see
	// message.LogTrimmer.
	Stripped, Deleted int64
	// Due is when to look again, in whole milliseconds; zero if nothing will expire before the next
	// entry or change of settings.
	Due time.Time
}

// BoundaryStore is the part of a store of channels that moves the boundaries of logs.
type BoundaryStore interface {
	// MoveBoundary moves the boundary of a channel's log forward and sets Trim.Due to due. It changes
	// nothing and returns false if the channel has no row, if its boundary is at to or beyond it, or
	// if its SettingsRev is not rev.
	MoveBoundary(ctx context.Context, channelID string, rev int64, to message.Boundary, due time.Time) (bool, error)
}

// TrimStore is the part of a store of channels that removes old entries of their logs. All methods
// may be called concurrently, and are as durable and as fresh as those of Store.
type TrimStore interface {
	BoundaryStore
	// RowsAfter returns up to limit rows whose ids are greater than after, in byte order of the ids.
	RowsAfter(ctx context.Context, after string, limit int) ([]Row, error)
	// Due returns up to limit rows of the shard's channels whose Trim.Due is set and not after until,
	// the longest due first. A Due that is being changed may be missed or returned late.
	Due(ctx context.Context, shard int, until time.Time, limit int) ([]Row, error)
	// SetTrim moves Trim.Stripped and Trim.Deleted forward, never back, and sets Trim.Due. read is the
	// row that was read before. If the row's SettingsRev, Oldest or Head has changed since, Due is
	// only moved forward, to an earlier time, and if it is SettingsRev, Stripped and Deleted stay.
	// SetTrim does nothing if the channel has no row.
	SetTrim(ctx context.Context, read *Row, trim Trim) error
	// DropMembers removes the records of up to limit members, followers and former members of a
	// channel that is not Live, and returns how many it removed; 0 means that none is left. A write
	// that began while the channel was Live may add one later: drop members again once such writes
	// have ended.
	DropMembers(ctx context.Context, channelID string, limit int) (n int, err error)
	// FinishDelete makes a Deleting channel Deleted. It does nothing if the channel is not Deleting.
	FinishDelete(ctx context.Context, channelID string) error
}
