package queue

import (
	"context"
	"errors"
	"time"
)

// The errors of a Store, beside faults of Kind Unavailable. They are told by errors.Is.
var (
	// ErrNoTopic: there is no such topic, or no longer this one (another UID). Look the topic up again.
	ErrNoTopic = errors.New("no such topic")
	// ErrTopicExists, ErrGroupExists, ErrNoGroup are about the name.
	ErrTopicExists = errors.New("the topic exists")
	ErrGroupExists = errors.New("the group exists")
	ErrNoGroup     = errors.New("no such consumer group")
	// ErrConflict: the topic was changed by another meanwhile.
	ErrConflict = errors.New("the topic was changed meanwhile")
	// ErrFenced: the lease is not the holder's any more; nothing was changed.
	ErrFenced = errors.New("the lease was lost")
	// ErrBehind: entries were delivered to the lease that its holder may not have been given, by a call whose answer was lost or that
	// came late; nothing was changed. Claim gives them.
	ErrBehind = errors.New("entries were fetched that the holder may not have")
	// ErrHeld: another holds the lease.
	ErrHeld = errors.New("another holds the lease")
	// ErrInUse: the group has leases that are held.
	ErrInUse = errors.New("the group is in use")
	// ErrPaused: the topic takes nothing for now.
	ErrPaused = errors.New("the topic is paused")
	// ErrFull: the partition holds as much as it may.
	ErrFull = errors.New("the partition is full")
	// ErrKeyReused: the idempotency key was used with another payload.
	ErrKeyReused = errors.New("the idempotency key was used with another payload")
	// ErrNoScheduled: no scheduled message has this id.
	ErrNoScheduled = errors.New("no such scheduled message")
	// ErrUnknownOutcome: it is not known whether the call did its work. Each call that may answer it may be repeated
	// without harm, but for Produce and Schedule of what has no idempotency key.
	ErrUnknownOutcome = errors.New("the outcome is not known")
)

// Store keeps queues. Safe for concurrent use. Every method that changes something changes one partition, in one atomic
// step, or one topic's settings. A call whose answer was lost may have done its work: it fails with ErrUnknownOutcome.
// One that certainly did nothing because Redis is away fails with a fault of StoreUnavailable.
type Store interface {
	TopicStore
	InputStore
	GroupStore
	DelayStore
	LookStore
}

// TopicStore keeps topics' settings. Topics are found by a registry; nothing ever scans.
type TopicStore interface {
	// InsertTopic stores a topic that does not exist, with State Making, and registers it; ErrTopicExists, with what is there.
	InsertTopic(ctx context.Context, t *Topic) (existing *Topic, err error)
	// UpdateTopic stores t with Version+1 if the stored one has t's UID and Version; else ErrConflict or ErrNoTopic. A repeat
	// of one's own update that went through is fine.
	UpdateTopic(ctx context.Context, t *Topic) error
	// RemoveTopic forgets the settings and the registration of the topic with t's UID. Its partitions must be removed before.
	RemoveTopic(ctx context.Context, t *Topic) error
	// Topic gives a topic in whatever state; ErrNoTopic.
	Topic(ctx context.Context, name string) (*Topic, error)
	// TopicNames gives the names of all, in order.
	TopicNames(ctx context.Context) ([]string, error)

	// MakePartition makes the partition if it is absent, with its groups as t has them, and applies t's pauses. It may be repeated.
	MakePartition(ctx context.Context, t *Topic, partition int) error
	// RemovePartition removes everything of the partition if it is of t's UID. It may be repeated.
	RemovePartition(ctx context.Context, t *Topic, partition int) error
	// MakeGroup makes the group in the partition if it is absent; RemoveGroup removes all that the group has there, but its dead
	// letters. They may be repeated.
	MakeGroup(ctx context.Context, ref Ref, g Group) error
	RemoveGroup(ctx context.Context, ref Ref, group string) error
	// SeekGroup moves the group, drops what it has pending, parked or for a retry, and sets its counters anew. ErrInUse while the
	// partition's lease is held. It may be repeated.
	SeekGroup(ctx context.Context, ref Ref, g Group) error
}

// Draft is a message to be stored.
type Draft struct {
	Message

	// IdempotencyKey is empty for none. Under one the headers traceparent and tracestate do not count as payload: a repeated call
	// has a trace of its own.
	IdempotencyKey string
	// Delay and At say when a scheduled message is due: At if it is not zero. Milliseconds; what is finer is rounded up.
	Delay time.Duration
	At    time.Time
}

// Taken is what became of a Draft.
type Taken struct {
	MessageID string
	Duplicate bool
	// Due is when a scheduled message appears, by Redis' clock.
	Due time.Time
	// Err is nil, ErrFull or ErrKeyReused. Of a batch what comes after a full partition is refused too.
	Err error
}

