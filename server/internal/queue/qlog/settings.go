package qlog

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
)

// The errors of a TopicStore and an InputStore, beside those of a Store.
var (
	// ErrTopicExists: there is a topic of the name.
	ErrTopicExists = errors.New("the topic exists")
	// ErrConflict: the topic or one of its groups was changed since the caller read it.
	ErrConflict = errors.New("the topic was changed meanwhile")
	// ErrNotScheduled: no scheduled message has the ID, and none that had it is in the log.
	ErrNotScheduled = errors.New("no such scheduled message")
	// ErrTooFar: the due time is more than MaxDelay ahead.
	ErrTooFar = errors.New("the due time is too far ahead")
)

const (
	// MaxDelay bounds how far ahead a message can be scheduled.
	MaxDelay = 366 * 24 * time.Hour
	// MaxBatch bounds the messages of one Cancel or Reschedule.
	MaxBatch = 1000
	// Slots is how many requests of a producer a partition remembers.
	Slots = 64
)

// MessageID returns the ID that a producer is told. For a scheduled message, id is the one it was
// given when it was scheduled; its ID in the log is another one.
func MessageID(partition int, id ID, scheduled bool) string {
	text := strconv.Itoa(partition) + "-" + strconv.FormatInt(int64(id), 10)
	if scheduled {
		text += "d"
	}
	return text
}

// ParseMessageID parses what MessageID returns.
func ParseMessageID(s string) (partition int, id ID, scheduled, ok bool) {
	p, rest, found := strings.Cut(s, "-")
	digits, scheduled := strings.CutSuffix(rest, "d")
	partition, err1 := strconv.Atoi(p)
	n, err2 := strconv.ParseInt(digits, 10, 64)
	ok = found && err1 == nil && err2 == nil && MessageID(partition, ID(n), scheduled) == s && partition >= 0 && n >= 0
	return partition, ID(n), scheduled, ok
}

// Partitioner says how a message's key determines its partition.
type Partitioner uint8

// The partitioners, with the numbers of parley.v1.Partitioner.
const (
	Hash           Partitioner = 1
	ConsistentHash Partitioner = 2
	RoundRobin     Partitioner = 3
)

// TopicState says whether a topic is complete.
type TopicState uint8

// The states. After a crash, the next caller that asks for the same completes what was begun.
const (
	Live TopicState = iota
	Making
	Removing
)

// Topic is the settings of a topic and of its groups. It is not changed once it is shared.
type Topic struct {
	Name string
	// UID distinguishes this topic from an earlier one of the same name: 13 of A-Z and 2-7.
	UID string
	// Version grows by one with every change of the topic or of one of its groups.
	Version     int64
	State       TopicState
	Partitions  int
	Partitioner Partitioner

	Bounds

	// DeadLetterAge is how long dead letters are kept. 0: forever. MaxDeadLetters bounds those of a
	// partition.
	DeadLetterAge  time.Duration
	MaxDeadLetters int64
	// ProducePaused refuses new messages.
	ProducePaused bool
	CreatedAt     time.Time
	// Groups are sorted by name.
	Groups []Group
}

// Ref names a partition of the topic.
func (t *Topic) Ref(partition int) Ref { return Ref{t.Name, t.UID, partition} }

// Group returns the group of a name, or nil.
func (t *Topic) Group(name string) *Group {
	for i := range t.Groups {
		if t.Groups[i].Name == name {
			return &t.Groups[i]
		}
	}
	return nil
}

// GroupMode says which sessions get a partition's messages.
type GroupMode uint8

// The modes.
const (
	// Shared gives messages of any partition to any session.
	Shared GroupMode = iota
	// Exclusive gives the messages of a partition to one session at a time.
	Exclusive
)

// Order says what holds for messages of one key.
type Order uint8

// The orders.
const (
	// OrderKey sends messages of a key in order, and while one is in flight later ones only to the
	// same session.
	OrderKey Order = iota
	// OrderStrict lets at most one message of a key be unsettled and delivered.
	OrderStrict
	// OrderNone promises nothing.
	OrderNone
)

// Group is the settings of a consumer group.
type Group struct {
	Name  string
	Mode  GroupMode
	Order Order
	Retry RetryPolicy
	// AckTimeout is how long a delivery lasts without extension. Timeout is how long a handler may
	// take unless the message says otherwise, MaxRunTime how long a delivery can be extended in all.
	AckTimeout, Timeout, MaxRunTime time.Duration
	// ResumeGrace is how long a session keeps its deliveries after its stream ended.
	ResumeGrace time.Duration
	Start       Start
	// Paused stops deliveries.
	Paused bool
}

// Start is a place in a topic: the beginning (the zero value), the end, or the first message that was
// appended at Time or later.
type Start struct {
	End  bool
	Time time.Time
}

// RetryPolicy says what happens to a message after a failed attempt.
type RetryPolicy struct {
	MaxAttempts            int
	MinBackoff, MaxBackoff time.Duration
	NonRetryable           []string
}

// PartitionInfo is what a partition has of its topic.
type PartitionInfo struct {
	// UID and Version are those of its copy of the settings, CreatedAt the time when that topic was
	// created. UID is empty if there is no partition, or its settings were lost.
	UID       string
	Version   int64
	CreatedAt time.Time
	// Groups are the names of the groups that it has, sorted; Lost are those of them whose state is
	// missing.
	Groups, Lost []string
}

