package queue

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"sync"
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
	// maxBatchItems and maxBatchBytes bound one request of Produce.
	maxBatchItems = 1000
	maxBatchBytes = 3 << 19
	maxPayload    = 256 << 10
	maxMessage    = 2 * maxPayload
	// maxAhead is how much higher than the oldest sequence without an answer the newest may be.
	maxAhead = 63
)

// ErrClosed is the error of Producer.Send after Close.
var ErrClosed = errors.New("parley: producer closed")

// Producer stores messages in one topic. It numbers its requests, so that the server recognises a
// repeat and stores nothing twice. It is safe for concurrent use. Close it after use.
type Producer struct {
	link   link.Link
	topic  string
	id     []byte
	joined *joiner

	mu     sync.Mutex // guards the fields below
	newest int64
	// routedBy is by how many partitions the next request is to be routed, as the latest answer says.
	routedBy int32
	open     map[int64]bool
	freed    chan struct{} // is closed and replaced when a sequence is answered
}

// ProducerOption sets a property of a Producer.
type ProducerOption func(*producerConfig)

type producerConfig struct {
	linger            time.Duration
	messages, batches int
}

// WithLinger sets how long Send waits for other messages to join its batch while another batch is
// in flight. The default is 5 ms; 0 or less means no wait.
func WithLinger(d time.Duration) ProducerOption {
	return func(c *producerConfig) { c.linger = max(d, 0) }
}

// WithBatching sets the maximum number of messages in a batch of Send (default 100, maximum 1,000)
// and of batches in flight (default 8, maximum 64). When both limits are reached, Send blocks.
func WithBatching(messages, batches int) ProducerOption {
	return func(c *producerConfig) {
		c.messages, c.batches = min(max(messages, 1), maxBatchItems), min(max(batches, 1), maxAhead+1)
	}
}

// NewProducer returns a producer for a topic. It does not connect; the first call does.
func NewProducer(c *parley.Client, topic string, opts ...ProducerOption) *Producer {
	cfg := producerConfig{linger: 5 * time.Millisecond, messages: 100, batches: 8}
	for _, opt := range opts {
		opt(&cfg)
	}
	p := &Producer{link: link.Of(c), topic: topic, id: make([]byte, 16), open: make(map[int64]bool), freed: make(chan struct{})}
	_, _ = rand.Read(p.id) // never fails
	p.joined = newJoiner(cfg, p.sendJoined)
	return p
}

// Produce stores any number of messages and returns one result per message, in order. Requests of
// up to 1,000 messages or 1.5 MiB are sent one after another. After a retryable failure, a request
// is repeated unchanged until ctx or the call's deadline ends, which starts again with each request
// (see parley.WithCallTimeout).
//
// The error is nil if every message was either stored or permanently refused. The results are valid
// in any case: see Errors.
func (p *Producer) Produce(ctx context.Context, messages ...Message) ([]Result, error) {
	results := make([]Result, len(messages))
	var part []int
	var requests []*parleyv1.QueueMessage
	size, failed := 0, error(nil)
	flush := func() {
		if len(part) == 0 {
			return
		}
		if failed == nil {
			failed = p.request(ctx, &produceCall{
				make: p.link.Call, messages: requests, settled: func(i int, r Result) { results[part[i]] = r },
			})
		} else {
			for _, i := range part {
				results[i].Err = failed
			}
		}
		part, requests, size = nil, nil, 0
	}
	for i := range messages {
		req := wireMessage(ctx, &messages[i])
		if results[i].Err = checkMessage(req); results[i].Err != nil {
			continue
		}
		n := proto.Size(req) + 8
		if len(part) == maxBatchItems || size+n > maxBatchBytes {
			flush()
		}
		part, requests, size = append(part, i), append(requests, req), size+n
	}
	flush()
	return results, failed
}

