package message

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// ErrUnknownOutcome says that it is not known whether entries were stored. It is what any error of Insert means that
// is neither a *ConflictError nor ErrNotStored; adapters wrap it where they can tell.
var ErrUnknownOutcome = errors.New("outcome unknown")

// ErrNotStored says that nothing was stored: the store refused or was not reached, and the command can't land later.
var ErrNotStored = errors.New("not stored")

// ConflictError says that the entry which Insert could not store clashes with one that is there: its place is taken
// (or is not the next one), or its ClientKey is.
type ConflictError struct {
	// ChannelID is the clashing entry's.
	ChannelID string
}

// Error implements error.
func (e *ConflictError) Error() string { return fmt.Sprintf("conflict in channel %s", e.ChannelID) }

// Identity is what a store was made with, the same for every node that opens it.
type Identity struct {
	// Buckets is the number of buckets, fixed when the store was made.
	Buckets int
	// Epoch is that of every log in the store: random, and replaced when the store is restored from a backup.
	Epoch string
	// Secret signs page tokens: 32 random bytes.
	Secret []byte
}

// Name tells a store from all others, in the open: it gives nothing of the secret away. It is 16 of 0-9 a-f.
func (id Identity) Name() string {
	mac := hmac.New(sha256.New, id.Secret)
	mac.Write([]byte("store"))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// Head is a log's end.
type Head struct {
	// Seq is the last entry's; 0 for an empty log.
	Seq int64
	// Count is how many messages the log holds.
	Count int64
	// MsgTime is the last entry's.
	MsgTime time.Time
}

// ClientKey is what makes a write idempotent within a channel.
type ClientKey struct {
	FromID, ClientMsgID string
}

// Range asks for entries of a channel by their places.
type Range struct {
	// After and Before are exclusive; a Before of 0 is no bound.
	After, Before int64
	// Desc asks for the highest first.
	Desc bool
	// Limit is the most entries to return, at least 1.
	Limit int
	// MaxBytes ends the answer after the entry with which the sum of contents passes it; 0 is no bound.
	MaxBytes int
	// MessagesOnly leaves edits and recalls out.
	MessagesOnly bool
}

// LogWriter is what the Writer needs of a store. All methods may be called concurrently, except that a bucket has one
// Insert under way at a time per process.
type LogWriter interface {
	// Insert appends entries, of one bucket, in order, and returns how many of them, from the front, are durably stored
	// (Mongo: majority and journaled; embedded: fsync'd). With a nil error that is all. With a *ConflictError the entry at
	// [n] clashed, and nothing from it on was stored, nor ever will be. With an error that wraps ErrNotStored likewise.
	// After any other error the outcome of the entries from [n] on is unknown: each may be stored, or be stored later,
	// but never one without those of its channel before it. An entry is stored only at a free place, and the embedded
	// store also sees that the place is the next one; a hole must be prevented by a true Head.
	Insert(ctx context.Context, bucket int, entries []Entry) (n int, err error)
	// Head reads a log's end, linearizably: it shows every entry whose Insert returned before the call began.
	Head(ctx context.Context, channelID string) (Head, error)
	// ByClientKeys finds entries by what makes them idempotent, in the durable state of the store. Keys without an entry
	// are not in the map. It is no older than a Head that returned before the call began.
	ByClientKeys(ctx context.Context, channelID string, keys []ClientKey) (map[ClientKey]Entry, error)
	// Target finds a message and tells it as it is with every entry of its log applied, whether or not Apply has been
	// called for them; no older than a Head that returned before the call began. ok is false if there is none.
	Target(ctx context.Context, channelID, msgID string) (target Entry, ok bool, err error)
	// Apply changes the target of an edit or a recall, where its ChangedSeq is lower than the entry's Seq; a recall also
	// removes text, metadata and digest from the target and text and digest from the target's edits before it. It is
	// durable when it returns, and doing it again changes nothing.
	Apply(ctx context.Context, change *Entry) error
}

// LogReader is what reads need of a store. All methods may be called concurrently and show durable entries only.
type LogReader interface {
	// Head is LogWriter's.
	Head(ctx context.Context, channelID string) (Head, error)
	// Entries returns the entries of a range, each as it is now, with nothing left out between them. It may be a little
	// behind the log's end: the caller knows how far it must reach.
	Entries(ctx context.Context, channelID string, r Range) ([]Entry, error)
	// Messages returns the sends at these places, as they are now, in no order; those that are not there are left out.
	Messages(ctx context.Context, channelID string, seqs []int64) ([]Entry, error)
	// Changes returns the edits and recalls of the messages at these places, ascending by their own. The messages that
	// the other methods return may lack those for which Apply has not been called yet.
	Changes(ctx context.Context, channelID string, targets []int64) ([]Entry, error)
	// Message finds a message by its id. ok is false if the channel has none.
	Message(ctx context.Context, channelID, msgID string) (e Entry, ok bool, err error)
}

// Feed yields a bucket's entries in the order in which they were stored, from the first that is not yet marked as
// published. It belongs to one goroutine.
type Feed interface {
	// Next waits for entries and returns up to limit of them, each as it was inserted or as it is now. What it returned
	// and Published did not confirm comes again after a restart, and may come again at any time; so may what was
	// confirmed. Entries of a channel never skip one that was not returned before.
	Next(ctx context.Context, limit int) ([]Entry, error)
	// Published confirms everything that Next has returned. It may be saved a little later (Mongo: 200 ms).
	Published(ctx context.Context) error
	// Close saves what was confirmed and frees the feed.
	Close(ctx context.Context) error
}

// Store is the whole contract of a message store; storetest.Run is its suite.
type Store interface {
	LogWriter
	LogReader
	// Identity is what the store was made with.
	Identity() Identity
	// OpenFeed opens a bucket's change feed. One feed per bucket does the work; two only repeat each other.
	OpenFeed(ctx context.Context, bucket int) (Feed, error)
	// StoredEpoch reads the epoch that the store holds now. It is another than Identity's once somebody else has called
	// NewEpoch since this store was opened; a process does not outlive that.
	StoredEpoch(ctx context.Context) (string, error)
	// NewEpoch replaces the epoch of every log, which tells every client to load anew. Run after a restore from backup,
	// with no node running.
	NewEpoch(ctx context.Context) (string, error)
	// Ping tells whether the store answers.
	Ping(ctx context.Context) error
	// Close ends every Feed and frees the store.
	Close(ctx context.Context) error
}
