package queues

import (
	"github.com/parleyhq/parley/chaos"
)

// Kind says what an Op asked for.
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
)

// takes reports whether the call gives a topic a message.
func (k Kind) takes() bool { return k == Produce || k == Schedule }

// ends reports whether the call ends a delivery.
func (k Kind) ends() bool { return k == Ack || k == Nack || k == Release }

// forever is the End of what did not end: its process was killed.
const forever = 1<<63 - 1

// none stands for a delay that was not given.
const none = -1

// Op is one message of one call and what came of it. Times are nanoseconds since 1970: all processes and Redis have the
// same machine's clock.
type Op struct {
	// ID is the client's name and a number of its own.
	ID     string `json:"id"`
	Client string `json:"client"`
	Addr   string `json:"addr,omitempty"`
	Kind   Kind   `json:"kind"`
	Begin  int64  `json:"begin"`
	// End is 0 in a line that was written before the call ended, and forever if there is no later one.
	End     int64         `json:"end,omitempty"`
	Outcome chaos.Outcome `json:"outcome,omitempty"`
	// Reason and Err are those of a call that was not OK.
	Reason string `json:"reason,omitempty"`
	Err    string `json:"err,omitempty"`
	Topic  string `json:"topic"`
	// Mark is the message's, unique in the run, and the beginning of its payload.
	Mark string `json:"mark,omitempty"`
	// MessageID is what was asked for, or what was answered to a produce.
	MessageID string `json:"message_id,omitempty"`

	// Of a produce.
	Key       string `json:"key,omitempty"`
	Idem      string `json:"idem,omitempty"`
	Partition int    `json:"partition,omitempty"`
	Duplicate bool   `json:"duplicate,omitempty"`
	// DelayMS is what was asked for, none if nothing was; AtMS is the time that was asked for instead.
	DelayMS int64 `json:"delay_ms,omitempty"`
	AtMS    int64 `json:"at_ms,omitempty"`
	// DueMS is what was answered.
	DueMS int64 `json:"due_ms,omitempty"`

	// Of a settlement.
	Group   string `json:"group,omitempty"`
	Stream  string `json:"stream,omitempty"`
	Token   string `json:"token,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
	// Dead says that the nack wants a dead letter, by its flag or its code.
	Dead bool `json:"dead,omitempty"`
	// Repeat says that the same was asked for before, and the answer was not had.
	Repeat bool `json:"repeat,omitempty"`
}

// Delivery is a message that a consumer was given.
type Delivery struct {
	At        int64  `json:"at"`
	Client    string `json:"client"`
	Topic     string `json:"topic"`
	Group     string `json:"group"`
	Stream    string `json:"stream"`
	Token     string `json:"token"`
	MessageID string `json:"message_id"`
	Partition int    `json:"partition"`
	Key       string `json:"key,omitempty"`
	Mark      string `json:"mark"`
	Attempt   int    `json:"attempt"`
	// MadeMS is when Redis took it, as the delivery says.
	MadeMS int64 `json:"made_ms"`
}

// Handled is a delivery that a handler of the SDK's Worker has done, and what it said of it.
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
	// Kind is Ack, Nack or Release; DelayMS and Dead are as an Op's.
	Kind    Kind  `json:"kind"`
	DelayMS int64 `json:"delay_ms"`
	Dead    bool  `json:"dead,omitempty"`
}

// Stream is a consumer's stream.
type Stream struct {
	ID     string `json:"id"`
	Client string `json:"client"`
	Addr   string `json:"addr"`
	Topic  string `json:"topic"`
	Group  string `json:"group"`
	Begin  int64  `json:"begin"`
	// End is 0 where the process was killed.
	End    int64  `json:"end,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Slow says that it does not read at once what it is sent.
	Slow bool `json:"slow,omitempty"`
}

// Lease is a state of a partition's lease that Redis was seen to have, at From, at To and always between them.
type Lease struct {
	Topic     string `json:"topic"`
	Group     string `json:"group"`
	Partition int    `json:"partition"`
	// Holder is the stream, empty for none.
	Holder string `json:"holder,omitempty"`
	Epoch  int64  `json:"epoch"`
	From   int64  `json:"from"`
	To     int64  `json:"to"`
}

// Count is what a partition was said to hold for a group, at one moment.
type Count struct {
	At        int64  `json:"at"`
	Topic     string `json:"topic"`
	Group     string `json:"group"`
	Partition int    `json:"partition"`

	Produced  int64 `json:"produced"`
	Cancelled int64 `json:"cancelled"`
	Acked     int64 `json:"acked"`
	Dead      int64 `json:"dead"`
	Replayed  int64 `json:"replayed"`
	Unread    int64 `json:"unread"`
	Pending   int64 `json:"pending"`
	Retrying  int64 `json:"retrying"`
	Parked    int64 `json:"parked"`
	Delayed   int64 `json:"delayed"`
	Trimmed   int64 `json:"trimmed"`
	Skipped   int64 `json:"skipped"`
}

// off is by how much conservation does not hold: 0 if it does.
func (c *Count) off() int64 {
	return c.Produced - c.Cancelled + c.Replayed - c.Acked - c.Dead - c.Trimmed - c.Skipped - c.waiting()
}

// waiting is what the group has still to do.
func (c *Count) waiting() int64 { return c.Unread + c.Pending + c.Retrying + c.Parked + c.Delayed }

// Topic is what a run made, as far as it is judged by it.
type Topic struct {
	Name       string   `json:"name"`
	Partitions int      `json:"partitions"`
	Groups     []string `json:"groups"`
	Strict     bool     `json:"strict,omitempty"`
	// Keeps says that messages stay in the stream when they are settled, for longer than the run.
	Keeps bool `json:"keeps,omitempty"`
	// Drops says that the oldest messages go when a partition is full.
	Drops       bool `json:"drops,omitempty"`
	MaxAttempts int  `json:"max_attempts"`
}

// The parts of the harness that may fail, other than by a call that the history has.
const (
	Observing = "observer"
	Auditing  = "auditor"
	Working   = "worker"
)

// Failure is what a part of the harness could not do.
type Failure struct {
	Who string `json:"who"`
	// Addr is whom it asked: "redis", a node, or who of several it was.
	Addr  string `json:"addr"`
	Begin int64  `json:"begin"`
	End   int64  `json:"end"`
	// Try is 1, or more for a repeat that came right after a failure.
	Try int    `json:"try,omitempty"`
	Err string `json:"err"`
}

// Window is a time, from and up to.
type Window struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// History is everything that was asked, answered, delivered and broken in a run.
type History struct {
	chaos.History

	Topics     []Topic
	Ops        []Op
	Deliveries []Delivery
	Streams    []Stream
	Leases     []Lease
	Counts     []Count
	// Workers are the processes that consume by the SDK; a client of one is called by its name and a number.
	Workers  []string
	Handled  []Handled
	Failures []Failure
	// Past are times of which Redis has forgotten everything, as after a promotion.
	Past []Window
	// Undrained says what was not done in time once all was mended; empty if all was.
	Undrained string
}