// Send stores one message. Messages of concurrent callers are joined into batches (see WithBatching
// and WithLinger). After a retryable failure their request is repeated. If ctx or the call's
// deadline ends first, the error wraps the last failure, and the outcome is unknown.
func (p *Producer) Send(ctx context.Context, m Message) (Receipt, error) {
	// The message is copied, because the batch may be sent after the caller has returned.
	m.Payload, m.Headers = bytes.Clone(m.Payload), maps.Clone(m.Headers)
	req := wireMessage(ctx, &m)
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
// ctx ends first, it cancels them and returns the error of ctx.
func (p *Producer) Close(ctx context.Context) error { return p.joined.close(ctx) }

// sendJoined sends a batch of Send, in several requests if it is large.
func (p *Producer) sendJoined(ctx context.Context, b *joinedBatch) {
	for from := 0; from < len(b.requests); {
		to, size := from, 0
		for ; to < len(b.requests); to++ {
			size += proto.Size(b.requests[to]) + 8
			if to > from && size > maxBatchBytes {
				break
			}
		}
		start := from
		_ = p.request(ctx, &produceCall{
			make: p.link.Retry, messages: b.requests[from:to],
			failed:  func(i int, err error) { b.fail(start+i, err) },
			settled: func(i int, r Result) { b.answer(start+i, r.Receipt, r.Err) },
		})
		from = to
	}
}

// produceCall is one Produce request and what becomes of its messages.
type produceCall struct {
	// make is Call or Retry of the link.
	make     func(ctx context.Context, name string, attempt link.Attempt) error
	messages []*parleyv1.QueueMessage
	// failed, if set, is called with each failure after which the request is repeated, for each
	// message without a final result.
	failed func(i int, err error)
	// settled is called once for each message.
	settled func(i int, r Result)
}

// request makes a Produce request and repeats it unchanged until no failure is retryable or ctx
// ends. It returns the error of the request as a whole.
func (p *Producer) request(ctx context.Context, c *produceCall) error {
	results := make([]Result, len(c.messages))
	sequence, err := p.begin(ctx)
	if err == nil {
		defer p.end(sequence)
		req := &parleyv1.ProduceRequest{Topic: p.topic, Messages: c.messages, ProducerId: p.id, Sequence: sequence, RoutedBy: p.routing(0)}
		err = c.make(ctx, "Produce", func(ctx context.Context, s *link.Services) error {
			res, err := s.Queue.Produce(ctx, req)
			if err == nil {
				p.routing(res.GetRoutedBy())
				err = p.read(res.GetResults(), results)
			}
			c.fail(results, p.link.Error(err))
			return err
		})
	}
	for i, r := range results {
		if r.Receipt == nil && r.Err == nil {
			r.Err = err
		}
		c.settled(i, r)
	}
	return err
}

// routing notes by how many partitions an answer says that requests are to be routed, unless that
// is 0, and returns the latest such number.
func (p *Producer) routing(by int32) int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.routedBy = cmp.Or(by, p.routedBy)
	return p.routedBy
}

// fail calls failed for the messages that are not stored. err is the failure of an attempt, or nil.
func (c *produceCall) fail(results []Result, err error) {
	if err == nil || c.failed == nil {
		return
	}
	for i, r := range results {
		switch {
		case r.Receipt != nil:
		case r.Err != nil:
			c.failed(i, r.Err)
		default:
			c.failed(i, err)
		}
	}
}

// read writes the answers into the results. It returns the first retryable failure.
func (p *Producer) read(answers []*parleyv1.ProduceResult, results []Result) error {
	if len(answers) != len(results) {
		return &parley.Error{Code: connect.CodeInternal, Retryable: true, Message: "the number of results differs from that of the messages"}
	}
	var again error
	for i, a := range answers {
		done := a.GetProduced()
		switch {
		case done != nil:
			r := &Receipt{MessageID: done.GetMessageId(), Partition: int(done.GetPartition()), Duplicate: done.GetDuplicate()}
			if done.GetDueTime() != nil {
				r.DueTime = done.GetDueTime().AsTime()
			}
			results[i] = Result{Receipt: r}
		case results[i].Receipt == nil:
			err := p.link.ItemError(a.GetError())
			if err == nil {
				err = &parley.Error{Code: connect.CodeInternal, Message: "the response has neither a result nor an error for the item"}
			}
			results[i].Err = err
			if again == nil && p.link.WorthRetrying(err) {
				again = err
			}
		}
	}
	return again
}

