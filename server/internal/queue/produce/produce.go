// Package produce takes messages into the logs of a topic's partitions, and cancels and reschedules
// them.
//
// # Routing
//
// A message's key selects its partition; without a key, its idempotency key does, and without that,
// its unique key. Messages without any take turns: those of one request stay together, in runs of
// up to qlog.MaxCallBytes, because each partition costs one call of the store. The runs of a
// producer with an ID begin at a partition that follows from the ID and the sequence, so that a
// repeat finds the same partitions.
//
// # Repeats
//
// The store recognises the repeat of a numbered request (ProducerID, Sequence) by partition: it
// remembers one part of the request in each. Parts of more than qlog.MaxCallBytes are several puts,
// of which those after the first have a producer ID of their own, "<id>.1" and so on. So a repeat
// must be split exactly as the first attempt was, and the split depends on nothing but the request
// and the number of partitions. Trace headers, which differ in a repeat, do not count.
//
// A topic may grow between the two attempts. Split by the new number of partitions, the parts would
// lack the messages that move: the store would take a part for another request (KEY_REUSED), and
// store the messages that moved twice. There are two safeguards:
//
//   - A Response says by how many partitions the request was routed. A client that sends this
//     number with its next requests (RoutedBy), and with a repeat the same as with the first
//     attempt, is always routed by it. Until the next answer, messages go to the partitions that
//     the topic had before.
//   - For other clients each node remembers, of the latest producers, which sequences it may have
//     seen before the growth, and routes those by the earlier number.
//
// What remains: a client without RoutedBy, whose request is repeated at another node, or after the
// topic grew twice. Then messages that moved are stored twice, and others are refused with
// IDEMPOTENCY_KEY_REUSED. A message whose idempotency key or unique key selects the partition has
// the same limit, also without a sequence.
package produce

