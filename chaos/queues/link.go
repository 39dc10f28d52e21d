package queues

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// link is how a consumer settles and grants credits: on the stream itself or by separate calls.
type link interface {
	// consume passes every frame to the consumer until the stream ends.
	consume(ctx context.Context, c *client, start *parleyv1.ConsumeRequest) error
	// settle makes one call for tasks of one kind, and returns the result of each.
	settle(ctx context.Context, tasks []*task) ([]*parleyv1.SettleResult, error)
	// grant grants credits up to these totals since the stream began.
	grant(ctx context.Context, messages, bytes int64)
}

// unary consumes from a server stream. It settles and grants by unary calls to random nodes.
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
func (u *unary) client() *client { return u.s.clients[rand.IntN(len(u.s.clients))] }

func (u *unary) settle(ctx context.Context, tasks []*task) ([]*parleyv1.SettleResult, error) {
	s, c := u.s, u.client()
	ctx, cancel := c.call(ctx)
	defer cancel()
	switch tasks[0].op.Kind {
	case Ack:
		res, err := c.Ack(ctx, &parleyv1.AckRequest{Topic: s.Topic, Group: s.Group, StreamId: s.info.ID, Tokens: tokens(tasks)})
		return res.GetResults(), err
	case Extend:
		res, err := c.Extend(ctx, &parleyv1.ExtendRequest{
			Topic: s.Topic, Group: s.Group, StreamId: s.info.ID,
			Target: &parleyv1.ExtendRequest_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: tokens(tasks)}},
		})
		return res.GetResults(), err
	default:
		res, err := c.Nack(ctx, &parleyv1.NackRequest{Topic: s.Topic, Group: s.Group, StreamId: s.info.ID, Items: items(tasks)})
		return res.GetResults(), err
	}
}

func (u *unary) grant(ctx context.Context, messages, bytes int64) {
	// If the last grant of a window were lost, no other would follow: the stream would stall, and
	// with it the consumer.
	for {
		err := u.grantOnce(ctx, messages, bytes)
		if err == nil || connect.CodeOf(err) == connect.CodeFailedPrecondition || !chaos.Sleep(ctx, 100*time.Millisecond) {
			return
		}
	}
}

func (u *unary) grantOnce(ctx context.Context, messages, bytes int64) error {
	s, c := u.s, u.client()
	ctx, cancel := c.call(ctx)
	defer cancel()
	_, err := c.GrantCredits(ctx, &parleyv1.GrantCreditsRequest{
		Topic: s.Topic, Group: s.Group, StreamId: s.info.ID, TotalMessages: messages, TotalBytes: bytes,
	})
	return err
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
	waiting map[int64]chan *parleyv1.StreamingAnswer
}

func newBidi(s *streaming) *bidi {
	return &bidi{s: s, gone: make(chan struct{}), waiting: make(map[int64]chan *parleyv1.StreamingAnswer)}
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
		if a := f.GetAnswer(); a != nil {
			b.mu.Lock()
			ch := b.waiting[a.GetCallId()]
			delete(b.waiting, a.GetCallId())
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
	ch := make(chan *parleyv1.StreamingAnswer, 1)
	b.mu.Lock()
	b.next++
	id := b.next
	b.waiting[id] = ch
	b.mu.Unlock()
	r := &parleyv1.StreamingConsumeRequest{CallId: id}
	switch tasks[0].op.Kind {
	case Ack:
		r.Request = &parleyv1.StreamingConsumeRequest_Ack{Ack: &parleyv1.StreamingAck{Tokens: tokens(tasks)}}
	case Extend:
		r.Request = &parleyv1.StreamingConsumeRequest_Extend{Extend: &parleyv1.StreamingExtend{
			Target: &parleyv1.StreamingExtend_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: tokens(tasks)}},
		}}
	default:
		r.Request = &parleyv1.StreamingConsumeRequest_Nack{Nack: &parleyv1.StreamingNack{Items: items(tasks)}}
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

func (b *bidi) grant(_ context.Context, messages, bytes int64) {
	// A failure ends the stream.
	_ = b.send(&parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Credits{
		Credits: &parleyv1.StreamingCredits{TotalMessages: messages, TotalBytes: bytes},
	}})
}
