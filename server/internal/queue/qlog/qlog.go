// Package qlog declares the log of one partition of a topic, and what one consumer group keeps about
// it. A message stays in the log until it is settled. One node at a time, the lease holder, decides
// who works on it: it reads the log, and writes what it decided with Commit, which fails for
// everyone but the current holder.
//
// The package has no code that talks to an engine: package redislog implements Store.
package qlog

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Limits of a log and of one call.
const (
	// MaxRecordBytes bounds the encoded record of one message: payload, key, headers and options.
	MaxRecordBytes = 300 << 10
	// MaxCallBytes bounds the records that one script moves, or one read returns, unless a single
	// record is larger.
	MaxCallBytes = 1 << 20
	// MaxReadEntries bounds the entries of one Read.
	MaxReadEntries = 256
	// MaxChanges bounds the changes of one Commit: rows, chunks, dead letters, unique keys
	// and deletions together.
	MaxChanges = 1000
	// ChunkOrdinals is how many ordinals one chunk of the set of open entries covers.
	ChunkOrdinals = 1024
)

// The errors of a Store, beside faults of Kind Unavailable. They are found by errors.Is.
var (
	// ErrNoTopic: the partition does not exist, or belongs to another topic of the name (other UID),
	// or its keys were lost. MakePartition creates it again.
	ErrNoTopic = errors.New("no such topic")
	// ErrNoGroup: the group does not exist in the partition.
	ErrNoGroup = errors.New("no such consumer group")
	// ErrPaused: the topic accepts no messages at present.
	ErrPaused = errors.New("the topic is paused")
	// ErrHeld: another node acquired the lease since the caller looked.
	ErrHeld = errors.New("another node holds the lease")
	// ErrFenced: the lease has a higher epoch than the caller's. Nothing was changed.
	ErrFenced = errors.New("the lease was lost")
	// ErrRolledBack: the store lost commits that it had acknowledged, for example because it was
	// restored from an older file. Nothing was changed. Acquire again and read everything anew.
	ErrRolledBack = errors.New("the store lost writes that it had acknowledged")
	// ErrStale: the set of groups, or the place of one, changed since the caller read it, so that
	// entries that were to be deleted may be needed. Nothing was changed.
	ErrStale = errors.New("the groups of the partition changed meanwhile")
	// ErrTooLarge: a Commit exceeds a limit. Nothing was changed. A repeat fails again.
	ErrTooLarge = errors.New("the commit exceeds a limit")
	// ErrNoMemory: the store has no memory for a write that adds data. Nothing was changed.
	ErrNoMemory = errors.New("the store is out of memory")
	// ErrFull: the partition holds as many unsettled messages as it may.
	ErrFull = errors.New("the partition is full")
	// ErrKeyReused: the idempotency key was used with another message.
	ErrKeyReused = errors.New("the idempotency key was used with another message")
	// ErrUnique: another message has the unique key.
	ErrUnique = errors.New("another message has the unique key")
	// ErrSequenceOld: the sequence is so old that the answer to it is no longer known.
	ErrSequenceOld = errors.New("the sequence is too old")
	// ErrNoMessage: no such message is stored.
	ErrNoMessage = errors.New("no such message")
	// ErrUnknownOutcome: the call may have been executed. Every call of a Store but Put of messages
	// without any key may be repeated.
	ErrUnknownOutcome = errors.New("the outcome is not known")
)

// Ref names a partition of one topic, and not of an earlier or later topic of the same name.
type Ref struct {
	Topic     string
	UID       string
	Partition int
}

// GroupRef names a group's part of a partition.
type GroupRef struct {
	Ref

	Group string
}

// ID identifies an entry of a partition for good. It is the store's time when it appended the entry,
// in microseconds since 1970, or one more than the last entry's ID if that is later. So IDs of a
// partition increase strictly and are never used again, also after the store lost writes.
type ID int64

