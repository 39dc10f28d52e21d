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
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// wire is the connection of a stream to its server.
type wire interface {
	// receive waits for the next frame. Only one goroutine may call it.
	receive() (*parleyv1.ConsumeResponse, error)
	// do makes a request, waits for the answer and returns its results, one per item. The error is
	// that of the whole request. On a unary stream do retries; on a bidi stream it does not.
	do(ctx context.Context, req *parleyv1.StreamingConsumeRequest) ([]*parleyv1.SettleResult, error)
	// grant sends the totals of credits that the server was granted since the stream began.
	grant(ctx context.Context, credits *parleyv1.StreamingCredits)
	// close ends the client's side of the stream.
	close()
}

// errUnanswered is the error of a stream that accepts requests but does not answer them.
var errUnanswered = &parley.Error{
	Code: connect.CodeUnavailable, Retryable: true, Message: "a request on the stream was not answered in time",
}

// errStreamOver is the error of a request on a stream that has ended.
var errStreamOver = &parley.Error{
	Code: connect.CodeUnavailable, Retryable: true, Message: "the stream ended before the answer",
}

// retryable returns an error for a stream that has ended, or is left, after which another stream
// may work.
func retryable(message string) error {
	return &parley.Error{Code: connect.CodeAborted, Retryable: true, Message: message}
}

// creditsRefused returns the error for a stream whose credits were permanently refused. The client
// leaves the stream: it would run out of credits, or it has ended on the server.
func creditsRefused(err error) error { return retryable("credits were refused: " + err.Error()) }

// bidi is a StreamingConsume stream.
type bidi struct {
	stream *connect.BidiStreamForClientSimple[parleyv1.StreamingConsumeRequest, parleyv1.StreamingConsumeResponse]
	link   link.Link
	watch  link.Stream

	sending sync.Mutex // held to send

	mu      sync.Mutex // guards the fields below
	last    int64
	waiting map[int64]chan *parleyv1.StreamingAnswer
	over    bool
}

func dialBidi(ctx context.Context, l link.Link, watch link.Stream, start *parleyv1.ConsumeRequest) (*bidi, error) {
	stream, err := watch.Services().Queue.StreamingConsume(ctx)
	if err != nil {
		return nil, err
	}
	b := &bidi{stream: stream, link: l, watch: watch, waiting: make(map[int64]chan *parleyv1.StreamingAnswer)}
	// While the request's body is open, net/http does not notice that its context has ended.
	context.AfterFunc(ctx, func() { _ = stream.CloseRequest() })
	err = stream.Send(&parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Start{Start: start}})
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, nil
}

// receive implements wire. It passes answers to the calls of do that wait for them.
func (b *bidi) receive() (*parleyv1.ConsumeResponse, error) {
	for {
		res, err := b.stream.Receive()
		if err != nil {
			b.end()
			return nil, err
		}
		b.watch.Busy()
		if frame := res.GetConsume(); frame != nil {
			return frame, nil
		}
		b.answer(res.GetAnswer())
		b.watch.Idle()
	}
}

func (b *bidi) answer(a *parleyv1.StreamingAnswer) {
	b.mu.Lock()
	waiter := b.waiting[a.GetCallId()]
	delete(b.waiting, a.GetCallId())
	b.mu.Unlock()
	switch {
	case waiter != nil:
		waiter <- a
	case a.GetError() != nil:
		// Only a grant of credits has no call id.
		b.watch.Leave(creditsRefused(b.link.ItemError(a.GetError())))
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
	waiter := make(chan *parleyv1.StreamingAnswer, 1)
	b.mu.Lock()
	if b.over {
		b.mu.Unlock()
		return nil, errStreamOver
	}
	b.last++
	req.CallId = b.last
	b.waiting[req.GetCallId()] = waiter
	b.mu.Unlock()
	patience := time.AfterFunc(4*b.link.AttemptTimeout(), func() { b.watch.Leave(errUnanswered) })
	defer patience.Stop()
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
		return a.GetResults(), b.link.ItemError(a.GetError())
	}
}

// send sends a request. If the stream has ended, receive returns the reason.
func (b *bidi) send(req *parleyv1.StreamingConsumeRequest) error {
	b.sending.Lock()
	defer b.sending.Unlock()
	return b.stream.Send(req)
}

