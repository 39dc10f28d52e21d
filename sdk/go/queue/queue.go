// Package queue is the Go SDK of Parley's work queues: a Producer puts messages into a topic, a Worker handles what a consumer
// group is given of it, and an Admin makes, alters and looks into topics.
//
// Work is done at least once. A message is given to one worker of a group at a time and comes back until one of them has
// acknowledged it, or until it has been tried so often that it is a dead letter. A handler that must act once only remembers
// Delivery.MessageID, which stays the same.
//
// Messages with one key go to one partition and are handled in the order in which they were produced, one at a time, as long as
// none of them is tried again; a topic of strict order keeps it then too. Messages without a key are handled in parallel.
//
// What this package does at each failure (states, waits, credits) is what sdk/SPEC.md asks of every SDK.
package queue

import (
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// Message is what a Producer sends.
type Message struct {
	// Key decides the partition: messages of one key come in order. Up to 256 bytes; may be empty.
	Key string
	// Payload is up to 262,144 bytes.
	Payload []byte
	// Headers are up to 32 short strings: names of A-Z a-z 0-9 _ . - up to 64, values up to 1,024 bytes. The global OpenTelemetry
	// propagator's, as traceparent, are added where there is one and the message has none.
	Headers map[string]string
	// IdempotencyKey makes sure that the message is stored once within the topic's window, however often it is sent: up to 128
	// printable ASCII characters without spaces. Where it is empty one is minted, unless the producer was made WithoutIdempotency.
	IdempotencyKey string
}

// Receipt says where a message is.
type Receipt struct {
	// MessageID is the message's for good.
	MessageID string
	Partition int
	// Duplicate is true if an earlier call with the same idempotency key stored it, for instance one whose answer was lost.
	Duplicate bool
	// DeliverAt is when a scheduled message is due, by the server's clock; zero for others.
	DeliverAt time.Time
	// IdempotencyKey is what the message was sent with.
	IdempotencyKey string
}

// Result is what became of one message.
type Result struct {
	// Receipt is set if the message is stored.
	Receipt *Receipt
	// Err is set if it is not, or if that is not known. It is a *parley.Error, or the error of the context that ended first.
	Err error
}

// Delivery is one message, handed to a Handler. It is not changed once it is handed out.
type Delivery struct {
	Topic, Group string
	// MessageID is the message's for good, through retries.
	MessageID string
	Partition int
	Key       string
	Payload   []byte
	Headers   map[string]string
	// Attempt is 1 for the first delivery. A worker that was lost with the message counts.
	Attempt int
	// ProducedAt is when the server took the message; of a scheduled one, when it was due.
	ProducedAt time.Time
}

func newDelivery(topic, group string, d *parleyv1.Delivery) *Delivery {
	return &Delivery{
		Topic: topic, Group: group, MessageID: d.GetMessageId(), Partition: int(d.GetPartition()), Key: d.GetKey(),
		Payload: d.GetPayload(), Headers: d.GetHeaders(), Attempt: int(d.GetAttempt()), ProducedAt: d.GetProducedAt().AsTime(),
	}
}

// size is what the delivery takes of the credits in bytes, counted as the server does.
func (d *Delivery) size() int64 {
	n := len(d.Key) + len(d.Payload)
	for k, v := range d.Headers {
		n += len(k) + len(v)
	}
	return int64(n)
}