// Time returns the time that the ID contains.
func (id ID) Time() time.Time { return time.UnixMicro(int64(id)) }

// Pos is a place in a log. Ord counts the entries of the log, the first is 1. Ordinals are dense
// when they are appended, but may be used again after the store lost writes. So an entry is found by
// its ID, and ordinals are only counted with.
type Pos struct {
	ID  ID
	Ord int64
}

// String returns the position as the store's streams write it: "<µs>-<ord>".
func (p Pos) String() string {
	return strconv.FormatInt(int64(p.ID), 10) + "-" + strconv.FormatInt(p.Ord, 10)
}

// ParsePos parses what String returns.
func ParsePos(s string) (Pos, error) {
	for i := range len(s) {
		if s[i] != '-' {
			continue
		}
		id, err1 := strconv.ParseInt(s[:i], 10, 64)
		ord, err2 := strconv.ParseInt(s[i+1:], 10, 64)
		if err1 == nil && err2 == nil && id >= 0 && ord >= 0 {
			return Pos{ID(id), ord}, nil
		}
		break
	}
	return Pos{}, fmt.Errorf("%q is not a position in a log", s)
}

// Options are what a producer said about one message. A zero field means that the group decides.
type Options struct {
	MaxAttempts int
	// Timeout is the time that a handler may take. TTL is the time from the append (for a scheduled
	// message: from its due time) after which the message expires unless a handler began it.
	Timeout, TTL time.Duration
	// UniqueKey is the key under which no other message may wait, or run if UniqueRunning is set.
	UniqueKey     string
	UniqueRunning bool
}

// Entry is one message in the log.
type Entry struct {
	Pos

	// MessageID is the id that the producer was told. It begins with the partition.
	MessageID string
	Key       string
	// Body is the encoded message: key, payload and headers as fields of parley.v1.Delivery. It is
	// nil where it was not read or was dropped.
	Body []byte
	// PayloadBytes is the size of the payload, of an entry that was read.
	PayloadBytes int
	Options
	// ProducedAt is when the store accepted the message; for a scheduled message, when it was due.
	// Of a replayed dead letter it is that of the first time.
	ProducedAt time.Time
	// Only is the group that the entry is for, empty for all. Replayed dead letters have one.
	Only string
	// Unreadable says why the record can't be decoded; then Key, Body and Options may be missing and
	// the message can only become a dead letter.
	Unreadable error
}

// Expires returns when the message expires unless a handler begins it; zero for never. A replayed
// dead letter has its whole TTL once more.
func (e *Entry) Expires() time.Time {
	switch {
	case e.TTL <= 0:
		return time.Time{}
	case e.Only != "":
		return e.ID.Time().Add(e.TTL)
	default:
		return e.ProducedAt.Add(e.TTL)
	}
}

// RowState is the state of a Row.
type RowState uint8

// The states. An entry without a row is in its first delivery, or has not been delivered.
const (
	// RowWaiting: not delivered at present; Gen counts its earlier deliveries.
	RowWaiting RowState = iota + 1
	// RowSent: delivery Gen was handed to Session, which has not begun it as far as is known.
	RowSent
	// RowBegun: a handler of Session has worked on it since Since.
	RowBegun
	// RowLoose: delivered by Receive, without a session; Due is its deadline.
	RowLoose
	// RowRetrying: it is delivered again at Due.
	RowRetrying
	// RowSuspect: its worker was lost while it ran, so it may have caused that. It is delivered
	// again at Due, and a session holds at most one suspect.
	RowSuspect
)

// Row is what a group keeps about an open entry beyond that it is open.
type Row struct {
	State RowState
	// Gen counts the deliveries of the entry, the current or latest included. A settlement counts
	// only for the current one.
	Gen int
	// Attempts counts the deliveries that were charged. At most Gen.
	Attempts int
	// Session is the session that holds delivery Gen in the states RowSent and RowBegun, and the
	// nonce of the delivery in RowLoose; empty otherwise.
	Session string
	// Since is when the state began, by the holder's clock, in milliseconds.
	Since time.Time
	// Due is the time of the states RowLoose, RowRetrying and RowSuspect.
	Due time.Time
	// Code and Reason are those of the latest failure.
	Code, Reason string
}

