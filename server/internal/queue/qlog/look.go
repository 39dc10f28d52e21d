package qlog

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MaxLetters bounds the dead letters of one call of a LookStore.
const MaxLetters = 1000

// Counts is what a partition holds, at one moment.
type Counts struct {
	// Length is how many messages the log holds, settled or not. Scheduled messages are not due yet.
	Length, Scheduled int64
	// Produced counts messages that Put accepted, Cancelled those of them that were removed before
	// they were due.
	Produced, Cancelled int64
	DeadLetters         int64
	// First and Last are the oldest and the newest message of the log, by the IDs that their producers
	// were told; empty if it has none.
	First, Last string
	// Groups are sorted by name.
	Groups []GroupCounts
	// Now is the store's time.
	Now time.Time
}

// GroupCounts is what a group has of a partition. For the entries that were appended since the
// group's start, at any moment,
//
//	Appended = Acked + Dead + Cancelled + Expired + Trimmed + Elsewhere + Open + Unsent
//
// The counters are those of the state, with what the holder will add when it gets there: Trimmed
// contains entries that are gone before they were looked at, Elsewhere those that wait for other
// groups.
type GroupCounts struct {
	Group string
	// Lost: the group has no state in the partition, so that everything else is zero.
	Lost bool
	Counters
	// Replayed counts dead letters that were given back to the group.
	Replayed int64
	// Appended counts entries since the group's start. Of those, Open are delivered or were passed
	// over, and Unsent were not looked at. Retrying are the open ones that wait for their next
	// attempt, suspects included.
	Appended, Open, Unsent, Retrying int64
	Cursor, Sent                     Pos
	Holder                           string
	Epoch, Ver                       int64
	// Oldest is when the oldest message that is not settled was appended; zero if there is none. If
	// the log's messages are large and the groups far apart, it may be the time of an older message.
	Oldest time.Time
}

// LetterID identifies a dead letter of a partition: the store's time in milliseconds when it was
// written, and a number among those of that time.
type LetterID struct {
	Milli, Seq int64
}

// IsZero reports whether the ID is that of no dead letter.
func (id LetterID) IsZero() bool { return id == LetterID{} }

// Compare orders IDs by age, the oldest first.
func (id LetterID) Compare(other LetterID) int {
	return cmp.Or(cmp.Compare(id.Milli, other.Milli), cmp.Compare(id.Seq, other.Seq))
}

// Time returns when the dead letter was written.
func (id LetterID) Time() time.Time { return time.UnixMilli(id.Milli) }

// String returns "<milliseconds>-<number>".
func (id LetterID) String() string {
	return strconv.FormatInt(id.Milli, 10) + "-" + strconv.FormatInt(id.Seq, 10)
}

// ParseLetterID parses what String returns.
func ParseLetterID(s string) (LetterID, error) {
	ms, seq, _ := strings.Cut(s, "-")
	milli, err1 := strconv.ParseInt(ms, 10, 64)
	n, err2 := strconv.ParseInt(seq, 10, 64)
	id := LetterID{milli, n}
	if err1 != nil || err2 != nil || milli < 0 || n < 0 || id.String() != s {
		return LetterID{}, fmt.Errorf("%q is not the ID of a dead letter", s)
	}
	return id, nil
}

// Letter is a dead letter.
type Letter struct {
	ID        LetterID
	MessageID string
	// Entry was the message's place in the log.
	Entry        Pos
	Group        string
	Attempts     int
	Reason, Code string
	Key          string
	PayloadBytes int
	ProducedAt   time.Time
	// Body and Options are as in Entry. They are set only in a full letter that can be decoded.
	Body []byte
	Options
	// Unreadable says why a full letter cannot be decoded.
	Unreadable error
}

// LetterQuery selects dead letters for a list.
type LetterQuery struct {
	// Before continues a list: only older letters. Zero begins with the newest.
	Before LetterID
	// Group and Code, if they are not empty, select letters of one group and with one code.
	Group, Code string
	// Full also reads Body and Options.
	Full bool
	// N is how many letters at most, up to MaxLetters.
	N int
}

// LetterPage is a page of dead letters, the newest first.
type LetterPage struct {
	Letters []Letter
	// Next is the Before of the next page. If More is false there is none. A page may be empty and
	// have a next one, because it looks at a bounded number of letters.
	Next LetterID
	More bool
}

// LetterSelection selects dead letters to read, replay or purge.
type LetterSelection struct {
	// IDs are the letters, in any order, up to MaxLetters. If it is empty, all are selected that
	// follow After, the oldest first.
	IDs   []LetterID
	After LetterID
	// Group, if it is not empty, selects letters of one group, also among IDs.
	Group string
}

// LetterStep is what a step of TakeLetters, Replay or Purge did.
type LetterStep struct {
	// Done is how many letters were read, replayed or purged.
	Done int
	// Rest is what remains of the selection, if More is true.
	Rest LetterSelection
	More bool
	// Last is the log's newest entry after a replay that appended some.
	Last Pos
}

// Cut says what a trim by hand keeps: the newest Keep messages if Age is negative, else those that
// are not older than Age.
type Cut struct {
	Keep int64
	Age  time.Duration
}

// DuePlace is a place in a list that is ordered by due times, and by IDs among those of one time.
// Zero is its beginning.
type DuePlace struct {
	Due time.Time
	// ID is that of the scheduled message, or of the entry in digits.
	ID string
}

// ScheduledMessage is a message that is not due yet. It has no Pos; its ProducedAt is when Put
// accepted it.
type ScheduledMessage struct {
	Entry

	Due time.Time
}

