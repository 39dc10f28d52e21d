package queues

import (
	"time"

	"github.com/parleyhq/parley/chaos"
)

// Kind is the method or settlement of an Op.
type Kind string

// The kinds.
const (
	Produce    Kind = "produce"
	Schedule   Kind = "schedule"
	Cancel     Kind = "cancel"
	Reschedule Kind = "reschedule"
	Ack        Kind = "ack"
	Nack       Kind = "nack"
	Release    Kind = "release"
	Extend     Kind = "extend"
	// Begun reports that a handler has begun a delivery.
	Begun Kind = "begun"
	// Leave ends a session.
	Leave Kind = "leave"
)

// produces reports whether the call adds a message to a topic.
func (k Kind) produces() bool { return k == Produce || k == Schedule }

// settles reports whether the call settles a delivery.
func (k Kind) settles() bool { return k == Ack || k == Nack || k == Release }

// forever is the End of an op that did not end because its process was killed.
const forever = 1<<63 - 1

// none stands for an absent delay.
const none = -1

// Op is one message of one call and its result. Times are nanoseconds since 1970: all processes and
// Redis share the machine's clock.
type Op struct {
	// ID is the client's name and a unique number.
	ID     string `json:"id"`
	Client string `json:"client"`
	Addr   string `json:"addr,omitempty"`
	Kind   Kind   `json:"kind"`
	Begin  int64  `json:"begin"`
	// End is 0 in a line written before the call ended, and forever if no later line exists.
	End     int64         `json:"end,omitempty"`
	Outcome chaos.Outcome `json:"outcome,omitempty"`
	// Reason and Err are set if the call was not OK.
	Reason string `json:"reason,omitempty"`
	Err    string `json:"err,omitempty"`
	Topic  string `json:"topic"`
	// Mark is the message's mark, unique in the run. Its payload starts with it.
	Mark string `json:"mark,omitempty"`
	// MessageID is in the request, or in the answer to a produce.
	MessageID string `json:"message_id,omitempty"`

	// Key, Idem and Duplicate are set for Produce and Schedule, Partition also for settlements.
	Key       string `json:"key,omitempty"`
	Idem      string `json:"idem,omitempty"`
	Partition int    `json:"partition,omitempty"`
	Duplicate bool   `json:"duplicate,omitempty"`
	// DelayMS is the delay that a Schedule, Reschedule or Nack requests, or none. AtMS is the
	// requested time of a Schedule without a delay.
	DelayMS int64 `json:"delay_ms,omitempty"`
	AtMS    int64 `json:"at_ms,omitempty"`
	// DueMS is the due time in the answer.
	DueMS int64 `json:"due_ms,omitempty"`

	// Set for a settlement, an extension or a begun mark. Leave has Group and Session.
	Group   string `json:"group,omitempty"`
	Session string `json:"session,omitempty"`
	// Token is empty in an extension of all deliveries of the session.
	Token   string `json:"token,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
	Gen     int    `json:"gen,omitempty"`
	// Dead is set if the nack requests a dead letter, by its flag or its code.
	Dead bool `json:"dead,omitempty"`

	// Repeat is set if the same was requested before without an answer.
	Repeat bool `json:"repeat,omitempty"`
}

// Delivery is a message that a consumer received.
type Delivery struct {
	At     int64  `json:"at"`
	Client string `json:"client"`
	Topic  string `json:"topic"`
	Group  string `json:"group"`
	// Stream is the ID of the Stream that it came on, Session the server's name of the session.
	Stream    string `json:"stream"`
	Session   string `json:"session"`
	Token     string `json:"token"`
	MessageID string `json:"message_id"`
	Partition int    `json:"partition"`
	Key       string `json:"key,omitempty"`
	Mark      string `json:"mark"`
	Attempt   int    `json:"attempt"`
	// Gen counts the deliveries of the message to the group, from 1.
	Gen int `json:"gen"`
}

// Handled is a delivery that a handler of the SDK's Worker has finished, with its result.
type Handled struct {
	Begin     int64  `json:"begin"`
	End       int64  `json:"end"`
	Client    string `json:"client"`
	Topic     string `json:"topic"`
	Group     string `json:"group"`
	MessageID string `json:"message_id"`
	Partition int    `json:"partition"`
	Key       string `json:"key,omitempty"`
	Mark      string `json:"mark"`
	Attempt   int    `json:"attempt"`
	// Kind is Ack, Nack or Release. DelayMS and Dead have the same meaning as in Op.
	Kind    Kind  `json:"kind"`
	DelayMS int64 `json:"delay_ms"`
	Dead    bool  `json:"dead,omitempty"`
}

// Stream is one stream of a consumer. Several streams, one after another, belong to a session.
type Stream struct {
	// ID is the client's name and a number.
	ID      string `json:"id"`
	Session string `json:"session"`
	Client  string `json:"client"`
	Addr    string `json:"addr"`
	Topic   string `json:"topic"`
	Group   string `json:"group"`
	// Asked is when the stream was requested, Begin when its first frame came.
	Asked int64 `json:"asked"`
	Begin int64 `json:"begin"`
	// End is when the stream ended. It is 0 if the client's process was killed before.
	End    int64  `json:"end,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Slow is set if the client pauses at times before it reads the next frame.
	Slow bool `json:"slow,omitempty"`
	// Resumes is 0 for the first stream of a session. Held are the tokens that the client presented
	// when it resumed the session, with and without verdicts.
	Resumes int64    `json:"resumes,omitempty"`
	Held    []string `json:"held,omitempty"`
	// Concurrency, AckTimeout and Reports are those of the request: Reports is set if the client
	// reports what its handlers begin.
	Concurrency int           `json:"concurrency"`
	AckTimeout  time.Duration `json:"ack_timeout"`
	Reports     bool          `json:"reports,omitempty"`
	// Grace is the session's resume grace.
	Grace time.Duration `json:"grace"`
}

