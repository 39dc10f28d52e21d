package queue

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// wire is the connection of a stream to its server.
type wire interface {
	// receive waits for the next frame. Only one goroutine may call it.
	receive() (*parleyv1.ConsumeResponse, error)
	// do makes a request, waits for the answer and returns its results, one per item. The error is
	// that of the whole request. On a unary stream do retries; on a bidi stream it does not.
	do(ctx context.Context, req *parleyv1.StreamingConsumeRequest) ([]*parleyv1.SettleResult, error)
	// tell extends deliveries and does not return the results. The request is under way when it
	// returns; on a unary stream it is answered, or ctx has ended.
	tell(ctx context.Context, req *parleyv1.ExtendRequest)
	// close ends the client's side of the stream.
	close()
}

// bidi is a StreamingConsume stream.
type bidi struct {
	stream *connect.BidiStreamForClientSimple[parleyv1.StreamingConsumeRequest, parleyv1.StreamingConsumeResponse]
	s      *stream

	sending sync.Mutex // held to send

	mu      sync.Mutex // guards the fields below
	last    int64
	waiting map[int64]chan *parleyv1.RequestResults
	over    bool
}

// dialBidi opens a StreamingConsume stream, which ends with ctx.
func dialBidi(ctx context.Context, s *stream, start *parleyv1.ConsumeRequest) (wire, error) { //nolint:ireturn // nil for an error
	stream, err := s.watch.Services().Queue.StreamingConsume(ctx)
	if err != nil {
		return nil, err
	}
	b := &bidi{stream: stream, s: s, waiting: make(map[int64]chan *parleyv1.RequestResults)}
	// While the request's body is open, net/http does not notice that its context has ended.
	context.AfterFunc(ctx, func() { _ = stream.CloseRequest() })
	err = stream.Send(&parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Start{Start: start}})
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, nil
}

// receive implements wire. It passes results to the calls of do that wait for them.
func (b *bidi) receive() (*parleyv1.ConsumeResponse, error) {
	for {
		res, err := b.stream.Receive()
		if err != nil {
			b.end()
			return nil, err
		}
		b.s.busy()
		if frame := res.GetConsume(); frame != nil {
			return frame, nil
		}
		b.answer(res.GetResults())
		b.s.idle()
	}
}

func (b *bidi) answer(a *parleyv1.RequestResults) {
	b.mu.Lock()
	waiter := b.waiting[a.GetRequestId()]
	delete(b.waiting, a.GetRequestId())
	b.mu.Unlock()
	if waiter != nil {
		waiter <- a
	}
}

// end makes the calls of do that wait for an answer return errStreamOver.
func (b *bidi) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	for id, waiter := range b.waiting {
		delete(b.waiting, id)
		close(waiter)
	}
}

// do implements wire.
func (b *bidi) do(ctx context.Context, req *parleyv1.StreamingConsumeRequest) ([]*parleyv1.SettleResult, error) {
	waiter := make(chan *parleyv1.RequestResults, 1)
	b.mu.Lock()
	if b.over {
		b.mu.Unlock()
		return nil, errStreamOver
	}
	b.last++
	req.RequestId = b.last
	b.waiting[req.GetRequestId()] = waiter
	b.mu.Unlock()
	limit := time.AfterFunc(4*b.s.r.w.link.AttemptTimeout(), func() { b.s.abandon(errUnanswered) })
	defer limit.Stop()
	if err := b.send(req); err != nil {
		return nil, errStreamOver
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case a := <-waiter:
		if a == nil {
			return nil, errStreamOver
		}
		return a.GetResults(), b.s.r.w.link.ItemError(a.GetError())
	}
}

// tell implements wire. The server answers a request without an id only if it fails.
func (b *bidi) tell(_ context.Context, req *parleyv1.ExtendRequest) {
	_ = b.send(&parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Extend{Extend: req}})
}

// send sends a request. If the stream has ended, receive returns the reason.
func (b *bidi) send(req *parleyv1.StreamingConsumeRequest) error {
	b.sending.Lock()
	defer b.sending.Unlock()
	return b.stream.Send(req)
}

// close implements wire.
func (b *bidi) close() {
	b.end()
	_ = b.stream.CloseRequest()
	_ = b.stream.CloseResponse()
}

// unary is a Consume stream, with a unary call for each request.
type unary struct {
	stream *connect.ServerStreamForClient[parleyv1.ConsumeResponse]
	s      *stream
}

// dialUnary opens a Consume stream, which ends with ctx.
func dialUnary(ctx context.Context, s *stream, start *parleyv1.ConsumeRequest) (wire, error) { //nolint:ireturn // nil for an error
	stream, err := s.watch.Services().Queue.Consume(ctx, start)
	if err != nil {
		return nil, err
	}
	return &unary{stream: stream, s: s}, nil
}

// receive implements wire.
func (u *unary) receive() (*parleyv1.ConsumeResponse, error) {
	if !u.stream.Receive() {
		return nil, cmp.Or(u.stream.Err(), io.EOF)
	}
	u.s.busy()
	return u.stream.Msg(), nil
}

// do implements wire. It retries the call until ctx ends. The first frame was received, so that the
// stream has a session.
func (u *unary) do(ctx context.Context, req *parleyv1.StreamingConsumeRequest) (results []*parleyv1.SettleResult, err error) {
	id, l := u.s.session.id, u.s.r.w.link
	switch r := req.GetRequest().(type) {
	case *parleyv1.StreamingConsumeRequest_Ack:
		r.Ack.SessionId = id
		err = l.Retry(ctx, "Ack", func(ctx context.Context, s *link.Services) error {
			res, err := s.Queue.Ack(ctx, r.Ack)
			results = res.GetResults()
			return err
		})
	case *parleyv1.StreamingConsumeRequest_Nack:
		r.Nack.SessionId = id
		err = l.Retry(ctx, "Nack", func(ctx context.Context, s *link.Services) error {
			res, err := s.Queue.Nack(ctx, r.Nack)
			results = res.GetResults()
			return err
		})
	case *parleyv1.StreamingConsumeRequest_Extend:
		r.Extend.SessionId = id
		err = l.Retry(ctx, "Extend", func(ctx context.Context, s *link.Services) error {
			res, err := s.Queue.Extend(ctx, r.Extend)
			results = res.GetResults()
			return err
		})
	case *parleyv1.StreamingConsumeRequest_Leave:
		r.Leave.SessionId = id
		err = l.Retry(ctx, "Leave", func(ctx context.Context, s *link.Services) error {
			_, err := s.Queue.Leave(ctx, r.Leave)
			return err
		})
	default:
		err = connect.NewError(connect.CodeInternal, errors.New("no such request"))
	}
	return results, err
}

// tell implements wire.
func (u *unary) tell(ctx context.Context, req *parleyv1.ExtendRequest) {
	_, _ = u.do(ctx, &parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Extend{Extend: req}})
}

// close implements wire.
func (u *unary) close() { _ = u.stream.Close() }