// TopicStore keeps the settings of topics, and creates and removes their partitions. Topics are found
// by a registry. Every method that changes something may be repeated. After ErrUnknownOutcome it must
// be, unless it says otherwise.
type TopicStore interface { //nolint:interfacebloat // one adapter implements it, and each call is one step of a topic
	// InsertTopic stores a topic that does not exist, with its groups and State Making, and registers
	// it. If there is one it returns that and ErrTopicExists.
	InsertTopic(ctx context.Context, t *Topic) (existing *Topic, err error)
	// UpdateTopic stores the settings of t, but not its groups, with Version+1 if the stored topic has
	// t's UID and Version. ErrConflict, ErrNoTopic.
	UpdateTopic(ctx context.Context, t *Topic) error
	// PutGroup stores a new group, or new settings of one, with t's Version+1 as UpdateTopic does.
	PutGroup(ctx context.Context, t *Topic, g Group) error
	// DeleteGroup removes the settings of a group, with t's Version+1 as UpdateTopic does.
	DeleteGroup(ctx context.Context, t *Topic, group string) error
	// RemoveTopic forgets the settings and the registration of the topic with t's UID. Its partitions
	// must have been removed before.
	RemoveTopic(ctx context.Context, t *Topic) error
	// Topic returns a topic in whatever state. If the registry lacks it, it is registered again.
	// ErrNoTopic.
	Topic(ctx context.Context, name string) (*Topic, error)
	// TopicNames returns the sorted names of all topics.
	TopicNames(ctx context.Context) ([]string, error)
	// RestoreTopic stores the settings of a registered topic again, from the newest copy that the
	// partitions have, if they were lost. It returns them. ErrNoTopic if there is no copy, or the
	// topic is not registered.
	RestoreTopic(ctx context.Context, name string) (*Topic, error)

	// MakePartition brings the partition in line with t: it creates the partition and the groups that
	// it lacks, removes the groups that t lacks, but not their dead letters, pauses or resumes it, and
	// stores its copy of t. A group that the partition never had begins at its Start. One whose state
	// was lost, and every group of a partition that is new, begins at the start of the log.
	// ErrNoTopic if the partition is that of another topic of the name. ErrConflict if it is in line
	// with a later version of t; nothing was changed.
	MakePartition(ctx context.Context, t *Topic, partition int) error
	// Partition returns what the partition of a topic's name has at present.
	Partition(ctx context.Context, topic string, partition int) (PartitionInfo, error)
	// RemovePartition removes everything of the partition if it is of t's UID. Idempotency keys and
	// the like are left to expire.
	RemovePartition(ctx context.Context, t *Topic, partition int) error
	// MakeGroup creates the group in the partition, at a place, if it is absent. A time in the future
	// is the end. ErrNoTopic.
	MakeGroup(ctx context.Context, ref GroupRef, start Start) error
	// SeekGroup moves the group to a place and forgets everything else about it, deliveries and
	// counters included. The caller must hold the lease under the epoch, and loses it: the group has a
	// higher epoch and no holder afterwards. ErrFenced, ErrNoTopic, ErrNoGroup. A repeat is ErrFenced.
	SeekGroup(ctx context.Context, ref GroupRef, epoch int64, start Start) error
	// RemoveGroup removes everything of the group in the partition but its dead letters.
	RemoveGroup(ctx context.Context, ref GroupRef) error
}

// Cancelled is what became of a message that was to be cancelled or rescheduled.
type Cancelled struct {
	// Due is the new due time of a rescheduled message.
	Due time.Time
	// Moved is the ID of the message in the log if it was due before; nothing was changed then. It is
	// 0 otherwise.
	Moved ID
	// Err is nil, ErrNotScheduled, or of Reschedule ErrTooFar.
	Err error
}

// Reschedule gives a scheduled message another time. Delay and At are as in Draft; if both are zero
// the message is due at once.
type Reschedule struct {
	MessageID string
	Delay     time.Duration
	At        time.Time
}

// InputStore changes scheduled messages, and finds the partitions that have any.
type InputStore interface {
	// Cancel removes up to MaxBatch scheduled messages. It returns one result for each. A repeat of a
	// call whose outcome was unknown may return ErrNotScheduled. ErrNoTopic.
	Cancel(ctx context.Context, ref Ref, messageIDs []string) ([]Cancelled, error)
	// Reschedule changes the due times of up to MaxBatch scheduled messages. Their idempotency keys
	// are still remembered for the window after the due time that they were put with. ErrNoTopic.
	Reschedule(ctx context.Context, ref Ref, changes []Reschedule) ([]Cancelled, error)
	// Scheduled returns the partitions that may have scheduled messages. Their Refs have no UID.
	Scheduled(ctx context.Context) ([]Ref, error)
	// ForgetScheduled takes a partition out of Scheduled unless it has scheduled messages. It must be
	// called only if the partition had none for an hour, and once more 2 minutes later, because a node
	// that put a message meanwhile could rely on it.
	ForgetScheduled(ctx context.Context, ref Ref) error
	// Wakeups calls fn with the partition of each message that is due earlier than those before it,
	// and with an empty topic after every (re)connection, when calls may have been missed. It returns
	// when ctx ends. fn must not block.
	Wakeups(ctx context.Context, fn func(topic string, partition int)) error
}
