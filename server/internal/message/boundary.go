package message

import (
	"context"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// Boundary is where the readable part of a log begins. Entries before it have expired. It is stored
// with the channel's row and only moves forward; the expired entries are removed later.
type Boundary struct {
	// Oldest is the seq of the first entry that may be read. It is at most one more than the log's
	// last seq. 0 means that no entry has expired.
	Oldest int64
	// Expired is the number of messages before Oldest.
	Expired int64
}

// First returns the seq of the first entry that may be read, at least 1.
func (b Boundary) First() int64 { return max(1, b.Oldest) }

// ExpiryGrace is how long a LogTrimmer's caller leaves entries unchanged after the boundary has
// passed them. A read that knows the boundary from before, and ends within readWithin of it, finds
// every entry that it expects.
const ExpiryGrace = 15 * time.Second

// MinIdempotencyWindow is the minimum time from the append of an entry until LogTrimmer.Delete may
// remove it.
const MinIdempotencyWindow = time.Hour

// readWithin is the maximum time from the call of a read, whose boundary is at most
// ReaderConfig.MaxAge old then, until its last answer of the store. Together they are less than
// ExpiryGrace. A read that takes longer, because its process was suspended, fails.
const readWithin = ExpiryGrace / 2

// LogTrimmer removes expired entries. The methods may be called concurrently and repeated. They
// take at most 1,000 entries, and are durable when they return. The caller must have moved the
// boundary beyond the entries, at least ExpiryGrace before.
type LogTrimmer interface {
	// Strip removes everything from the entries with after < seq < before except what a repeated write
	// and the end of the log need: their kind becomes KindExpired, and only Seq, Count, Bytes, Rev,
	// MsgID, TargetSeq, FromID, ClientMsgID, MsgTime and ChangedSeq remain. Entries that were stripped
	// or deleted before remain as they are.
	Strip(ctx context.Context, channelID string, after, before int64) error
	// Clear is Strip for entries of a deleted channel, also for those that were stripped. In addition,
	// FromID becomes ErasedUser and ClientMsgID becomes ErasedKey. Writes with their ClientKeys are no
	// longer recognized as repeats.
	Clear(ctx context.Context, channelID string, after, before int64) error
	// Delete removes the entries with after < seq < before, which must have been stripped. Writes with
	// their ClientKeys are no longer recognized as repeats. The log's last entry must not be among
	// them: a log's seqs are never used twice. Each must have been appended at least
	// MinIdempotencyWindow before.
	Delete(ctx context.Context, channelID string, after, before int64) error
}

// entryOverhead is what every entry counts for in Entry.Bytes besides its text and metadata.
const entryOverhead = 256

// StoredSize returns the bytes that an entry with this message or change adds to Entry.Bytes.
func (m *Message) StoredSize() int64 { return int64(m.Size()) + entryOverhead }

// historyGone returns the fault of a list that would begin before the boundary.
func historyGone(field string, first int64) *fault.Error {
	e := fault.New(fault.OutOfRange, fault.HistoryGone, "%s: the entries up to seq %d have expired", field, first-1)
	e.Field, e.Limit = field, first
	return e
}

// errTooSlow is the fault of a read that took so long that entries may have been removed under it.
var errTooSlow = fault.New(fault.Unavailable, fault.StoreUnavailable, "the read took too long; retry")