// begin returns the next sequence. It blocks while that would be more than maxAhead higher than the
// oldest without an answer.
func (p *Producer) begin(ctx context.Context) (int64, error) {
	for {
		p.mu.Lock()
		oldest := p.newest + 1
		for s := range p.open {
			oldest = min(oldest, s)
		}
		if p.newest+1-oldest <= maxAhead {
			p.newest++
			p.open[p.newest] = true
			defer p.mu.Unlock()
			return p.newest, nil
		}
		freed := p.freed
		p.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// end records that a sequence is answered, or given up and never repeated.
func (p *Producer) end(sequence int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, sequence)
	close(p.freed)
	p.freed = make(chan struct{})
}

// Cancel cancels messages that no handler has begun and returns one error per id, in order: nil for
// a cancelled message, parley.ErrMessageNotFound for one that does not exist or was cancelled
// before, also by an earlier attempt of this call. The second result is the error of the call as a
// whole.
func (p *Producer) Cancel(ctx context.Context, ids ...string) ([]error, error) {
	all := make([]error, len(ids))
	for from := 0; from < len(ids); from += maxBatchItems {
		part := ids[from:min(from+maxBatchItems, len(ids))]
		err := p.link.Call(ctx, "CancelMessages", func(ctx context.Context, s *link.Services) error {
			res, err := s.Queue.CancelMessages(ctx, &parleyv1.CancelMessagesRequest{Topic: p.topic, MessageIds: part})
			if err == nil && len(res.GetResults()) != len(part) {
				err = fmt.Errorf("%d results for %d ids", len(res.GetResults()), len(part))
			}
			if err != nil {
				return err
			}
			for i, r := range res.GetResults() {
				all[from+i] = p.link.ItemError(r.GetError())
			}
			return nil
		})
		if err != nil {
			for i := from; i < len(ids); i++ {
				all[i] = err
			}
			return all, err
		}
	}
	return all, nil
}

// Rescheduled is the result of rescheduling one message.
type Rescheduled struct {
	// DueTime is when the message is due now, by the server's clock. It is zero if Err is set.
	DueTime time.Time
	// Err is set if the message was not rescheduled.
	Err error
}

// Reschedule changes when scheduled messages are due, to delay from now by the server's clock. It
// returns one result per id, in order, and the error of the call as a whole.
func (p *Producer) Reschedule(ctx context.Context, delay time.Duration, ids ...string) ([]Rescheduled, error) {
	return p.reschedule(ctx, ids, func(r *parleyv1.RescheduleMessagesRequest) {
		r.Due = &parleyv1.RescheduleMessagesRequest_Delay{Delay: durationpb.New(delay)}
	})
}

// RescheduleAt is like Reschedule, with a time by the server's clock. A time in the past is due
// immediately.
func (p *Producer) RescheduleAt(ctx context.Context, at time.Time, ids ...string) ([]Rescheduled, error) {
	return p.reschedule(ctx, ids, func(r *parleyv1.RescheduleMessagesRequest) {
		r.Due = &parleyv1.RescheduleMessagesRequest_DeliverAt{DeliverAt: timestamppb.New(at)}
	})
}

func (p *Producer) reschedule(
	ctx context.Context, ids []string, due func(*parleyv1.RescheduleMessagesRequest),
) ([]Rescheduled, error) {
	all := make([]Rescheduled, len(ids))
	for from := 0; from < len(ids); from += maxBatchItems {
		part := ids[from:min(from+maxBatchItems, len(ids))]
		req := &parleyv1.RescheduleMessagesRequest{Topic: p.topic, MessageIds: part}
		due(req)
		err := p.link.Call(ctx, "RescheduleMessages", func(ctx context.Context, s *link.Services) error {
			res, err := s.Queue.RescheduleMessages(ctx, req)
			if err == nil && len(res.GetResults()) != len(part) {
				err = fmt.Errorf("%d results for %d ids", len(res.GetResults()), len(part))
			}
			if err != nil {
				return err
			}
			for i, r := range res.GetResults() {
				all[from+i] = Rescheduled{Err: p.link.ItemError(r.GetError())}
				if all[from+i].Err == nil {
					all[from+i].DueTime = r.GetDueTime().AsTime()
				}
			}
			return nil
		})
		if err != nil {
			for i := from; i < len(ids); i++ {
				all[i].Err = err
			}
			return all, err
		}
	}
	return all, nil
}

// wireMessage returns the wire form of a message, with the trace of ctx.
func wireMessage(ctx context.Context, m *Message) *parleyv1.QueueMessage {
	w := &parleyv1.QueueMessage{Key: m.Key, Payload: m.Payload, Headers: trace.Inject(ctx, m.Headers), IdempotencyKey: m.IdempotencyKey}
	switch {
	case m.Delay != 0:
		w.Due = &parleyv1.QueueMessage_Delay{Delay: durationpb.New(m.Delay)}
	case !m.DeliverAt.IsZero():
		w.Due = &parleyv1.QueueMessage_DeliverAt{DeliverAt: timestamppb.New(m.DeliverAt)}
	}
	if m.MaxAttempts != 0 {
		w.MaxAttempts = proto.Int32(int32(min(m.MaxAttempts, 1<<30))) //nolint:gosec // bounded
	}
	w.Timeout, w.Ttl = optional(m.Timeout), optional(m.TTL)
	if u := m.Unique; u != nil {
		w.Unique = &parleyv1.Unique{Key: u.Key, OnConflict: u.OnConflict, WhileRunning: u.WhileRunning, AtMost: optional(u.AtMost)}
	}
	return w
}

func optional(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// checkMessage returns an error for messages for which the server would refuse the whole request.
func checkMessage(m *parleyv1.QueueMessage) error {
	e := &parley.Error{Code: connect.CodeInvalidArgument, Reason: parleyv1.ErrorReason_ERROR_REASON_INVALID_FIELD, Field: "messages"}
	if len(m.GetPayload()) > maxPayload || proto.Size(m) > maxMessage {
		e.Limit, e.Message = maxPayload, "messages: payload, or key and headers, larger than 262,144 bytes"
		return e
	}
	ok := utf8.ValidString(m.GetKey()) && utf8.ValidString(m.GetIdempotencyKey()) && utf8.ValidString(m.GetUnique().GetKey())
	for k, v := range m.GetHeaders() {
		ok = ok && utf8.ValidString(k) && utf8.ValidString(v)
	}
	if ok {
		return nil
	}
	e.Message = "messages: a key or a header is not valid UTF-8"
	return e
}
