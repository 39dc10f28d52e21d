package qlog

import (
	"context"
	"time"
)

// Draft is a message that a producer gives to a partition.
type Draft struct {
	Key  string
	Body []byte
	Options
	// IdempotencyKey is empty for none. A message whose key was used within the window is not stored
	// again; with another Digest it is refused.
	IdempotencyKey string
	// Digest identifies the message's content, for IdempotencyKey and for a producer's sequence.
	Digest string
	// Delay and At schedule the message: At, unless it is zero, else Delay, if it is more than 0.
	// Finer times than milliseconds are rounded up.
	Delay time.Duration
	At    time.Time
	// OnConflict decides what happens if UniqueKey is in use. UniqueFor bounds how long it is, from
	// the due time on.
	OnConflict Conflict
	UniqueFor  time.Duration
}

// Conflict says what happens to a message whose unique key another message has.
type Conflict uint8

// The answers to a conflict.
const (
	// ConflictReject refuses the new message.
	ConflictReject Conflict = iota
	// ConflictKeep answers with the earlier message, as a duplicate.
	ConflictKeep
	// ConflictReplace ends the earlier message if it still waits, and stores the new one. If the
	// earlier one was begun, the new message is refused.
	ConflictReplace
)

// Put is one producer's request to one partition.
type Put struct {
	Drafts []Draft
	// ProducerID and Sequence make the request as a whole safe to repeat, at no key per message: a
	// repeat with the same sequence is answered as the first. ProducerID is empty for none.
	// Sequence grows by one with each request of a producer; at most 64 may be unanswered. Drafts
	// with keys of their own do not need it.
	ProducerID string
	Sequence   int64
}

// PutResult is what became of a Draft.
type PutResult struct {
	MessageID string
	// Duplicate: an earlier request stored it.
	Duplicate bool
	// Due is when a scheduled message is appended to the log; zero for others.
	Due time.Time
	// Replaced is the entry that must be cancelled in the log because this message took its unique
	// key; 0 for none. Only with ConflictReplace, and also of a duplicate while it has the key.
	Replaced ID
	// Err is nil or one of ErrFull, ErrKeyReused, ErrUnique, ErrSequenceOld.
	Err error
}

// Bounds are the limits and the retention of a partition.
type Bounds struct {
	// MaxMessages bounds what is not settled, scheduled messages included. 0: no bound.
	MaxMessages int64
	// DropOldest removes the oldest messages instead of refusing new ones.
	DropOldest bool
	// Window is how long idempotency keys and sequences are remembered after the due time.
	Window time.Duration
	// RetainAge and RetainMessages keep settled messages. 0: none are kept by age; no bound by count.
	RetainAge      time.Duration
	RetainMessages int64
}

// Store keeps logs. Safe for concurrent use. Every call touches one partition, in one atomic step
// unless it says otherwise. A call that certainly did nothing because the store is away fails with
// a fault of StoreUnavailable.
type Store interface { //nolint:interfacebloat // one adapter implements it, and each call is one step of a log
	// Put appends messages, or schedules them, in order. It returns one result for each.
	// ErrPaused, ErrNoTopic, ErrNoMemory.
	Put(ctx context.Context, ref Ref, bounds Bounds, put Put) ([]PutResult, error)

	// Acquire makes node the holder of the lease, under a new epoch, if the stored epoch is still
	// expected (as Lease returned it). ErrHeld, ErrNoTopic, ErrNoGroup. A repeat is ErrHeld if the first call was
	// executed, also for the holder: it acquires once more, with the epoch that Lease then returns.
	Acquire(ctx context.Context, ref GroupRef, node string, expected int64) (State, error)
	// Lease returns the holder and the epoch as stored, without changing anything. Holder is empty
	// if the lease is free. ErrNoGroup.
	Lease(ctx context.Context, ref GroupRef) (holder string, epoch int64, err error)
	// Commit applies c: see Commit. ErrFenced, ErrRolledBack, ErrNoTopic, ErrNoGroup, ErrTooLarge. It
	// also works if the store is out of memory.
	Commit(ctx context.Context, ref GroupRef, c *Commit) (Committed, error)

	// Last returns the newest position of the log, so that the caller knows whether there is something to
	// read. ErrNoTopic.
	Last(ctx context.Context, ref Ref) (Pos, error)
	// Read returns up to n entries after an ID, in order: fewer if together they have more than
	// MaxCallBytes. The store reads n all the same, so the caller asks for no more than fit according to
	// Largest. Anyone may read; it changes nothing.
	Read(ctx context.Context, ref Ref, after ID, n int) ([]Entry, error)
	// ReadEntries returns the entries with these positions, in order, without those that are gone.
	ReadEntries(ctx context.Context, ref Ref, at []Pos) ([]Entry, error)
	// Open returns a page of the chunks of open entries and the cursor for the next page, which is 0
	// after the last. A page is no snapshot; only the lease holder reads it, who alone changes it.
	Open(ctx context.Context, ref GroupRef, cursor uint64) (chunks map[int64]string, next uint64, err error)
	// Rows returns a page of the rows, as Open does.
	Rows(ctx context.Context, ref GroupRef, cursor uint64) (rows map[ID]Row, next uint64, err error)

	// Trim removes up to n entries that every group has settled and that the bounds do not keep. It
	// returns how many.
	Trim(ctx context.Context, ref Ref, bounds Bounds, n int) (int, error)
	// Sweep removes settled entries that lie after an open one, if the groups are still those of
	// version. ErrStale.
	Sweep(ctx context.Context, ref Ref, version int64, entries []Pos) (int, error)
	// Due appends scheduled messages that are due to the log, in order of their due times, up to
	// MaxCallBytes and 500 of them. It returns how many, and how long it is until the next is due:
	// 0 if more are due, Never if none waits. Never early, by the store's clock.
	Due(ctx context.Context, ref Ref) (moved int, next time.Duration, err error)
}

// Never is the time until nothing.
const Never = time.Duration(1<<63 - 1)