// Contact is a frame that tells a session when its contact was confirmed last.
type Contact struct {
	Session   string `json:"session"`
	At        int64  `json:"at"`
	Confirmed int64  `json:"confirmed"`
}

// Lease is an observed state of a partition's lease, which lasted at least from From to To.
type Lease struct {
	Topic     string `json:"topic"`
	Group     string `json:"group"`
	Partition int    `json:"partition"`
	// Holder is the id of the node, or "" for none.
	Holder string `json:"holder,omitempty"`
	Epoch  int64  `json:"epoch"`
	From   int64  `json:"from"`
	To     int64  `json:"to"`
}

// Count is the counters of a partition for a group at one moment.
type Count struct {
	At        int64  `json:"at"`
	Topic     string `json:"topic"`
	Group     string `json:"group"`
	Partition int    `json:"partition"`

	Length    int64 `json:"length"`
	Produced  int64 `json:"produced"`
	Scheduled int64 `json:"scheduled"`
	// Unscheduled counts messages that were cancelled before they were due, Cancelled those that were
	// cancelled later, in this group.
	Unscheduled int64 `json:"unscheduled"`
	Cancelled   int64 `json:"cancelled"`
	Acked       int64 `json:"acked"`
	Dead        int64 `json:"dead"`
	Expired     int64 `json:"expired"`
	Trimmed     int64 `json:"trimmed"`
	Elsewhere   int64 `json:"elsewhere"`
	Replayed    int64 `json:"replayed"`
	// Waiting and Running are one number in Redis, which does not know what sessions hold. The truth
	// has it as Waiting.
	Waiting  int64 `json:"waiting"`
	Running  int64 `json:"running"`
	Retrying int64 `json:"retrying"`
}

// imbalance returns the number of messages that came in minus those that the other counters account
// for. It must be 0.
func (c *Count) imbalance() int64 {
	return c.Produced + c.Replayed - c.Unscheduled - c.Cancelled - c.Acked - c.Dead - c.Expired - c.Trimmed - c.Elsewhere - c.unsettled()
}

// unsettled returns the number of unsettled messages of the group, including scheduled ones.
func (c *Count) unsettled() int64 { return c.Waiting + c.Running + c.Retrying + c.Scheduled }

// Topic is a topic of the run, with the settings that the checks depend on.
type Topic struct {
	Name       string   `json:"name"`
	Partitions int      `json:"partitions"`
	Groups     []string `json:"groups"`
	Strict     bool     `json:"strict,omitempty"`
	// Keeps is set if settled messages stay in the stream for longer than the run.
	Keeps bool `json:"keeps,omitempty"`
	// Drops is set if the oldest messages are removed when a partition is full.
	Drops       bool `json:"drops,omitempty"`
	MaxAttempts int  `json:"max_attempts"`
}

// The parts of the harness whose failures are recorded as a Failure instead of an Op: the values of
// Failure.Who.
const (
	Observing = "observer"
	Auditing  = "auditor"
	Working   = "worker"
)

// Failure is a failed request of a part of the harness.
type Failure struct {
	Who string `json:"who"`
	// Addr is the target: "redis", a node, or the name of a worker.
	Addr  string `json:"addr"`
	Begin int64  `json:"begin"`
	End   int64  `json:"end"`
	// Try is 1 for an auditor's first try, and more for its immediate retries. Others have 0.
	Try int    `json:"try,omitempty"`
	Err string `json:"err"`
}

// LostKeys is a fault KeysLost.
type LostKeys struct {
	At        int64  `json:"at"`
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
}

// Window is a time span, in nanoseconds since 1970.
type Window struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// History is every call, delivery and fault of a run.
type History struct {
	chaos.History

	Topics     []Topic
	Ops        []Op
	Deliveries []Delivery
	Streams    []Stream
	Contacts   []Contact
	Leases     []Lease
	Counts     []Count
	// Workers are the names of the processes that consume through the SDK. The client of each start
	// of a process has its name, a hyphen and a number.
	Workers  []string
	Handled  []Handled
	Failures []Failure
	// Lost are the keys that were deleted.
	Lost []LostKeys
	// Past are the times whose changes Redis may have forgotten, as after a promotion.
	Past []Window
	// Undrained describes the messages that were not settled in time at the end. It is "" if all
	// were.
	Undrained string
}
