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
	"github.com/parleyhq/parley/server/internal/queue/consume"
)

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
	live, started, err := s.open(ctx, p, "start.", start)
	if err != nil {
		return err
	}
	defer s.deps.Consumers.Close(live)
	control := controllerOf(ctx)
	// The read deadline was for the first request. Later ones may come as long as the stream lives.
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	c := &sessionStream{
		service: s, out: newFrameWriter[any](ctx, stream.Conn(), s.cfg.FrameTimeout, s.cfg.live),
		live: live, started: started, principal: p,
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
	if err := checkLists(r, api.forRequest(r.ProtoReflect().Descriptor().FullName()).lists); err != nil {
		return err
	}
	if r.GetStart() != nil {
		return checkItem(s.validator, r)
	}
	return s.validator.Validate(r)
}

// sessionStream is the state of one StreamingConsume that its two goroutines share: one writes
// frames, the other serves requests, one at a time. So the server holds one request of a stream
// without an answer, of up to Config.BatchReadBytes; more wait in the transport, whose flow control
// stops the client.
type sessionStream struct {
	service   *queueService
	out       *frameWriter[any]
	live      *consume.Stream
	started   *parleyv1.ConsumeResponse
	principal *ident.Principal
	// serving is locked from the start of a request until its answer is written.
	serving sync.Mutex
}

// write writes the first frame, and then the session's. It blocks until the session or the stream
// ends.
func (c *sessionStream) write(ctx context.Context) error {
	if err := c.out.write(ctx, streamed(c.started)); err != nil {
		return err
	}
	c.started = nil
	return writeFrames(ctx, c.out, c.live, writeStreamedFrame)
}

// serve serves the client's requests in order, until receiving or answering one fails. It returns
// errClientClosed if the client has closed its half of the stream.
func (c *sessionStream) serve(ctx context.Context, stream *bidi) error {
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

// serveOne serves one request and answers it. A request without a request_id is answered only if
// it, or one of its items, fails. The failure of a request does not end the stream; an error that
// serveOne returns does.
func (c *sessionStream) serveOne(ctx context.Context, r *parleyv1.StreamingConsumeRequest) error {
	c.serving.Lock()
	defer c.serving.Unlock()
	results, err := c.do(ctx, r)
	switch {
	case err != nil && ctx.Err() != nil:
		return err
	case err == nil && r.GetRequestId() == 0 && !anyRefused(results):
		return nil
	}
	out := &parleyv1.RequestResults{RequestId: r.GetRequestId(), Results: results}
	if err != nil {
		out.Error = loggedItemError(ctx, c.service.deps.Telemetry.Logger, func(field string) string { return field }, err)
	}
	return c.out.write(ctx, &parleyv1.StreamingConsumeResponse{Frame: &parleyv1.StreamingConsumeResponse_Results{Results: out}})
}

func anyRefused(results []*parleyv1.SettleResult) bool {
	for _, r := range results {
		if r.GetError() != nil {
			return true
		}
	}
	return false
}

// do serves one request within the caller's rate limit and returns the results of its items; nil
// for update and leave. What settles or extends is charged to Deps.Settles, which documents it, as
// the unary methods that have methodRow.settles are; any other request is a call.
func (c *sessionStream) do(ctx context.Context, r *parleyv1.StreamingConsumeRequest) ([]*parleyv1.SettleResult, error) {
	deps := &c.service.deps
	if r.GetStart() != nil || r.GetUpdate() != nil || r.GetRequest() == nil {
		if err := deps.Limiter.Allow(c.principal.Subject); err != nil {
			return nil, err
		}
		return c.doAllowed(ctx, r)
	}
	if err := deps.Settles.Check(c.principal.Subject); err != nil {
		return nil, err
	}
	results, err := c.doAllowed(ctx, r)
	if err != nil {
		deps.Settles.Charge(c.principal.Subject, 1)
	}
	return results, err
}

// doAllowed is do for a request that is within the rate limit.
func (c *sessionStream) doAllowed(ctx context.Context, r *parleyv1.StreamingConsumeRequest) ([]*parleyv1.SettleResult, error) {
	if r.GetStart() != nil {
		return nil, fault.Invalid("start", 0, "start: only the first request of a stream may set it")
	}
	if err := c.service.checkRequest(r); err != nil {
		return nil, err
	}
	// The same limit as for a unary call.
	ctx, cancel := context.WithTimeout(ctx, c.service.cfg.UnaryTimeout)
	defer cancel()
	switch s := c.service; {
	case r.GetAck() != nil:
		return s.ack(ctx, c.principal, c.session(r.GetAck()), "ack.", r.GetAck())
	case r.GetNack() != nil:
		return s.nack(ctx, c.principal, c.session(r.GetNack()), "nack.", r.GetNack())
	case r.GetExtend() != nil:
		return s.extend(ctx, c.principal, c.session(r.GetExtend()), "extend.", r.GetExtend())
	case r.GetLeave() != nil:
		return nil, s.deps.Consumers.Leave(ctx, c.principal.Subject, c.session(r.GetLeave()))
	default:
		// The stream's token may be older than the one that renewed its expiry, which stays.
		_, err := s.deps.Consumers.Update(ctx, c.principal.Subject, c.session(r.GetUpdate()), updateOf(r.GetUpdate()))
		return nil, err
	}
}

// session returns the session that a request is about: the stream's if it names none.
func (c *sessionStream) session(r interface{ GetSessionId() string }) string {
	if id := r.GetSessionId(); id != "" {
		return id
	}
	return c.live.ID()
}
