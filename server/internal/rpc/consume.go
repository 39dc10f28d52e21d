package rpc

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/queue"
)

// frameBytes bounds the deliveries of one frame of Consume in bytes. A single delivery may be
// larger.
const frameBytes = 1 << 20

// ConsumerStream is the session of one Consume stream. *queue.Session implements it.
type ConsumerStream interface {
	ID() string
	// Next blocks until there is a frame. Any error ends the stream; with io.EOF the stream ends
	// without a failure.
	Next(ctx context.Context) (queue.Frame, error)
	Close()
}

// Consumers opens consumer streams on this node. HubConsumers implements it.
type Consumers interface {
	// Open joins a consumer group and returns the session, which the caller must close.
	Open(ctx context.Context, r queue.OpenRequest) (ConsumerStream, error)
}

// HubConsumers implements Consumers with a queue.Hub.
type HubConsumers struct{ Hub *queue.Hub }

// Open implements Consumers.
func (c HubConsumers) Open(ctx context.Context, r queue.OpenRequest) (ConsumerStream, error) { //nolint:ireturn // Consumers requires it
	s, err := c.Hub.Open(ctx, r)
	if err != nil {
		return nil, err // s is nil, which must not become a non-nil ConsumerStream
	}
	return s, nil
}

// Consume implements parleyv1connect.QueueServiceHandler.
func (s *queueService) Consume(
	ctx context.Context, req *parleyv1.ConsumeRequest, stream *connect.ServerStream[parleyv1.ConsumeResponse],
) error {
	p, err := ident.Caller(ctx)
	if err != nil {
		return err
	}
	session, err := s.open(ctx, p, req)
	if err != nil {
		return err
	}
	defer session.Close()
	out := newFrameWriter[*parleyv1.ConsumeResponse](ctx, stream.Conn(), s.cfg.FrameTimeout, s.cfg.live)
	if err := out.write(ctx, s.infoFrame(session)); err != nil {
		return err
	}
	return writeFrames(ctx, out, session, writeConsumeFrame)
}

// open opens a consumer session of p. The caller of open must close it.
//
//nolint:ireturn // as Consumers
func (s *queueService) open(ctx context.Context, p *ident.Principal, req *parleyv1.ConsumeRequest) (ConsumerStream, error) {
	return s.deps.Consumers.Open(ctx, queue.OpenRequest{
		Subject: p.Subject, Expires: p.Expires, Topic: req.GetTopic(), Group: req.GetGroup(), Consumer: req.GetConsumer(),
		MaxMessages: req.GetMaxMessages(), MaxBytes: creditBytesOf(req), AckTimeout: ackTimeoutOrDefault(req),
	})
}

func creditBytesOf(req *parleyv1.ConsumeRequest) int64 {
	if req.MaxBytes == nil {
		return queue.DefaultCreditBytes
	}
	return req.GetMaxBytes()
}

func ackTimeoutOrDefault(req *parleyv1.ConsumeRequest) time.Duration {
	if req.GetAckTimeout() == nil {
		return queue.DefaultAckTimeout
	}
	return millis(req.GetAckTimeout())
}

func (s *queueService) infoFrame(session ConsumerStream) *parleyv1.ConsumeResponse {
	return &parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Info{Info: streamInfo(session.ID(), &s.cfg)}}
}

func writeConsumeFrame(ctx context.Context, out *frameWriter[*parleyv1.ConsumeResponse], f queue.Frame) error {
	return writeDeliveries(&f, func(m *parleyv1.ConsumeResponse) error { return out.write(ctx, m) })
}

func writeStreamingFrame(ctx context.Context, out *frameWriter[*parleyv1.StreamingConsumeResponse], f queue.Frame) error {
	return writeDeliveries(&f, func(m *parleyv1.ConsumeResponse) error { return out.write(ctx, streamingConsume(m)) })
}

// streamingConsume wraps a response of Consume in one of StreamingConsume.
func streamingConsume(m *parleyv1.ConsumeResponse) *parleyv1.StreamingConsumeResponse {
	return &parleyv1.StreamingConsumeResponse{Frame: &parleyv1.StreamingConsumeResponse_Consume{Consume: m}}
}