// Place returns where the message is in the list of scheduled messages.
func (m *ScheduledMessage) Place() DuePlace { return DuePlace{m.Due, m.MessageID} }

// RowOf is a row and the entry that it is of.
type RowOf struct {
	ID ID
	Row
}

// Place returns where a row that is retrying or suspect is in the list of those.
func (r *RowOf) Place() DuePlace { return DuePlace{r.Due, strconv.FormatInt(int64(r.ID), 10)} }

// EntryStates is what a group keeps about some entries, at one moment.
type EntryStates struct {
	// Cursor and Sent are as in State. Entries between them are settled unless they are in Open.
	Cursor, Sent Pos
	Open         map[ID]bool
	// Rows are those of the open entries that have one.
	Rows map[ID]Row
}

// Found is what is stored of a message, at one moment.
type Found struct {
	// Entry is the message. Its Pos is where it is in the log for all groups; zero if it is not there.
	Entry Entry
	// Due is when a scheduled message is due, zero if it is not scheduled any more.
	Due time.Time
	// Replayed are the places of its latest replayed dead letters, by group.
	Replayed map[string]Pos
	// Letters are its latest dead letters, by group.
	Letters map[string]Letter
}

// LookStore counts and lists what a log holds, and handles dead letters. Every call touches one
// partition, in one atomic step. All but Replay also work if the store is out of memory.
// ErrNoTopic.
type LookStore interface { //nolint:interfacebloat // one adapter implements it, and each call is one step
	// Look counts the partition, without reading payloads into this process.
	Look(ctx context.Context, ref Ref) (Counts, error)

	// ListScheduled returns up to n scheduled messages after a place, in the order of DuePlace.
	// Their records have at most MaxCallBytes, unless a single one is larger. more reports whether
	// there are further ones.
	ListScheduled(ctx context.Context, ref Ref, after DuePlace, n int) (messages []ScheduledMessage, more bool, err error)
	// FindMessage finds a message by the ID that its producer was told. groups are those whose dead
	// letters are looked for. ErrNoMessage.
	FindMessage(ctx context.Context, ref Ref, messageID string, groups []string) (Found, error)
	// EntriesAt returns the entries with IDs, in their order, without those that are gone. It ends
	// early after MaxCallBytes, unless a single one is larger: it tells for how many of the IDs it
	// looked. At most MaxReadEntries IDs.
	EntriesAt(ctx context.Context, ref Ref, ids []ID) (entries []Entry, looked int, err error)
	// Walk returns up to n entries after an ID, as Read does, but also reads no more than
	// MaxCallBytes in the store, unless a single record is larger.
	Walk(ctx context.Context, ref Ref, after ID, n int) ([]Entry, error)
	// Places returns the IDs in the log of up to MaxBatch messages of a group, by the IDs that
	// their producers were told; 0 for those that are not in the log as far as is known. Others may
	// be gone too.
	Places(ctx context.Context, ref GroupRef, messageIDs []string) ([]ID, error)
	// States returns what a group keeps about entries. At most MaxReadEntries. ErrNoGroup.
	States(ctx context.Context, ref GroupRef, at []Pos) (EntryStates, error)
	// RowsIn returns the up to n lowest rows in one of the states whose ID is greater than after,
	// by ID. It reads all rows of the group, in several steps that are no snapshot: a row that does
	// not change meanwhile is returned.
	RowsIn(ctx context.Context, ref GroupRef, states []RowState, after ID, n int) ([]RowOf, error)
	// ListRetrying returns up to n rows that are retrying or suspect after a place, in the order of
	// DuePlace. They have at most MaxCallBytes. more reports whether there are further ones.
	ListRetrying(ctx context.Context, ref GroupRef, after DuePlace, n int) (rows []RowOf, more bool, err error)

	// Letters lists dead letters. The headers that it looks at, or the records of full letters,
	// have at most MaxCallBytes, unless a single record is larger.
	Letters(ctx context.Context, ref Ref, q LetterQuery) (LetterPage, error)
	// TakeLetters reads up to n full dead letters and leaves them, in the order of the selection.
	// Done counts them. Their records have at most MaxCallBytes, unless there is only one.
	TakeLetters(ctx context.Context, ref Ref, sel LetterSelection, n int) ([]Letter, LetterStep, error)
	// Replay appends up to n dead letters to the log again, for their groups only, and removes them
	// from the dead letters in the same step: each is replayed at most once. Their records have at
	// most MaxCallBytes, unless there is only one. Letters of groups that do not exist, and those
	// without a record, stay. ErrFull if nothing can be replayed because the partition is full, as
	// in Put. ErrNoMemory.
	Replay(ctx context.Context, ref Ref, bounds Bounds, sel LetterSelection, n int) (LetterStep, error)
	// Purge removes up to n dead letters, up to MaxLetters.
	Purge(ctx context.Context, ref Ref, sel LetterSelection, n int) (LetterStep, error)
	// Age removes up to n of the oldest dead letters, up to MaxLetters: those older than age, and
	// while there are more than count. An age or count of 0 is no bound. It returns how many it
	// removed; less than n means that the rest stays.
	Age(ctx context.Context, ref Ref, age time.Duration, count int64, n int) (int, error)
	// ForceTrim removes up to n of the oldest messages of the log, from 200 on, that cut does not
	// keep, settled or not. lost counts those that a group had not settled, once for each group.
	// What a session holds can still be settled. more reports whether another
	// call may remove more.
	ForceTrim(ctx context.Context, ref Ref, cut Cut, n int) (removed, lost int, more bool, err error)
}
