// Package queue is the Go SDK of Parley's work queues: a Producer stores messages in a topic, a
// Worker handles the messages that are delivered to a consumer group, and an Admin manages topics
// and groups.
//
// Delivery is at least once. A message is delivered to one worker of a group at a time. It is
// delivered again until a worker acknowledges it, or until it has no attempts left and becomes a
// dead letter. A handler that must act only once stores Delivery.MessageID, which never changes.
//
// Messages with the same key go to one partition and are handled in the order in which they were
// produced, one at a time, unless one of them is retried; a topic of strict order keeps the order
// even then. Messages without a key are handled in parallel.
//
// Calls of a Producer and an Admin have the default deadline of parley.WithCallTimeout. A Worker
// has no deadline.
//
// sdk/SPEC.md specifies what this package does at each failure: states, waits and credits.
package queue

import (
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
	// Headers are up to 32 short strings: names of 1 to 64 characters of A-Z a-z 0-9 _ . -, values of
	// up to 1,024 bytes without CR, LF and NUL. The headers of the global OpenTelemetry propagator,
	// for example traceparent, are added unless the message has them or the limits refuse them.
	Headers map[string]string
	// IdempotencyKey makes sure that the message is stored once within the topic's window, however
	// often it is sent. It has up to 128 printable ASCII characters without spaces. If it is empty,
	// the Producer generates one, unless it was created with WithoutIdempotency.
	IdempotencyKey string
}

// Receipt describes a stored message.
type Receipt struct {
	// MessageID is the message's id. It never changes.
	MessageID string
	Partition int
	// Duplicate is true if an earlier attempt or call with the same idempotency key stored the
	// message.
	Duplicate bool
	// DueTime is when a scheduled message is due, by the server's clock. It is zero for other
	// messages.
	DueTime time.Time
	// IdempotencyKey is the key that the message was sent with. It is empty if there was none.
	IdempotencyKey string
}

// Result is the result of one message. Either Receipt or Err is set.
type Result struct {
	// Receipt is set if the message is stored.
	Receipt *Receipt
	// Err is set if the message is not stored, or if the outcome is unknown. It is a *parley.Error,
	// or the error of the context that ended.
	Err error
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
	// Attempt is 1 for the first delivery. Deliveries that were lost count, released ones do not.
	Attempt int
	// ProduceTime is when the server accepted the message. For a scheduled message it is when it
	// was due.
	ProduceTime time.Time
}

func newDelivery(topic, group string, d *parleyv1.Delivery) *Delivery {
	return &Delivery{
		Topic: topic, Group: group, MessageID: d.GetMessageId(), Partition: int(d.GetPartition()), Key: d.GetKey(),
		Payload: d.GetPayload(), Headers: d.GetHeaders(), Attempt: int(d.GetAttempt()), ProduceTime: d.GetProduceTime().AsTime(),
	}
}

// size returns how many credit bytes the delivery uses, counted like the server.
func (d *Delivery) size() int64 {
	n := len(d.Key) + len(d.Payload)
	for k, v := range d.Headers {
		n += len(k) + len(v)
	}
	return int64(n)
}