// Counters count what became of a group's entries in a partition since the group was created or
// moved. In a Commit they are what is to be added.
type Counters struct {
	Acked, Dead, Cancelled, Expired int64
	// Trimmed counts entries that were removed before the group settled them, Elsewhere those that were
	// for another group.
	Trimmed, Elsewhere int64
	// Retried counts failed attempts that are repeated, Redelivered uncharged ones.
	Retried, Redelivered int64
}

// State is what a group keeps about a partition, as Acquire returns it.
type State struct {
	Holder string
	Epoch  int64
	// Ver counts the commits of the group. It never goes back unless the store lost writes.
	Ver int64
	// Cursor: the group has settled every entry up to and including it. Sent: every entry up to and
	// including it is settled or open. Entries after Sent have not been looked at.
	Cursor, Sent Pos
	Counters     Counters
	// GroupsVersion changes when a group of the partition is created, deleted or moved.
	GroupsVersion int64
	// Last is the newest entry of the log; zero if there never was one.
	Last Pos
	// Largest is as in Committed.
	Largest []int
	// Now is the store's time.
	Now time.Time
	// Released: nobody held the lease, so that each delivery that a session may have has a row.
	Released bool
}

// DeadLetter ends a message in a Commit: it goes to the partition's dead letters.
type DeadLetter struct {
	Pos

	MessageID    string
	Attempts     int
	Reason, Code string
	// Key and PayloadBytes are those of the entry, for lists that do not read the record.
	Key          string
	PayloadBytes int
}

// Commit is one durable step of a lease holder. It is applied whole or not at all, and once: a copy
// that arrives late changes nothing. After ErrUnknownOutcome it must be repeated unchanged until its
// outcome is known.
type Commit struct {
	// Epoch is the holder's. Acked is the Ver of the last commit that the store acknowledged to this
	// holder, or that Acquire returned. Ver is this commit's, Acked + 1.
	Epoch, Acked, Ver int64
	// Cursor and Sent are the new marks.
	Cursor, Sent Pos
	// Open are the chunks of the set of open entries that changed: by ordinal divided by
	// ChunkOrdinals, the open ordinals of the chunk as FormatRanges writes them; empty for none.
	Open map[int64]string
	// Rows are the rows that changed; DeleteRows are the entries whose row is removed.
	Rows       map[ID]Row
	DeleteRows []ID
	Add        Counters
	// Dead are entries that become dead letters. Their records have at most MaxCallBytes together,
	// unless there is only one. Add.Dead counts them; those that are not in the log any more are counted
	// as Trimmed instead.
	Dead []DeadLetter
	// FreeUnique are unique keys whose message, by ID, is settled (or begun, if they are free then).
	FreeUnique map[string]ID
	// Delete are settled entries that are removed from the log because nothing else needs them: the
	// group is the only one and the topic keeps no settled messages. They are removed only if
	// GroupsVersion is still that of the partition; otherwise the commit is applied without.
	Delete        []Pos
	GroupsVersion int64
	// Release releases the lease with this commit. Each delivery that a session may have must have a
	// row then. Unsure: there may be one without, of an earlier holder that died, so that the next
	// holder must not take the lease for Released.
	Release, Unsure bool
}

// Committed is the answer to a Commit.
type Committed struct {
	// Last is the newest entry of the log, so that a holder knows what there is to read.
	Last          Pos
	GroupsVersion int64
	// Largest are the sizes in bytes of the largest record in each run of 256 ordinals from the one
	// after Sent on, as far as it is more than 4 KiB; 0 otherwise. At most 4.
	Largest []int
}