// InputStore takes messages.
type InputStore interface {
	// Produce appends drafts to the partition, in order, and gives one Taken each. ErrPaused, ErrNoTopic.
	Produce(ctx context.Context, t *Topic, partition int, drafts []Draft) ([]Taken, error)
	// Schedule keeps drafts for later. What is due already is moved by the next Due. ErrPaused, ErrNoTopic.
	Schedule(ctx context.Context, t *Topic, partition int, drafts []Draft) ([]Taken, error)
	// Cancel takes a scheduled message back; ErrNoScheduled. After ErrUnknownOutcome a repeat may be ErrNoScheduled.
	Cancel(ctx context.Context, ref Ref, messageID string) error
	// Reschedule gives a scheduled message another time, and tells it; ErrNoScheduled.
	Reschedule(ctx context.Context, ref Ref, messageID string, delay time.Duration, at time.Time) (time.Time, error)
}

// Lease is one holder's time with a partition in a group.
type Lease struct {
	Ref

	Group string
	// Holder is the id of the stream that holds it.
	Holder string
	Epoch  int64
	// Left is how much of it was left when it was asked for.
	Left time.Duration
}

// Member is a consumer session as its group's other members know it.
type Member struct {
	StreamID, Consumer, NodeID string
	// Joined is when it joined, by Redis' clock: microseconds, so that all order members alike.
	Joined int64
}

// Verdict is what becomes of a delivery.
type Verdict uint8

// The verdicts.
const (
	Ack Verdict = iota + 1
	// Retry gives it to its group again after a delay, as its next attempt.
	Retry
	// Dead makes it a dead letter.
	Dead
	// Release gives it back as if it had not been delivered: Claim gives it again, with the same Attempt.
	Release
)

// Settlement is the end of one delivery.
type Settlement struct {
	// Entry is what was delivered; its payload and headers are not looked at, and may be nil.
	Entry   Entry
	Verdict Verdict
	// Delay is Retry's: 0 or more, in milliseconds.
	Delay time.Duration
	// Unsent is Dead's: no consumer was sent the entry, so that this attempt does not count.
	Unsent bool
	// Reason and Code are told by the dead letter.
	Reason, Code string
}

// Renewal is what became of a lease that was to be renewed.
type Renewal struct {
	// Err is nil, ErrFenced, or says that it could not be told.
	Err error
	// Pending is how many entries the group has pending in the partition, in both places.
	Pending int
}

// Claimed is a page of what is pending.
type Claimed struct {
	Entries []Entry
	// More tells whether there may be more, after the last one's id, Next.
	More bool
	Next EntryID
	// Mark counts what was ever fetched for the group in the partition, when the page was read.
	Mark int64
}

// GroupStore is what consumers work with.
type GroupStore interface {
	// Beat says that mine live for another ttl, by Redis' clock, and gives all members of the group, in order of Joined and StreamID.
	// A new one (Joined 0) is given its time. ErrNoGroup is not checked for.
	Beat(ctx context.Context, topic, group string, mine []Member, ttl time.Duration) ([]Member, error)
	// Leave takes members off.
	Leave(ctx context.Context, topic, group string, sessionIDs []string) error

	// Leases gives the leases of all partitions of the topic in the group, by partition; those that nobody holds have an empty
	// Holder and the last Epoch.
	Leases(ctx context.Context, t *Topic, group string) ([]Lease, error)
	// Acquire takes the partition's lease for ttl, with a new epoch; the holder's own live lease is given with its epoch and
	// renewed. ErrHeld, ErrNoTopic, ErrNoGroup.
	Acquire(ctx context.Context, ref Ref, group, holder string, ttl time.Duration) (Lease, error)
	// Renew renews leases for ttl, and tells what became of each.
	Renew(ctx context.Context, leases []Lease, ttl time.Duration) []Renewal
	// Free ends a lease if it is still the holder's. It may be repeated.
	Free(ctx context.Context, lease Lease) error

	// Fetch delivers up to n new entries to the lease, those of Retries first. In a topic of strict order it parks entries whose
	// key has an unsettled one, so that it may give fewer, and looked tells how many it looked at: 0 means that there is nothing.
	//
	// mark is the Mark of a Claim plus what the fetches after it looked at. After an unknown outcome entries may be pending that
	// were not given, and a call that was given up may come to the store much later: then no fetch gives anything younger, but fails
	// with ErrBehind, until the holder has a new mark, from a Claim that begins at the start, and so all that is pending.
	// ErrFenced, ErrBehind, ErrNoTopic, ErrNoGroup.
	Fetch(ctx context.Context, t *Topic, lease Lease, mark int64, n int) (entries []Entry, looked int, err error)
	// Claim gives up to n of the entries that are pending in the group at place, in order, from after `after` on, and makes those
	// of other leases the lease's: for them that is another attempt. It may be repeated: what is the lease's already is given again,
	// as the same attempt. Entries that were trimmed away meanwhile are dropped and counted. ErrFenced.
	Claim(ctx context.Context, lease Lease, place Place, after EntryID, n int) (Claimed, error)
	// Settle ends deliveries of the lease. All or nothing but for an unknown outcome, after which it may be repeated: what is
	// settled stays as it is. ErrFenced.
	Settle(ctx context.Context, t *Topic, lease Lease, settlements []Settlement) error
}