// writeDeliveries converts a session's frame to responses and passes them to write. Deliveries of
// more than frameBytes are split into several responses.
func writeDeliveries(f *queue.Frame, write func(m *parleyv1.ConsumeResponse) error) error {
	if f.Assignment != nil {
		m := &parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Assignment{Assignment: assignmentToWire(f)}}
		if err := write(m); err != nil {
			return err
		}
	}
	for rest := f.Deliveries; len(rest) > 0; {
		n := fitCount(rest)
		m := &parleyv1.ConsumeResponse{Frame: &parleyv1.ConsumeResponse_Deliveries{
			Deliveries: &parleyv1.DeliveryBatch{Deliveries: deliveriesToWire(rest[:n])},
		}}
		if err := write(m); err != nil {
			return err
		}
		rest = rest[n:]
	}
	if !f.Heartbeat {
		return nil
	}
	return write(&parleyv1.ConsumeResponse{
		Frame: &parleyv1.ConsumeResponse_Heartbeat{Heartbeat: &parleyv1.Heartbeat{}},
	})
}

// fitCount returns how many of the first deliveries fit into frameBytes; at least one if there are
// any.
func fitCount(ds []queue.Delivery) int {
	size := 0
	for i := range ds {
		if size += ds[i].Size(); i > 0 && size > frameBytes {
			return i
		}
	}
	return len(ds)
}

type bidi = connect.BidiStream[parleyv1.StreamingConsumeRequest, parleyv1.StreamingConsumeResponse]

// StreamingConsume implements parleyv1connect.QueueServiceHandler.
func (s *queueService) StreamingConsume(ctx context.Context, stream *bidi) error {
	start, err := s.receiveStart(stream)
	if err != nil {
		return err
	}
	p, err := ident.Caller(ctx)
	if err != nil {
		return err
	}
	session, err := s.open(ctx, p, start)
	if err != nil {
		return err
	}
	defer session.Close()
	control := controllerOf(ctx)
	// The read deadline was for the first request. Later ones may come as long as the stream lives.
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	c := &bidiConsumer{
		service: s, out: newFrameWriter[*parleyv1.StreamingConsumeResponse](ctx, stream.Conn(), s.cfg.FrameTimeout, s.cfg.live),
		session: session,
		ref:     queue.StreamRef{StreamID: session.ID(), Subject: p.Subject, Topic: start.GetTopic(), Group: start.GetGroup()},
	}
	return serveBidi(ctx, control, &c.serving, c.write, func(ctx context.Context) error { return c.serve(ctx, stream) })
}

// receiveStart blocks until the first request of a stream and returns its `start`, which it must
// be.
func (s *queueService) receiveStart(stream *bidi) (*parleyv1.ConsumeRequest, error) {
	first, err := stream.Receive()
	if errors.Is(err, io.EOF) {
		return nil, fault.New(fault.InvalidArgument, fault.MalformedRequest, "the stream ended before its first request")
	}
	if err != nil {
		return nil, err
	}
	if err := s.checkRequest(first); err != nil {
		return nil, err
	}
	if first.GetStart() == nil {
		return nil, fault.Invalid("start", 0, "start: the first request of a stream must set it")
	}
	return first.GetStart(), nil
}

// checkRequest validates one request of a StreamingConsume stream, as the gate validates the
// request of a unary call.
func (s *queueService) checkRequest(r *parleyv1.StreamingConsumeRequest) error {
	if start := r.GetStart(); start != nil {
		if err := checkItem(s.validator, r); err != nil {
			return err
		}
		return checkNotReserved("start.topic", start.GetTopic())
	}
	if err := checkLists(r, api.forRequest(r.ProtoReflect().Descriptor().FullName()).lists); err != nil {
		return err
	}
	if err := s.checkExtend(r.GetExtend()); err != nil {
		return err
	}
	return s.validator.Validate(r)
}

func (s *queueService) checkExtend(r *parleyv1.StreamingExtend) error {
	_, err := ackTimeoutOf(r.GetAckTimeout())
	if f, ok := fault.As(err); ok {
		f.Field = "extend." + f.Field
	}
	return err
}

// bidiConsumer is the state of one StreamingConsume that its two goroutines share: one writes
// frames, the other serves requests.
type bidiConsumer struct {
	service *queueService
	out     *frameWriter[*parleyv1.StreamingConsumeResponse]
	session ConsumerStream
	// ref identifies the session in calls of ConsumerCalls.
	ref queue.StreamRef
	// serving is locked from the start of a request until its answer is written.
	serving sync.Mutex
}

