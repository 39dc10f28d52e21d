package queues

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// link is how a consumer settles: on the stream itself or by separate calls.
type link interface {
	// consume passes every frame to the consumer until the stream ends.
	consume(ctx context.Context, c *client, start *parleyv1.ConsumeRequest) error
	// settle makes one call for tasks of one kind, and returns the result of each.
	settle(ctx context.Context, tasks []*task) ([]*parleyv1.SettleResult, error)
}

// unary consumes from a server stream. It settles by unary calls to random nodes.
type unary struct{ s *streaming }

func (u *unary) consume(ctx context.Context, c *client, start *parleyv1.ConsumeRequest) error {
	stream, err := c.Consume(ctx, start)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	for stream.Receive() {
		u.s.frame(ctx, stream.Msg())
	}
	return stream.Err()
}

// client returns a random node's client.
func (u *unary) client() *client { return u.s.client(rand.IntN(len(u.s.clients))) }

func (u *unary) settle(ctx context.Context, tasks []*task) ([]*parleyv1.SettleResult, error) {
	c, op := u.client(), tasks[0].op
	ctx, cancel := c.call(ctx)
	defer cancel()
	for _, t := range tasks {
		t.op.Addr = c.Addr
	}
	switch op.Kind {
	case Ack:
		res, err := c.Ack(ctx, &parleyv1.AckRequest{SessionId: op.Session, Tokens: tokens(tasks)})
		return res.GetResults(), err
	case Extend, Begun:
		res, err := c.Extend(ctx, extension(op.Session, tasks))
		return res.GetResults(), err
	default:
		res, err := c.Nack(ctx, &parleyv1.NackRequest{SessionId: op.Session, Items: items(tasks)})
		return res.GetResults(), err
	}
}

func extension(session string, tasks []*task) *parleyv1.ExtendRequest {
	return &parleyv1.ExtendRequest{
		SessionId: session, Begun: tasks[0].op.Kind == Begun,
		Target: &parleyv1.ExtendRequest_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: tokens(tasks)}},
	}
}

func tokens(tasks []*task) []string {
	list := make([]string, len(tasks))
	for i, t := range tasks {
		list[i] = t.op.Token
	}
	return list
}

func items(tasks []*task) []*parleyv1.NackItem {
	list := make([]*parleyv1.NackItem, len(tasks))
	for i, t := range tasks {
		list[i] = t.nack
	}
	return list
}

// bidi sends and receives everything on one stream.
type bidi struct {
	s *streaming

	sending sync.Mutex // guards stream's Send
	// stream is set before the first delivery.
	stream *connect.BidiStreamForClientSimple[parleyv1.StreamingConsumeRequest, parleyv1.StreamingConsumeResponse]

	// gone is closed when the stream has ended.
	gone chan struct{}

	mu      sync.Mutex // guards the fields below
	next    int64
	waiting map[int64]chan *parleyv1.RequestResults
}

func newBidi(s *streaming) *bidi {
	return &bidi{s: s, gone: make(chan struct{}), waiting: make(map[int64]chan *parleyv1.RequestResults)}
}

// errGone is the error of requests in flight when the stream ended.
var errGone = errors.New("the stream has ended")

func (b *bidi) consume(ctx context.Context, c *client, start *parleyv1.ConsumeRequest) error {
	defer close(b.gone)
	stream, err := c.StreamingConsume(ctx)
	if err != nil {
		return err
	}
	b.stream = stream
	defer func() {
		_ = stream.CloseRequest()
		_ = stream.CloseResponse()
	}()
	if err := b.send(&parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Start{Start: start}}); err != nil &&
		!errors.Is(err, io.EOF) {
		return err
	}
	for {
		f, err := stream.Receive()
		if err != nil {
			return err
		}
		if a := f.GetResults(); a != nil {
			b.mu.Lock()
			ch := b.waiting[a.GetRequestId()]
			delete(b.waiting, a.GetRequestId())
			b.mu.Unlock()
			if ch != nil {
				ch <- a
			}
			continue
		}
		b.s.frame(ctx, f.GetConsume())
	}
}

func (b *bidi) send(r *parleyv1.StreamingConsumeRequest) error {
	b.sending.Lock()
	defer b.sending.Unlock()
	return b.stream.Send(r)
}

func (b *bidi) settle(ctx context.Context, tasks []*task) ([]*parleyv1.SettleResult, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	ch := make(chan *parleyv1.RequestResults, 1)
	b.mu.Lock()
	b.next++
	id := b.next
	b.waiting[id] = ch
	b.mu.Unlock()
	r := &parleyv1.StreamingConsumeRequest{RequestId: id}
	switch tasks[0].op.Kind {
	case Ack:
		r.Request = &parleyv1.StreamingConsumeRequest_Ack{Ack: &parleyv1.AckRequest{Tokens: tokens(tasks)}}
	case Extend, Begun:
		r.Request = &parleyv1.StreamingConsumeRequest_Extend{Extend: extension("", tasks)}
	default:
		r.Request = &parleyv1.StreamingConsumeRequest_Nack{Nack: &parleyv1.NackRequest{Items: items(tasks)}}
	}
	// Send may block as long as the stream lives, so it runs in a goroutine. settle waits no longer
	// than the limit.
	sent := make(chan error, 1)
	go func() { sent <- b.send(r) }()
	for {
		select {
		case err := <-sent:
			if err != nil {
				return nil, err
			}
			sent = nil
		case a := <-ch:
			if e := a.GetError(); e != nil {
				return refused(e, len(tasks)), nil
			}
			return a.GetResults(), nil
		case <-b.gone:
			return nil, errGone
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// refused returns the results of a request that was refused as a whole.
func refused(e *parleyv1.ItemError, n int) []*parleyv1.SettleResult {
	results := make([]*parleyv1.SettleResult, n)
	for i := range results {
		results[i] = &parleyv1.SettleResult{Error: e}
	}
	return results
}
