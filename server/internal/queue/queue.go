// Package queue is the domain of work queues: topics of partitions, consumer groups with leases, retries, dead letters and
// delays.
//
// Everything that must hold is decided in Redis, by scripts that touch one partition each (Store). A node's memory only
// makes it fast. The parts:
//
//   - Catalog knows the topics, at most a second late.
//   - Service takes messages in: Produce, Schedule, Cancel, Reschedule.
//   - Hub holds this node's consumer sessions. A session is a member of its group; members share the partitions out among
//     themselves (share.go) by leases. Each leased partition has one serial worker (worker.go), which fetches and hands to
//     the session; the session settles.
//   - Scheduler moves what is due, and trims what is done with; partitions are shared out among the nodes, whether or not
//     they have consumers. Two nodes that do the same partition's work do no harm.
//   - Admin makes, alters and looks into topics.
//
// # Fencing
//
// A lease carries an epoch, which grows with each change of owner and never goes back, not even when Redis loses writes:
// it is never below Redis' time in microseconds. Every fetch, settlement and renewal compares the lease in the same script
// that does the work, so a session that was stopped and wakes changes nothing, and gets nothing. A fetch in a script costs
// Redis a third more than a plain one; without it entries could be read under a lease that has ended, after the new owner
// has looked for what was pending, and a later message of the same key would overtake them.
package queue

import (
	"time"
)

// Limits of topics and consumers. Those that the schema has too are the same (TestLimitsAreTheSchemas).
const (
	MaxPartitions      = 256
	DefaultPartitions  = 8
	MaxDelay           = 366 * 24 * time.Hour
	MaxCredits         = 10_000
	MaxCreditBytes     = 64 << 20
	DefaultCreditBytes = 8 << 20
	DefaultAckTimeout  = 30 * time.Second
)

// Partitioner says how a message's key becomes a partition.
type Partitioner uint8

// The partitioners, with the numbers of parley.v1.Partitioner. In the settings of a new topic, zero means
// ConsistentHash; a stored topic always has one of these.
const (
	Hash           Partitioner = 1
	ConsistentHash Partitioner = 2
	RoundRobin     Partitioner = 3
)

// State says whether a topic is whole.
type State uint8

// The states. What crashed while it made or removed a topic is finished by whoever asks for the same again.
const (
	Live State = iota
	Making
	Removing
)

// Topic is a topic's settings. It is not changed once it is shared.
type Topic struct {
	Name string
	// UID tells this topic from an earlier one of the same name: 13 of A-Z and 2-7.
	UID string
	// Version grows with every change.
	Version     int64
	State       State
	Partitions  int
	Partitioner Partitioner
	StrictOrder bool
	Retry       RetryPolicy
	Retention   Retention
	// MaxMessages bounds a partition, scheduled messages included; 0 is without limit.
	MaxMessages int64
	DropOldest  bool
	// IdempotencyWindow is how long idempotency keys are remembered.
	IdempotencyWindow time.Duration
	CreatedAt         time.Time
	ProducePaused     bool
	ConsumePaused     bool
	// Groups are ordered by name.
	Groups []Group
}

// Ref names a partition of the topic.
func (t *Topic) Ref(partition int) Ref { return Ref{t.Name, t.UID, partition} }

// Group is a consumer group of a topic.
type Group struct {
	Name  string
	Start Start
}

// Start is a place in a topic: the beginning (the zero value), the end, or a time.
type Start struct {
	End  bool
	Time time.Time
}

// RetryPolicy says what becomes of a message that a consumer gave back or was lost with.
type RetryPolicy struct {
	MaxAttempts            int
	MinBackoff, MaxBackoff time.Duration
	NonRetryable           []string
}

// DefaultRetry is the policy of a topic that says nothing.
func DefaultRetry() RetryPolicy {
	return RetryPolicy{MaxAttempts: 16, MinBackoff: time.Second, MaxBackoff: 10 * time.Minute}
}

// Retention says how long messages stay that every group has settled, and dead letters (0: for ever).
type Retention struct {
	MaxAge        time.Duration
	MaxMessages   int64
	DeadLetterAge time.Duration
}

// Ref names a partition of one topic, and of no earlier or later one of the same name.
type Ref struct {
	Topic     string
	UID       string
	Partition int
}

// Message is what a producer gave. It is not changed once it is shared.
type Message struct {
	Key     string
	Payload []byte
	Headers map[string]string
	// Traceparent is the header of that name for a message without headers, or empty. A store gives it back as a header.
	Traceparent string
}

// Size is what counts against credits in bytes.
func (m *Message) Size() int {
	n := len(m.Key) + len(m.Payload)
	for k, v := range m.Headers {
		n += len(k) + len(v)
	}
	return n
}

// Place is where a group's entry lies.
type Place uint8

// The places: the partition's own stream, which all groups share, and the group's stream of retries.
const (
	Main Place = iota
	Retries
)

// EntryID is an entry's id in its Redis stream. IDs are compared by Compare.
type EntryID struct{ MS, Seq uint64 }

// Entry is a message as it lies in a partition for one group.
type Entry struct {
	Message

	Place Place
	ID    EntryID
	// MessageID is the message's id for good: what Produce or Schedule answered. See MessageID.
	MessageID string
	// Attempt is the delivery that this one is, from 1.
	Attempt int
	// ProducedAt is when Redis took the message; of a scheduled one, when it was due. Milliseconds.
	ProducedAt time.Time
	// Unreadable says why the store can't read the message; nil if it can. Then nothing of Message but the Key may be there, and
	// it can only become a dead letter.
	Unreadable error
}