// write writes the first message, and then the session's frames. It blocks until the session or the
// stream ends.
func (c *bidiConsumer) write(ctx context.Context) error {
	if err := c.out.write(ctx, streamingConsume(c.service.infoFrame(c.session))); err != nil {
		return err
	}
	return writeFrames(ctx, c.out, c.session, writeStreamingFrame)
}

// serve serves the client's requests in order, until receiving or answering one fails. It returns
// errClientClosed if the client has closed its half of the stream.
func (c *bidiConsumer) serve(ctx context.Context, stream *bidi) error {
	for {
		r, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return errClientClosed
		}
		if err != nil {
			return err
		}
		if err := c.serveOne(ctx, r); err != nil {
			return err
		}
	}
}

// serveOne serves one request and answers it. A request without a call_id is answered only if it,
// or one of its items, fails. The failure of a request does not end the stream; an error that
// serveOne returns does.
func (c *bidiConsumer) serveOne(ctx context.Context, r *parleyv1.StreamingConsumeRequest) error {
	c.serving.Lock()
	defer c.serving.Unlock()
	results, err := c.do(ctx, r)
	if err != nil && ctx.Err() != nil {
		return err
	}
	if err == nil && r.GetCallId() == 0 && !anyFailed(results) {
		return nil
	}
	answer := &parleyv1.StreamingAnswer{CallId: r.GetCallId(), Results: results}
	if err != nil {
		answer.Error = loggedItemError(ctx, c.service.deps.Telemetry.Logger, func(field string) string { return field }, err)
	}
	return c.out.write(ctx, &parleyv1.StreamingConsumeResponse{
		Frame: &parleyv1.StreamingConsumeResponse_Answer{Answer: answer},
	})
}

func anyFailed(results []*parleyv1.SettleResult) bool {
	for _, r := range results {
		if r.GetError() != nil {
			return true
		}
	}
	return false
}

// settles reports whether a request settles or extends deliveries, like the unary methods that have
// methodRow.settles.
func settles(r *parleyv1.StreamingConsumeRequest) bool {
	return r.GetAck() != nil || r.GetNack() != nil || r.GetExtend() != nil || r.GetLeave() != nil
}

// do serves one request within the caller's rate limit and returns the results of its items; nil
// for credits and leave. Deps.Settles documents what is charged for a request that settles or
// extends; any other is charged to Deps.Limiter as a call.
func (c *bidiConsumer) do(ctx context.Context, r *parleyv1.StreamingConsumeRequest) ([]*parleyv1.SettleResult, error) {
	deps := &c.service.deps
	if !settles(r) {
		if err := deps.Limiter.Allow(c.ref.Subject); err != nil {
			return nil, err
		}
		return c.doAllowed(ctx, r)
	}
	if err := deps.Settles.Check(c.ref.Subject); err != nil {
		return nil, err
	}
	results, err := c.doAllowed(ctx, r)
	if err != nil {
		deps.Settles.Charge(c.ref.Subject, 1)
	}
	return results, err
}

// doAllowed is do for a request that is within the rate limit.
func (c *bidiConsumer) doAllowed(ctx context.Context, r *parleyv1.StreamingConsumeRequest) ([]*parleyv1.SettleResult, error) {
	if r.GetStart() != nil {
		return nil, fault.Invalid("start", 0, "start: only the first request of a stream may set it")
	}
	if err := c.service.checkRequest(r); err != nil {
		return nil, err
	}
	// The same limit as for a unary call.
	ctx, cancel := context.WithTimeout(ctx, c.service.cfg.UnaryTimeout)
	defer cancel()
	switch {
	case r.GetAck() != nil:
		return c.service.ack(ctx, c.ref, r.GetAck().GetTokens())
	case r.GetNack() != nil:
		return c.service.nack(ctx, c.ref, r.GetNack().GetItems())
	case r.GetExtend() != nil:
		return c.service.extend(ctx, c.ref, r.GetExtend().GetDeliveries().GetTokens(), millis(r.GetExtend().GetAckTimeout()))
	case r.GetLeave() != nil:
		return nil, c.service.deps.ConsumerCalls.Leave(ctx, c.ref)
	default:
		return nil, c.service.deps.ConsumerCalls.Grant(ctx, c.ref, r.GetCredits().GetTotalMessages(), r.GetCredits().GetTotalBytes())
	}
}
