package queue

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/internal/link"
	"github.com/parleyhq/parley/sdk/go/internal/trace"
)

const (
	// maxBatchItems and maxBatchBytes bound one request of Produce or Schedule. The server accepts up
	// to 1,000 items and 2 MiB.
	maxBatchItems = 1000
	maxBatchBytes = 3 << 19
)

// ErrClosed is the error of Producer.Send after Close.
var ErrClosed = errors.New("parley: producer closed")

// Producer stores messages in one topic. It is safe for concurrent use; a program needs one per
// topic. Close it after use.
type Producer struct {
	link   link.Link
	topic  string
	keys   bool
	joined *joiner
}

// ProducerOption sets a property of a Producer.
type ProducerOption func(*producerConfig)

type producerConfig struct {
	keys     bool
	linger   time.Duration
	messages int
	batches  int
}

// WithoutIdempotency disables the generation of idempotency keys. A message without a key whose
// answer was lost may then be stored twice. In return, the server has no keys to remember.
func WithoutIdempotency() ProducerOption { return func(c *producerConfig) { c.keys = false } }

// WithLinger sets how long Send waits for other messages to join its batch while another batch is
// in flight. The default is 5 ms; 0 or less means no wait.
func WithLinger(d time.Duration) ProducerOption {
	return func(c *producerConfig) { c.linger = max(d, 0) }
}

// WithBatching sets the maximum number of messages in a batch of Send (default 100, maximum 1,000)
// and of batches in flight (default 8). When both limits are reached, Send blocks. A batch is in
// flight until its last message is stored or refused, so one message for a full partition keeps a
// whole batch in flight.
func WithBatching(messages, batches int) ProducerOption {
	return func(c *producerConfig) {
		c.messages, c.batches = min(max(messages, 1), maxBatchItems), max(batches, 1)
	}
}

// NewProducer returns a producer for a topic. The topic must exist when the producer is used.
// NewProducer does not connect; the first call does.
func NewProducer(c *parley.Client, topic string, opts ...ProducerOption) *Producer {
	cfg := producerConfig{keys: true, linger: 5 * time.Millisecond, messages: 100, batches: 8}
	for _, opt := range opts {
		opt(&cfg)
	}
	p := &Producer{link: link.Of(c), topic: topic, keys: cfg.keys}
	p.joined = newJoiner(cfg, p.send)
	return p
}

// Produce stores any number of messages and returns one result per message, in order. Retryable
// failures, for example of a full or paused topic, are retried until ctx or the call's deadline
// ends. The deadline starts again whenever a request made progress (see parley.WithCallTimeout).
// Each message keeps its idempotency key, so it is stored once, however often it was sent.
//
// Up to 1,000 messages or 1.5 MiB are sent in one request, one request at a time. Failed messages
// are sent again in order, before later ones that were not sent yet. If the server cannot store a
// message for now, it does not store later ones of the same request and partition either. So the
// messages of one key are stored in the given order, unless the topic's store failed for one of
// several in a way that the server cannot detect.
//
// The error is nil if every message was either stored or permanently refused. Otherwise it is the
// reason for which the call ended: ctx, the call's deadline, or a refusal of the whole call. The
// results are valid in any case: a Result has either a Receipt or an Err.
func (p *Producer) Produce(ctx context.Context, messages ...Message) ([]Result, error) {
	return p.run(ctx, p.produceCall(ctx, messages))
}

// Schedule stores messages that appear in the topic after a delay of up to 366 days, never earlier.
// The delay starts when the server accepts the message. The ids of the messages never change;
// Cancel and Reschedule accept them. Otherwise it works like Produce.
func (p *Producer) Schedule(ctx context.Context, delay time.Duration, messages ...Message) ([]Result, error) {
	return p.schedule(ctx, messages, func(m *parleyv1.ScheduledMessage) {
		m.Due = &parleyv1.ScheduledMessage_Delay{Delay: durationpb.New(delay)}
	})
}

// ScheduleAt is Schedule with a time by the server's clock. A message whose time has passed is due
// at once.
func (p *Producer) ScheduleAt(ctx context.Context, at time.Time, messages ...Message) ([]Result, error) {
	return p.schedule(ctx, messages, func(m *parleyv1.ScheduledMessage) {
		m.Due = &parleyv1.ScheduledMessage_DueTime{DueTime: timestamppb.New(at)}
	})
}

// Cancel cancels a scheduled message. It returns parley.ErrScheduledNotFound for a message that has
// appeared in the topic or was cancelled. If an earlier attempt of this call may have cancelled it,
// the error's text says so.
func (p *Producer) Cancel(ctx context.Context, messageID string) error {
	attempts := 0
	err := p.link.Call(ctx, "CancelScheduled", func(ctx context.Context, s *link.Services) error {
		attempts++
		_, err := s.Queue.CancelScheduled(ctx, &parleyv1.CancelScheduledRequest{Topic: p.topic, MessageId: messageID})
		return err
	})
	return mayBeOurs(err, attempts, parley.ErrScheduledNotFound)
}

