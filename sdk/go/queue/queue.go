// Package queue is the Go SDK of Parley's work queues: a Producer stores
// messages in a topic, a Worker handles the messages that are delivered to a consumer group.
//
// Delivery is at least once. A handler that must act only once stores Delivery.MessageID, which
// never changes.
package queue

import (
	"errors"
	"fmt"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// Message is a message to produce.
type Message struct {
	// Key selects the partition; messages of one key are delivered in order. It has up to 256 bytes
	// and may be empty.
	Key string
	// Payload has up to 262,144 bytes.
	Payload []byte
	// Headers are up to 32 short strings. The headers of the global OpenTelemetry propagator are
	// added unless the message has them or they do not fit.
	Headers map[string]string
	// IdempotencyKey makes sure that the message is stored once within the topic's window, also
	// if several producers send it. It is not needed for the repeats that a Producer makes itself.
	IdempotencyKey string
	// Delay is the time until the message is delivered, counted from when the server accepts it.
	// At most 366 days. DeliverAt is a time by the server's clock instead; with both, Delay
	// applies. Without either, the message is delivered immediately.
	Delay     time.Duration
	DeliverAt time.Time
	// Unique, if set, is a key that at most one message has at a time.
	Unique *Unique
	// TTL is the time after which the message expires in groups that have not begun it. 0 means no
	// limit.
	TTL time.Duration
	// MaxAttempts and Timeout override the settings of the groups. 0 keeps those.
	MaxAttempts int
	Timeout     time.Duration
}

// Conflict says what happens to a message whose unique key another message has.
type Conflict = parleyv1.Unique_OnConflict

// The values of Conflict. Reject is the default.
const (
	// Reject refuses the new message.
	Reject Conflict = parleyv1.Unique_ON_CONFLICT_REJECT
	// KeepEarlier stores nothing: the receipt is that of the earlier message, a duplicate.
	KeepEarlier Conflict = parleyv1.Unique_ON_CONFLICT_KEEP
	// Replace cancels the earlier message, unless a handler has begun it.
	Replace Conflict = parleyv1.Unique_ON_CONFLICT_REPLACE
)

// Unique is a unique key of a message.
type Unique struct {
	// Key has 1 to 128 printable ASCII characters without spaces.
	Key        string
	OnConflict Conflict
	// WhileRunning keeps the key until every group has settled the message, rather than until a
	// handler begins it.
	WhileRunning bool
	// AtMost is the longest time that the message has the key. 0 means 1 day.
	AtMost time.Duration
}

// Receipt describes a stored message.
type Receipt struct {
	// MessageID is the message's id. It never changes.
	MessageID string
	Partition int
	// Duplicate is true if an earlier attempt or call stored the message.
	Duplicate bool
	// DueTime is when a scheduled message is due. It is zero for other messages.
	DueTime time.Time
}

// Result is the result of one message. Either Receipt or Err is set.
type Result struct {
	// Receipt is set if the message is stored.
	Receipt *Receipt
	// Err is set if the message is not stored, or if the outcome is unknown. It is a *parley.Error,
	// or the error of the context that ended.
	Err error
}

// Errors returns the errors of all failed results, each with the index of its message, or nil if
// none failed. errors.Is and errors.As find the single errors.
func Errors(results []Result) error {
	var all []error
	for i, r := range results {
		if r.Err != nil {
			all = append(all, fmt.Errorf("message %d: %w", i, r.Err))
		}
	}
	return errors.Join(all...)
}

// Delivery is one message that is delivered to a Handler. The SDK does not change it during the
// handler's call.
type Delivery struct {
	Topic, Group string
	// MessageID is the message's id. It is the same in every attempt.
	MessageID string
	Partition int
	Key       string
	Payload   []byte
	Headers   map[string]string
	// Attempt is 1 for the first attempt. A delivery that no handler began does not count.
	Attempt int
	// ProduceTime is when the server accepted the message, or when a scheduled message was due.
	ProduceTime time.Time
	// Timeout is the longest time that the handler may take. 0 means no limit.
	Timeout time.Duration
}

func newDelivery(group string, d *parleyv1.Delivery) *Delivery {
	return &Delivery{
		Topic: d.GetTopic(), Group: group, MessageID: d.GetMessageId(), Partition: int(d.GetPartition()), Key: d.GetKey(),
		Payload: d.GetPayload(), Headers: d.GetHeaders(), Attempt: int(d.GetAttempt()),
		ProduceTime: d.GetProduceTime().AsTime(), Timeout: d.GetTimeout().AsDuration(),
	}
}
