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

// ErrNotStored is the error of an insert that did not store the entries after the first n, the
// count that Insert returns: the store refused them or was not reached, and they cannot be stored
// later.
var ErrNotStored = errors.New("not stored")

// ConflictError reports that Insert could not store an entry because of an existing one: the
// entry's seq is taken (or is not the next one), or its ClientKey is.
type ConflictError struct {
	// ChannelID is the channel of the conflicting entry.
	ChannelID string
}

// Error implements error.
func (e *ConflictError) Error() string { return fmt.Sprintf("conflict in channel %s", e.ChannelID) }

// Identity holds values of a store that are the same for every node that opens it.
type Identity struct {
	// Shards is the number of shards. It is fixed when the store is created.
	Shards int
	// Epoch is the epoch of every log in the store. It is random. Store.NewEpoch replaces it after a
	// restore from a backup.
	Epoch string
	// Secret is the key that signs page tokens: 32 random bytes.
	Secret []byte
}

// Name returns a name that is unique to the store: 16 hexadecimal digits, lower case. It is derived
// from the secret, does not reveal it, and may be public.
func (id Identity) Name() string {
	mac := hmac.New(sha256.New, id.Secret)
	mac.Write([]byte("store"))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// Head is the end of a log, and where its readable part begins.
type Head struct {
	// Seq is the seq of the last entry; 0 for an empty log.
	Seq int64
	// Count is the number of messages in the log.
	Count int64
	// MsgTime is the time of the last entry.
	MsgTime time.Time
	// Bytes is Entry.Bytes of the last entry.
	Bytes int64
	// Rev is the access revision of the last entry.
	Rev int64
	// Boundary is the start of the log's readable part.
	Boundary
}

// ClientKey is the idempotency key of a write within a channel.
type ClientKey struct {
	FromID, ClientMsgID string
}

// Place is the place of an entry in the log of a channel.
type Place struct {
	ChannelID string
	Seq       int64
}

// Range selects entries of a channel by seq.
type Range struct {
	// After and Before are exclusive bounds. A Before of 0 means no upper bound.
	After, Before int64
	// Desc selects from the upper end of the range, and returns the highest seq first.
	Desc bool
	// Limit is the maximum number of entries to return, at least 1.
	Limit int
	// MaxBytes ends the result after the entry with which the total Size of entries exceeds it; 0
	// means no limit.
	MaxBytes int
	// HeadersOnly leaves out texts and metadata, and their cost.
	HeadersOnly bool
	// MessagesOnly selects sends only. The cost does not depend on the number of edits and recalls
	// between them.
	MessagesOnly bool
}

// LogWriter is the part of a store that the Writer uses. All methods may be called concurrently,
// except that each process runs at most one Insert per shard at a time.
type LogWriter interface {
	// Insert appends entries of one shard in order. It stores changes, and nothing else, as
	// pending, regardless of Pending. It returns the number of entries, from the
	// front, that are durably stored (Mongo: majority and journaled; embedded: fsync'd).
	//
	// With a nil error, n is len(entries). With a *ConflictError, the entry at [n] conflicted, and
	// neither it nor any later entry is or will be stored. The same holds from [n] on for an error
	// that wraps ErrNotStored. After any other error the outcome of the entries from [n] on is
	// unknown: each may be stored, now or later, but never without the earlier entries of its
	// channel.
	//
	// An entry is stored only if its seq is free. The embedded store also checks that the seq is
	// the next one. The caller must prevent holes by numbering from an accurate Head.
	Insert(ctx context.Context, shard int, entries []Entry) (n int, err error)
	// Head reads the end of a log, linearizably: the result covers every entry whose Insert
	// returned before the call began.
	Head(ctx context.Context, channelID string) (Head, error)
	// ByClientKeys returns the entries that have the given keys, read from the durable state of the
	// store. Keys without an entry are absent from the map. The result is no older than a Head that
	// returned before the call began.
	ByClientKeys(ctx context.Context, channelID string, keys []ClientKey) (map[ClientKey]Entry, error)
	// Targets returns messages by id, with every entry of their log applied, whether or not Apply has
	// been called for them. Messages that do not exist are absent from the map. The result is no older
	// than a Head that returned before the call began.
	Targets(ctx context.Context, channelID string, msgIDs []string) (map[string]Entry, error)
	// Apply changes the target of each change (see Kind.Changes), if the target's ChangedSeq is lower
	// than the entry's Seq, raises the target's Rev to the entry's, and marks the entry as applied,
	// which removes its text. A recall also removes text, metadata and digest from the target, and the
	// text from earlier edits of it that are pending. A target or a change that was stripped or
	// deleted remains as it is. Entries that are no changes are ignored. All must be of one shard. The
	// changes are durable when Apply returns nil. After an error some may be applied, wholly or in
	// part, and Apply must be called again. Apply is idempotent. Its cost does not depend on the
	// number of earlier changes.
	Apply(ctx context.Context, changes ...*Entry) error
}

// LogReader is the part of a store that reads use. All methods may be called concurrently and
// return durable entries only. No result is older than one that an earlier call returned.
type LogReader interface {
	// Head is LogWriter.Head.
	Head(ctx context.Context, channelID string) (Head, error)
	// Heads reads the ends of at most 500 logs as Head does, at about the cost of one. A log without
	// entries may be absent.
	Heads(ctx context.Context, channelIDs []string) (map[string]Head, error)
	// Entries returns the entries of a range in their current state, without gaps. It may lag
	// behind the end of the log; the caller knows which seq the result must reach. Below the log's
	// boundary there may be gaps and expired entries, which Range.MessagesOnly leaves out.
	Entries(ctx context.Context, channelID string, r Range) ([]Entry, error)
	// Messages returns the sends at the given places in their current state, in no particular order.
	// Places without a send are omitted. It takes at most 1,000 places.
	Messages(ctx context.Context, places []Place) ([]Entry, error)
	// Pending returns the channels' changes that Apply has not applied yet, each channel's
	// in ascending order of seq: normally none. To read messages with all changes of the log, call
	// Pending before the messages are read, and apply its result to them. A change that is in neither
	// was stored after the call.
	Pending(ctx context.Context, channelIDs ...string) ([]Entry, error)
	// Changed returns the messages that an entry has changed and whose ChangedSeq is above
	// after and below before, in ascending order of ChangedSeq; a before of 0 means no upper bound.
	// It ends as a Range with the given limit and maxBytes does. The result may lag as that of
	// Entries.
	Changed(ctx context.Context, channelID string, after, before int64, limit, maxBytes int) ([]Entry, error)
	// Message returns a message by its id. ok is false if the channel has no such message.
	Message(ctx context.Context, channelID, msgID string) (e Entry, ok bool, err error)
}

// Feed yields the entries of a shard in the order in which they were stored, starting with the
// first that is not yet confirmed as published. It must be used by one goroutine.
type Feed interface {
	// Next waits for entries and returns up to limit of them, each as it was inserted or in its
	// current state. Entries that Published has not confirmed are returned again after a restart.
	// Any entry, confirmed or not, may be returned again at any time. Within a channel, Next never
	// skips an entry that it has not returned before.
	Next(ctx context.Context, limit int) ([]Entry, error)
	// Published confirms all entries that Next has returned. The confirmation may be saved later
	// (Mongo: within 200 ms, but not during a backlog).
	Published(ctx context.Context) error
	// Close saves the confirmations and releases the feed.
	Close(ctx context.Context) error
}

// Store is the complete contract of a message store. storetest.Run is its conformance suite.
type Store interface { //nolint:interfacebloat // it joins the interfaces of its users
	LogWriter
	LogReader
	LogTrimmer
	LogEraser
	OpenLister
	// Identity returns the store's identity. Its epoch is the one read at opening, or that of the last
	// NewEpoch call on this Store.
	Identity() Identity
	// OpenFeed opens the change feed of a shard. One feed per shard is enough; a second one only
	// repeats its entries.
	OpenFeed(ctx context.Context, shard int) (Feed, error)
	// StoredEpoch reads the epoch that the store holds now. It differs from Identity's if another
	// process has called NewEpoch since this store was opened. This process must then exit.
	StoredEpoch(ctx context.Context) (string, error)
	// NewEpoch replaces the epoch of every log, so that every client reloads its data, and returns the
	// new one. Run it after a restore from a backup, while no node is running.
	NewEpoch(ctx context.Context) (string, error)
	// Ping returns nil if the store responds.
	Ping(ctx context.Context) error
	// Close closes every Feed and releases the store.
	Close(ctx context.Context) error
}