// grant implements wire.
func (b *bidi) grant(_ context.Context, credits *parleyv1.StreamingCredits) {
	_ = b.send(&parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Credits{Credits: credits}})
}

// close implements wire.
func (b *bidi) close() {
	_ = b.stream.CloseRequest()
	_ = b.stream.CloseResponse()
}

// unary is a Consume stream, with a unary call for each request.
type unary struct {
	stream *connect.ServerStreamForClient[parleyv1.ConsumeResponse]
	link   link.Link
	watch  link.Stream
	topic  string
	group  string

	mu       sync.Mutex // guards streamID
	streamID string
}

func dialUnary(ctx context.Context, l link.Link, watch link.Stream, start *parleyv1.ConsumeRequest) (*unary, error) {
	stream, err := watch.Services().Queue.Consume(ctx, start)
	if err != nil {
		return nil, err
	}
	return &unary{stream: stream, link: l, watch: watch, topic: start.GetTopic(), group: start.GetGroup()}, nil
}

// receive implements wire.
func (u *unary) receive() (*parleyv1.ConsumeResponse, error) {
	if !u.stream.Receive() {
		return nil, cmp.Or(u.stream.Err(), io.EOF)
	}
	u.watch.Busy()
	frame := u.stream.Msg()
	if first := frame.GetInfo(); first != nil {
		u.mu.Lock()
		u.streamID = first.GetStreamId()
		u.mu.Unlock()
	}
	return frame, nil
}

func (u *unary) id() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.streamID
}

// do implements wire. It retries the call until ctx ends.
func (u *unary) do(ctx context.Context, req *parleyv1.StreamingConsumeRequest) (results []*parleyv1.SettleResult, err error) {
	switch r := req.GetRequest().(type) {
	case *parleyv1.StreamingConsumeRequest_Ack:
		err = u.link.Retry(ctx, "Ack", func(ctx context.Context, s *link.Services) error {
			res, err := s.Queue.Ack(ctx, &parleyv1.AckRequest{
				Topic: u.topic, Group: u.group, StreamId: u.id(), Tokens: r.Ack.GetTokens(),
			})
			results = res.GetResults()
			return err
		})
	case *parleyv1.StreamingConsumeRequest_Nack:
		err = u.link.Retry(ctx, "Nack", func(ctx context.Context, s *link.Services) error {
			res, err := s.Queue.Nack(ctx, &parleyv1.NackRequest{
				Topic: u.topic, Group: u.group, StreamId: u.id(), Items: r.Nack.GetItems(),
			})
			results = res.GetResults()
			return err
		})
	case *parleyv1.StreamingConsumeRequest_Extend:
		err = u.link.Retry(ctx, "Extend", func(ctx context.Context, s *link.Services) error {
			res, err := s.Queue.Extend(ctx, &parleyv1.ExtendRequest{
				Topic: u.topic, Group: u.group, StreamId: u.id(), AckTimeout: r.Extend.GetAckTimeout(),
				Target: &parleyv1.ExtendRequest_Deliveries{Deliveries: r.Extend.GetDeliveries()},
			})
			results = res.GetResults()
			return err
		})
	case *parleyv1.StreamingConsumeRequest_Leave:
		err = u.link.Retry(ctx, "Leave", func(ctx context.Context, s *link.Services) error {
			_, err := s.Queue.Leave(ctx, &parleyv1.LeaveRequest{Topic: u.topic, Group: u.group, StreamId: u.id()})
			return err
		})
	default:
		err = connect.NewError(connect.CodeInternal, errors.New("no such request"))
	}
	return results, err
}

// grant implements wire. A lost grant does no harm, because the next one carries running totals. If
// a grant is permanently refused, the stream would run out of credits, so it is left.
func (u *unary) grant(ctx context.Context, credits *parleyv1.StreamingCredits) {
	err := u.link.Retry(ctx, "GrantCredits", func(ctx context.Context, s *link.Services) error {
		_, err := s.Queue.GrantCredits(ctx, &parleyv1.GrantCreditsRequest{
			Topic: u.topic, Group: u.group, StreamId: u.id(),
			TotalMessages: credits.GetTotalMessages(), TotalBytes: credits.GetTotalBytes(),
		})
		return err
	})
	if err != nil && ctx.Err() == nil {
		u.watch.Leave(creditsRefused(err))
	}
}

// close implements wire.
func (u *unary) close() { _ = u.stream.Close() }
