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
)

const (
	// maxBatchItems and maxBatchBytes bound one request; the server takes 1,000 items and 2 MiB.
	maxBatchItems = 1000
	maxBatchBytes = 3 << 19
)

// ErrClosed is what a Producer answers after Close.
var ErrClosed = errors.New("parley: producer closed")

// Producer puts messages into one topic. It is safe for concurrent use; a program wants one per topic. Close it when done.
type Producer struct {
	link   link.Link
	topic  string
	keys   bool
	joined *joiner
}

// ProducerOption changes how a Producer works.
type ProducerOption func(*producerConfig)

type producerConfig struct {
	keys     bool
	linger   time.Duration
	messages int
	batches  int
}

// WithoutIdempotency mints no idempotency keys: a message without one, whose answer was lost, may be stored twice. It saves the
// server remembering them.
func WithoutIdempotency() ProducerOption { return func(c *producerConfig) { c.keys = false } }

// WithLinger sets how long Send waits for others to join while a batch is under way: 5 ms by default, 0 not at all.
func WithLinger(d time.Duration) ProducerOption {
	return func(c *producerConfig) { c.linger = max(d, 0) }
}

// WithJoined sets how many messages Send joins into one batch, 100 by default and 1,000 at most, and how many batches may be
// under way, 8 by default; beyond, Send blocks. A batch is under way until the last of its messages is settled: one that a full
// partition holds up keeps the batch's place, which bounds what is sent to it again and again.
func WithJoined(messages, batches int) ProducerOption {
	return func(c *producerConfig) {
		c.messages, c.batches = min(max(messages, 1), maxBatchItems), max(batches, 1)
	}
}

// NewProducer makes a producer for a topic, which must exist when it is used. It does not connect; the first call does.
func NewProducer(c *parley.Client, topic string, opts ...ProducerOption) *Producer {
	cfg := producerConfig{keys: true, linger: 5 * time.Millisecond, messages: 100, batches: 8}
	for _, opt := range opts {
		opt(&cfg)
	}
	p := &Producer{link: c.Link(), topic: topic, keys: cfg.keys}
	p.joined = newJoiner(cfg, p.send)
	return p
}

// Produce stores messages, any number, and gives a result for each, in order. Failures that may pass, a full topic among them,
// are tried again until ctx ends, each message with the same idempotency key: so it is stored once, however often it was sent.
//
// Up to 1,000 messages or 1.5 MiB go in one request, one request at a time. What failed goes again before anything after it that
// was not sent yet, and in its order; the server refuses what follows a refused one in its partition. So the messages of one key
// stand in the order given, unless the topic's store failed for one of several in a way that the server can't tell.
//
// The error is nil if every message was either stored or refused for good. Otherwise it says what ended the call: ctx, or a
// refusal of the call as a whole; the results then tell how far it came.
func (p *Producer) Produce(ctx context.Context, messages ...Message) ([]Result, error) {
	return p.run(ctx, p.produceCall(ctx, messages))
}

// Schedule stores messages that appear in the topic after a delay of up to 366 days, never before. It is like Produce else. The
// delay is taken from the moment the server has the message. Their ids, by which they can be cancelled, hold for good.
func (p *Producer) Schedule(ctx context.Context, delay time.Duration, messages ...Message) ([]Result, error) {
	return p.schedule(ctx, messages, func(m *parleyv1.ScheduledMessage) {
		m.Due = &parleyv1.ScheduledMessage_Delay{Delay: durationpb.New(delay)}
	})
}

// ScheduleAt is Schedule for a time by the server's clock. One that has passed is due at once.
func (p *Producer) ScheduleAt(ctx context.Context, at time.Time, messages ...Message) ([]Result, error) {
	return p.schedule(ctx, messages, func(m *parleyv1.ScheduledMessage) {
		m.Due = &parleyv1.ScheduledMessage_DeliverAt{DeliverAt: timestamppb.New(at)}
	})
}

// Cancel takes a scheduled message back. One that has appeared in the topic, or was cancelled, is parley.ErrScheduledNotFound;
// where the answer to an attempt was lost, that may be by this very call, and the error's text says so.
func (p *Producer) Cancel(ctx context.Context, messageID string) error {
	attempts := 0
	err := p.link.Retry(ctx, "CancelScheduled", func(ctx context.Context, s *link.Services) error {
		attempts++
		_, err := s.Queue.CancelScheduled(ctx, &parleyv1.CancelScheduledRequest{Topic: p.topic, MessageId: messageID})
		return err
	})
	return mayBeOurs(err, attempts, parley.ErrScheduledNotFound)
}