// Reschedule changes when a scheduled message is due, to delay from now, and returns that time. It
// returns parley.ErrScheduledNotFound for a message that has appeared in the topic or was
// cancelled.
func (p *Producer) Reschedule(ctx context.Context, messageID string, delay time.Duration) (time.Time, error) {
	return p.reschedule(ctx, &parleyv1.RescheduleScheduledRequest{
		MessageId: messageID, Due: &parleyv1.RescheduleScheduledRequest_Delay{Delay: durationpb.New(delay)},
	})
}

// RescheduleAt is Reschedule with a time by the server's clock. A message whose time has passed is
// due at once.
func (p *Producer) RescheduleAt(ctx context.Context, messageID string, at time.Time) (time.Time, error) {
	return p.reschedule(ctx, &parleyv1.RescheduleScheduledRequest{
		MessageId: messageID, Due: &parleyv1.RescheduleScheduledRequest_DueTime{DueTime: timestamppb.New(at)},
	})
}

func (p *Producer) reschedule(ctx context.Context, req *parleyv1.RescheduleScheduledRequest) (time.Time, error) {
	req.Topic = p.topic
	var res *parleyv1.RescheduleScheduledResponse
	err := p.link.Call(ctx, "RescheduleScheduled", func(ctx context.Context, s *link.Services) (err error) {
		res, err = s.Queue.RescheduleScheduled(ctx, req)
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	return res.GetDueTime().AsTime(), nil
}

// Send stores one message. Messages of concurrent callers are joined into batches: a message is
// sent at once if no batch is in flight, otherwise with other messages when the batch is full (see
// WithBatching) or after the linger time (see WithLinger). Send returns when the message is stored
// or refused, and retries like Produce. If ctx or the call's deadline ends first, the outcome is
// unknown. Send blocks while too many batches are in flight.
func (p *Producer) Send(ctx context.Context, m Message) (Receipt, error) {
	// The message is copied, because the batch may be sent after the caller has returned.
	m.Payload, m.Headers = bytes.Clone(m.Payload), maps.Clone(m.Headers)
	req := p.message(ctx, &m)
	if err := checkMessage(req); err != nil {
		return Receipt{}, err
	}
	ctx, cancel := p.link.Deadline(ctx)
	defer cancel()
	receipt, last, err := p.joined.send(ctx, req)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = p.link.Interrupted(ctx, last)
	}
	return receipt, err
}

// Close makes further Sends fail with ErrClosed and waits until those in flight are answered. If
// ctx ends first, it cancels them and returns the error of ctx. It may be called more than once.
func (p *Producer) Close(ctx context.Context) error { return p.joined.close(ctx) }

// mayBeOurs adds a note to err if it is reason and the call made several attempts: an earlier one
// may have succeeded and so caused it.
func mayBeOurs(err error, attempts int, reason error) error {
	if e, ok := errors.AsType[*parley.Error](err); ok && attempts > 1 && errors.Is(e, reason) {
		e.Message += " (an earlier attempt of this call may have succeeded)"
	}
	return err
}

// message returns the wire form of a message, with its idempotency key and the trace of ctx.
func (p *Producer) message(ctx context.Context, m *Message) *parleyv1.QueueMessage {
	key := m.IdempotencyKey
	if key == "" && p.keys {
		key = rand.Text()
	}
	return &parleyv1.QueueMessage{Key: m.Key, Payload: m.Payload, Headers: trace.Inject(ctx, m.Headers), IdempotencyKey: key}
}

// maxPayload is the server's limit for a payload. The server accepts no message larger than
// maxMessage.
const (
	maxPayload = 256 << 10
	maxMessage = 2 * maxPayload
)

// checkMessage returns an error for messages for which the server would refuse the whole batch:
// those with text that protobuf cannot encode, and those that are too large.
func checkMessage(m *parleyv1.QueueMessage) error {
	if len(m.GetPayload()) > maxPayload || proto.Size(m) > maxMessage {
		return &parley.Error{
			Code: connect.CodeInvalidArgument, Reason: parleyv1.ErrorReason_ERROR_REASON_INVALID_FIELD,
			Field: "messages", Limit: maxPayload, Message: "messages: payload, or key and headers, larger than 262,144 bytes",
		}
	}
	ok := utf8.ValidString(m.GetKey()) && utf8.ValidString(m.GetIdempotencyKey())
	for k, v := range m.GetHeaders() {
		ok = ok && utf8.ValidString(k) && utf8.ValidString(v)
	}
	if ok {
		return nil
	}
	return &parley.Error{
		Code: connect.CodeInvalidArgument, Reason: parleyv1.ErrorReason_ERROR_REASON_INVALID_FIELD,
		Field: "messages", Message: "messages: a key or a header is not valid UTF-8",
	}
}

// call is a Produce or Schedule call of a batch: the indices of the items to send, and the results
// of all items.
type call struct {
	link.Batch

	items   []int
	results []Result
}

func (p *Producer) run(ctx context.Context, c *call) ([]Result, error) {
	return c.results, p.link.Batch(ctx, &c.Batch, c.items)
}

func newCall(name string, results []Result, size func(i int) int) *call {
	c := &call{results: results}
	c.Batch = link.Batch{
		Name: name, MaxItems: maxBatchItems, MaxBytes: maxBatchBytes,
		// The 8 bytes cover the tag and the length that precede each item in the encoded request.
		Size:    func(i int) int { return size(i) + 8 },
		Settled: func(i int, err error) { results[i].Err = err },
	}
	return c
}

func (p *Producer) produceCall(ctx context.Context, messages []Message) *call {
	requests := make([]*parleyv1.QueueMessage, len(messages))
	for i := range messages {
		requests[i] = p.message(ctx, &messages[i])
	}
	return p.produceRequests(requests)
}

func (p *Producer) produceRequests(requests []*parleyv1.QueueMessage) *call {
	c := newCall("Produce", make([]Result, len(requests)), func(i int) int { return proto.Size(requests[i]) })
	for i, req := range requests {
		c.accept(i, req)
	}
	c.Send = func(ctx context.Context, s *link.Services, items []int) ([]*parleyv1.ItemError, error) {
		req := &parleyv1.ProduceRequest{Topic: p.topic, Messages: make([]*parleyv1.QueueMessage, 0, len(items))}
		for _, i := range items {
			req.Messages = append(req.Messages, requests[i])
		}
		res, err := s.Queue.Produce(ctx, req)
		if err != nil {
			return nil, err
		}
		answers := make([]*parleyv1.ItemError, len(res.GetResults()))
		for n, one := range res.GetResults() {
			done := one.GetProduced()
			if done == nil {
				answers[n] = orUnset(one.GetError())
			} else if n < len(items) {
				c.results[items[n]].Receipt = &Receipt{
					MessageID: done.GetMessageId(), Partition: int(done.GetPartition()), Duplicate: done.GetDuplicate(),
					IdempotencyKey: requests[items[n]].GetIdempotencyKey(),
				}
			}
		}
		return answers, nil
	}
	return c
}

// accept adds item i to those to send or, if the client refuses m, records the error as the item's
// result.
func (c *call) accept(i int, m *parleyv1.QueueMessage) {
	if err := checkMessage(m); err != nil {
		c.results[i].Err = err
		return
	}
	c.items = append(c.items, i)
}

// orUnset returns e, or an error for an item that has neither a result nor an error.
func orUnset(e *parleyv1.ItemError) *parleyv1.ItemError {
	if e == nil {
		return &parleyv1.ItemError{
			Code: parleyv1.StatusCode_STATUS_CODE_INTERNAL, Message: "the response has neither a result nor an error for the item",
		}
	}
	return e
}

func (p *Producer) schedule(ctx context.Context, messages []Message, due func(*parleyv1.ScheduledMessage)) ([]Result, error) {
	requests := make([]*parleyv1.ScheduledMessage, len(messages))
	c := newCall("Schedule", make([]Result, len(messages)), func(i int) int { return proto.Size(requests[i]) })
	for i := range messages {
		requests[i] = &parleyv1.ScheduledMessage{Message: p.message(ctx, &messages[i])}
		due(requests[i])
		c.accept(i, requests[i].GetMessage())
	}
	c.Send = func(ctx context.Context, s *link.Services, items []int) ([]*parleyv1.ItemError, error) {
		req := &parleyv1.ScheduleRequest{Topic: p.topic, Messages: make([]*parleyv1.ScheduledMessage, 0, len(items))}
		for _, i := range items {
			req.Messages = append(req.Messages, requests[i])
		}
		res, err := s.Queue.Schedule(ctx, req)
		if err != nil {
			return nil, err
		}
		answers := make([]*parleyv1.ItemError, len(res.GetResults()))
		for n, one := range res.GetResults() {
			done := one.GetScheduled()
			if done == nil {
				answers[n] = orUnset(one.GetError())
			} else if n < len(items) {
				c.results[items[n]].Receipt = &Receipt{
					MessageID: done.GetMessageId(), Partition: int(done.GetPartition()), Duplicate: done.GetDuplicate(),
					DueTime: done.GetDueTime().AsTime(), IdempotencyKey: requests[items[n]].GetMessage().GetIdempotencyKey(),
				}
			}
		}
		return answers, nil
	}
	return p.run(ctx, c)
}

// send stores a batch of Send's messages and answers each one as soon as its result is known. It
// has no deadline of its own: ctx ends when all callers have left.
func (p *Producer) send(ctx context.Context, b *joinedBatch) {
	c := p.produceRequests(b.requests)
	c.Unbounded = true
	c.Failed = b.fail
	answered := make([]bool, len(b.requests))
	c.Settled = func(i int, err error) {
		answered[i] = true
		b.answer(i, c.results[i].Receipt, err)
	}
	_, err := p.run(ctx, c)
	for i := range answered {
		if !answered[i] {
			b.answer(i, nil, err)
		}
	}
}