import (
	"cmp"
	"context"
	"encoding/base64"
	"log/slog"
	"strings"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// producerIDLen is the length of a producer's ID in bytes.
const producerIDLen = 16

// maxSequence is the highest sequence that the store counts with exactly.
const maxSequence = 1<<53 - 1

// Store keeps messages. A qlog.Store that is also a qlog.InputStore implements it.
type Store interface {
	// Put is qlog.Store's. If a partition is full, it has made room as far as possible before it
	// returns ErrFull.
	Put(ctx context.Context, ref qlog.Ref, bounds qlog.Bounds, put qlog.Put) ([]qlog.PutResult, error)
	Cancel(ctx context.Context, ref qlog.Ref, messageIDs []string) ([]qlog.Cancelled, error)
	Reschedule(ctx context.Context, ref qlog.Ref, changes []qlog.Reschedule) ([]qlog.Cancelled, error)
}

// Topics finds topics and restores their partitions. Safe for concurrent use.
type Topics interface {
	// Topic returns a topic as it was at most some seconds ago. TOPIC_NOT_FOUND, STORE_UNAVAILABLE.
	Topic(ctx context.Context, name string) (*qlog.Topic, error)
	// Heal creates the partition again if its keys were lost.
	Heal(ctx context.Context, t *qlog.Topic, partition int) error
	// Forget makes the next call of Topic read the store.
	Forget(name string)
}

// Hints tells all nodes that a partition has new messages. Safe for concurrent use. It joins hints:
// it is called once per put.
type Hints interface {
	// Ready does not block, and may be lost.
	Ready(topic string, partition int)
}

// Canceller cancels messages in the log.
type Canceller interface {
	// Cancel cancels the entries in every group that has not settled them, and returns one result
	// per entry: nil, or a fault. The error is of the call as a whole.
	Cancel(ctx context.Context, t *qlog.Topic, partition int, ids []qlog.ID) ([]error, error)
}

// Config configures a Service. Store and Topics are required.
type Config struct {
	Store  Store
	Topics Topics
	// Canceller may be nil: messages that are not scheduled are then not cancelled, and a message
	// that replaces another one leaves that in the log.
	Canceller Canceller
	// Hints may be nil: consumers then find messages when they look for them.
	Hints Hints
	// Metrics may be nil.
	Metrics *Metrics
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// Service takes messages into topics, and cancels and reschedules them. The transport has checked
// the rules of single fields, and the caller's capability. Safe for concurrent use.
type Service struct {
	cfg    Config
	turns  turns
	routes routes
}

// New creates a Service.
func New(cfg Config) *Service {
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return &Service{cfg: cfg}
}

// Message is what a producer sends. It is not changed while a call uses it.
type Message struct {
	Key     string
	Payload []byte
	Headers map[string]string
	// IdempotencyKey is empty for none.
	IdempotencyKey string
	// Delay and At schedule the message: At unless it is zero, else Delay if it is more than 0.
	Delay time.Duration
	At    time.Time
	// MaxAttempts, Timeout and TTL are 0 if the groups decide.
	MaxAttempts  int
	Timeout, TTL time.Duration
	// Unique is nil for none.
	Unique *Unique
}

// Unique is a key that at most one waiting message of a partition has.
type Unique struct {
	Key        string
	OnConflict qlog.Conflict
	// WhileRunning keeps the key until the message is settled, instead of begun.
	WhileRunning bool
	// AtMost bounds how long the message has the key, from its due time on. 0 means a day.
	AtMost time.Duration
}

// Request is a request of Produce.
type Request struct {
	Topic    string
	Messages []Message
	// ProducerID is 16 bytes, or empty for none. Sequence is from 1 on with it, and 0 without.
	ProducerID []byte
	Sequence   int64
	// RoutedBy is Response.RoutedBy of an earlier answer, or 0. A repeat has the same as the first
	// attempt.
	RoutedBy int
}

// Response is what became of a Request.
type Response struct {
	// Results has one result per message, in order.
	Results []Result
	// RoutedBy is the number of partitions that the next request should be routed by.
	RoutedBy int
}

// Result is what became of a Message.
type Result struct {
	MessageID string
	Partition int
	// Duplicate: an earlier call stored it.
	Duplicate bool
	// Due is when a scheduled message is due, according to the store's clock; zero for others.
	Due time.Time
	// Err is a fault if the message was not stored, or may not have been (OUTCOME_UNKNOWN).
	Err error
}

// Produce stores messages, those of one partition in order. A message that cannot be stored has an
// error in its result and does not affect others, except that nothing is stored behind the first
// message of its partition that failed with a retryable error. A message without a trace context
// gets that of ctx if that is sampled.
//
// The error is of the whole call, if all messages failed for one of these reasons: TOPIC_NOT_FOUND,
// TOPIC_PAUSED, STORE_UNAVAILABLE, OUTCOME_UNKNOWN, DEADLINE_EXCEEDED; or INVALID_FIELD for a field
// of the request itself.
func (s *Service) Produce(ctx context.Context, r Request) (Response, error) {
	if err := r.check(); err != nil {
		return Response{}, err
	}
	t, err := s.cfg.Topics.Topic(ctx, r.Topic)
	if err == nil && r.RoutedBy > t.Partitions {
		// Another node knows a newer state of the topic.
		t, err = s.newest(ctx, r.Topic)
	}
	if err != nil {
		return Response{}, unread(err)
	}
	b := newBatch(ctx, s, &r)
	routedBy := b.route(t)
	b.run(ctx, t, routedBy, b.valid)
	if again := b.homeless(b.valid); len(again) > 0 {
		// The topic was deleted and created again. Its partitions may differ.
		if t, err = s.cfg.Topics.Topic(ctx, r.Topic); err != nil {
			b.fail(again, unread(err))
		} else {
			b.run(ctx, t, min(b.route(t), t.Partitions), again)
			b.fail(b.homeless(again), unhealed(qlog.ErrNoTopic))
		}
	}
	response := Response{Results: b.results}
	if t != nil {
		response.RoutedBy = t.Partitions
	}
	return response, whole(b.results)
}

// check refuses a request for what concerns all of it.
func (r *Request) check() error {
	switch {
	case strings.HasPrefix(r.Topic, reserved):
		return reservedTopic()
	case len(r.ProducerID) != 0 && len(r.ProducerID) != producerIDLen:
		return fault.Invalid("producer_id", producerIDLen, "producer_id: must be empty or %d bytes", producerIDLen)
	case len(r.ProducerID) != 0 && r.Sequence < 1:
		return fault.Invalid("sequence", 1, "sequence: must be at least 1 with producer_id")
	case r.Sequence > maxSequence:
		return fault.Invalid("sequence", maxSequence, "sequence: must be at most %d", int64(maxSequence))
	case r.RoutedBy < 0:
		return fault.Invalid("routed_by", 0, "routed_by: must not be negative")
	}
	return nil
}

// producer returns the producer's ID as the store takes it; empty for none.
func (r *Request) producer() string { return base64.RawURLEncoding.EncodeToString(r.ProducerID) }