// Reschedule gives a scheduled message another time, from now, and tells it. One that has appeared in the topic, or was
// cancelled, is parley.ErrScheduledNotFound.
func (p *Producer) Reschedule(ctx context.Context, messageID string, delay time.Duration) (time.Time, error) {
	return p.reschedule(ctx, &parleyv1.RescheduleRequest{
		MessageId: messageID, Due: &parleyv1.RescheduleRequest_Delay{Delay: durationpb.New(delay)},
	})
}

// RescheduleAt is Reschedule for a time by the server's clock. One that has passed is due at once.
func (p *Producer) RescheduleAt(ctx context.Context, messageID string, at time.Time) (time.Time, error) {
	return p.reschedule(ctx, &parleyv1.RescheduleRequest{
		MessageId: messageID, Due: &parleyv1.RescheduleRequest_DeliverAt{DeliverAt: timestamppb.New(at)},
	})
}

func (p *Producer) reschedule(ctx context.Context, req *parleyv1.RescheduleRequest) (time.Time, error) {
	req.Topic = p.topic
	var res *parleyv1.RescheduleResponse
	err := p.link.Retry(ctx, "Reschedule", func(ctx context.Context, s *link.Services) (err error) {
		res, err = s.Queue.Reschedule(ctx, req)
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	return res.GetDeliverAt().AsTime(), nil
}

// Send stores one message, joined with those of other callers into batches: a message goes at once while none is under way, else
// with up to 99 others or after 5 ms. It returns once the message is stored or refused, and retries as Produce does. Where ctx
// ends first the outcome is unknown. While too many batches are under way it blocks.
func (p *Producer) Send(ctx context.Context, m Message) (Receipt, error) {
	// Its batch may live on when the caller has given up.
	m.Payload, m.Headers = bytes.Clone(m.Payload), maps.Clone(m.Headers)
	req := p.message(ctx, &m)
	if err := checkMessage(req); err != nil {
		return Receipt{}, err
	}
	return p.joined.send(ctx, req)
}

// Close refuses further Sends, waits until those under way are answered, and gives up on them when ctx ends, whose error it then
// gives. It may be called more than once.
func (p *Producer) Close(ctx context.Context) error { return p.joined.close(ctx) }

// mayBeOurs adds to an error that an earlier attempt of the same call may have brought about.
func mayBeOurs(err error, attempts int, reason error) error {
	if e, ok := errors.AsType[*parley.Error](err); ok && attempts > 1 && errors.Is(e, reason) {
		e.Message += " (an earlier attempt of this call may have done it)"
	}
	return err
}

// message makes what is sent.
func (p *Producer) message(ctx context.Context, m *Message) *parleyv1.QueueMessage {
	key := m.IdempotencyKey
	if key == "" && p.keys {
		key = rand.Text()
	}
	return &parleyv1.QueueMessage{Key: m.Key, Payload: m.Payload, Headers: traced(ctx, m.Headers), IdempotencyKey: key}
}

// The server's bound of a payload, and one that no message passes that it would take.
const (
	maxPayload = 256 << 10
	maxMessage = 2 * maxPayload
)

// checkMessage refuses what would have the whole batch refused: what protobuf can't carry, and what is larger than a message may be.
func checkMessage(m *parleyv1.QueueMessage) error {
	if len(m.GetPayload()) > maxPayload || proto.Size(m) > maxMessage {
		return &parley.Error{
			Code: connect.CodeInvalidArgument, Reason: parleyv1.ErrorReason_ERROR_REASON_INVALID_FIELD,
			Field: "messages", Limit: maxPayload, Message: "messages: a payload has more than 262,144 bytes, or key and headers are as large",
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

// call is a batch under way: its requests, and where the results go.
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
		// 8 is more than the tag and the length that precede an item.
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

// accept notes an item that is to be sent, or what is wrong with it.
func (c *call) accept(i int, m *parleyv1.QueueMessage) {
	if err := checkMessage(m); err != nil {
		c.results[i].Err = err
		return
	}
	c.items = append(c.items, i)
}

// orUnset gives an error for an item that was answered with neither.
func orUnset(e *parleyv1.ItemError) *parleyv1.ItemError {
	if e == nil {
		return &parleyv1.ItemError{Code: "internal", Message: "an item was answered with nothing"}
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
					DeliverAt: done.GetDeliverAt().AsTime(), IdempotencyKey: requests[items[n]].GetMessage().GetIdempotencyKey(),
				}
			}
		}
		return answers, nil
	}
	return p.run(ctx, c)
}

// send stores a batch of Send's, and answers each as soon as that is known.
func (p *Producer) send(ctx context.Context, b *joinedBatch) {
	c := p.produceRequests(b.requests)
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