// Line is a set of messages that wait for their time: a partition's scheduled messages (Group empty), or a group's retries.
type Line struct {
	Ref

	Group string
}

// DelayStore moves what is due.
type DelayStore interface {
	// Due moves up to n due messages of the line to where they are fetched from, in order of their times, and tells how many, and
	// how long it is until the next (never if
	// none waits, 0 or less if more are due). Never early, by Redis' clock. It may be repeated.
	Due(ctx context.Context, line Line, n int) (moved int, next time.Duration, err error)
	// Next tells for each line how long it is until its first message is due; Never if none waits.
	Next(ctx context.Context, lines []Line) ([]time.Duration, error)
	// Wakeups calls fn with the partition of each line whose first message has become an earlier one, and with an empty topic
	// after every (re)connection, when any may have been
	// missed, until ctx ends. It returns only then. fn must not block.
	Wakeups(ctx context.Context, fn func(topic string, partition int)) error
	// Trim removes messages of the partition's stream that all groups have settled and that t's retention does not keep, up to n,
	// and dead letters that are too old. It tells
	// how many messages it removed.
	Trim(ctx context.Context, t *Topic, partition, n int) (removed int64, err error)
}

// Never is the time until nothing.
const Never = time.Duration(1<<63 - 1)

// PartitionStats counts what a partition holds, at one moment.
type PartitionStats struct {
	Partition                                         int
	Length, Delayed, Produced, Cancelled, DeadLetters int64
	FirstID, LastID                                   string
	Groups                                            []GroupStats
}

// GroupStats counts a group's work in a partition, at one moment. See parley.v1.GroupStats for what each means.
type GroupStats struct {
	Group                                            string
	Unread, Pending, Retrying, Parked                int64
	Acked, Dead, Retried, Replayed, Trimmed, Skipped int64
	// OldestAge is 0 if nothing waits.
	OldestAge time.Duration
	Held      bool
}

// DeadLetter is a message that was given up.
type DeadLetter struct {
	Message

	// ID is the dead letter's: "<partition>-<ms>-<seq>" of its place in the stream of dead letters.
	ID         string
	MessageID  string
	Partition  int
	Group      string
	Attempts   int
	Reason     string
	Code       string
	ProducedAt time.Time
	DeadAt     time.Time
}

// PendingEntry is a delivery that is not settled.
type PendingEntry struct {
	MessageID string
	Partition int
	// StreamID is empty if it was released or its session is gone.
	StreamID string
	// Consumer is the session's, as far as it is known; Admin adds it, a Store leaves it empty.
	Consumer string
	Attempt  int
	// Delivered is when that was, by Redis' clock, and Idle how long ago.
	Delivered time.Time
	Idle      time.Duration
}

// Cut says what Trim by hand keeps: the newest Messages, or if that is negative what is younger than Age.
type Cut struct {
	Messages int64
	Age      time.Duration
	Force    bool
}

// LookStore is what operators look into.
type LookStore interface {
	// Stats counts a partition. Unread is counted, never computed from ids.
	Stats(ctx context.Context, t *Topic, partition int) (PartitionStats, error)
	// Pending gives up to n of what the group has pending in the partition. It is no look at one moment: what changes meanwhile may
	// be missing, or there twice.
	Pending(ctx context.Context, ref Ref, group string, n int) ([]PendingEntry, error)
	// Cut trims by hand. lost counts removed messages once for each group that had not settled them.
	Cut(ctx context.Context, t *Topic, partition int, c Cut) (removed, lost int64, err error)
	// DeadLetters gives up to n of the partition's dead letters before an id (the newest if that is zero), the newest first; group
	// filters unless empty. next is where to go on; more tells
	// whether there may be more.
	DeadLetters(ctx context.Context, ref Ref, group string, before EntryID, n int) (letters []DeadLetter, next EntryID, more bool, err error)
	// Replay gives dead letters back to their groups, in the partition `to`: those of ids, or else the oldest n of the group, or
	// of all. Each goes back once, whatever is repeated. A dead letter whose
	// group is gone, or that can't be read, stays. n below 1 is none. It tells how many went, and whether there may be more.
	Replay(ctx context.Context, t *Topic, from, to int, group string, ids []EntryID, n int) (replayed int64, more bool, err error)
	// Purge removes dead letters: those of ids, or else the oldest n of the group, or of all. n below 1 is none.
	Purge(ctx context.Context, ref Ref, group string, ids []EntryID, n int) (purged int64, more bool, err error)
}
