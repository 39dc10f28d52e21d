package queues

import (
	"context"
	"fmt"
	"sync"

	"connectrpc.com/connect"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// tap is a connect.Interceptor that records the calls of the SDK's Worker and the server's answers.
// So these are checked like those of other clients, regardless of what the SDK does with them. Safe
// for concurrent use.
type tap struct {
	consumer Consumer
	out      sink

	mu sync.Mutex // guards the fields below
	n  int
	// given are all deliveries by token. unsure are the tokens of deliveries with a settlement of
	// unknown outcome, whose next settlement is a repeat.
	given  map[string]*Delivery
	unsure map[string]bool
}

func newTap(c Consumer, out sink) *tap {
	return &tap{consumer: c, out: out, given: make(map[string]*Delivery), unsure: make(map[string]bool)}
}

// WrapUnary implements connect.Interceptor.
func (t *tap) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		var ops []*Op
		switch r := req.Any().(type) {
		case *parleyv1.AckRequest:
			ops = t.asked(Ack, r.GetTokens(), nil)
		case *parleyv1.ExtendRequest:
			ops = t.asked(Extend, r.GetDeliveries().GetTokens(), nil)
		case *parleyv1.NackRequest:
			ops = t.asked(Nack, nil, r.GetItems())
		}
		t.begin(ops, req.Peer().Addr)
		res, err := next(ctx, req)
		var results []*parleyv1.SettleResult
		if err == nil {
			if r, ok := res.Any().(interface {
				GetResults() []*parleyv1.SettleResult
			}); ok {
				results = r.GetResults()
			}
		}
		t.end(ops, results, err)
		return res, err
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (t *tap) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		c := &t.consumer
		return &tapped{
			StreamingClientConn: conn, t: t, unanswered: make(map[int64][]*Op),
			info: Stream{Client: c.Name, Addr: conn.Peer().Addr, Topic: c.Topic, Group: c.Group},
		}
	}
}

// WrapStreamingHandler implements connect.Interceptor. It does nothing, as there are no handlers.
func (t *tap) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// asked returns a new op for each token, or each nack item, of a request.
func (t *tap) asked(kind Kind, tokens []string, items []*parleyv1.NackItem) []*Op {
	var ops []*Op
	for _, token := range tokens {
		ops = append(ops, t.op(kind, token))
	}
	for _, item := range items {
		op := t.op(kind, item.GetToken())
		op.Dead = item.GetDeadLetter() != nil || item.GetCode() == rejectCode
		if item.GetRelease() != nil {
			op.Kind = Release
		}
		if delay := item.GetRetry().GetDelay(); delay != nil {
			op.DelayMS = delay.AsDuration().Milliseconds()
		}
		ops = append(ops, op)
	}
	return ops
}

func (t *tap) op(kind Kind, token string) *Op {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	op := &Op{
		ID: fmt.Sprintf("%s/%d", t.consumer.Name, t.n), Client: t.consumer.Name, Kind: kind, Topic: t.consumer.Topic, Group: t.consumer.Group,
		Token: token, DelayMS: none, Repeat: t.unsure[token],
	}
	if d := t.given[token]; d != nil {
		op.Mark, op.MessageID, op.Attempt, op.Partition, op.Stream = d.Mark, d.MessageID, d.Attempt, d.Partition, d.Stream
	}
	return op
}

// begin records that the ops of a request to addr begin.
func (t *tap) begin(ops []*Op, addr string) {
	for _, op := range ops {
		op.Addr, op.Begin = addr, now()
		t.out.write(line{Op: op})
	}
}

// end records the endings of a request's ops: results for each, or the error of the request.
func (t *tap) end(ops []*Op, results []*parleyv1.SettleResult, err error) {
	endAll(ops, results, err, nil)
	for _, op := range ops {
		if op.Outcome == chaos.Unknown && op.Kind.settles() {
			t.mu.Lock()
			t.unsure[op.Token] = true
			t.mu.Unlock()
		}
		t.out.write(line{Op: op})
	}
}

// tapped is one stream of the Worker, which records its frames and requests to the tap t.
type tapped struct {
	connect.StreamingClientConn

	t *tap

	mu         sync.Mutex // guards the fields below
	info       Stream
	unanswered map[int64][]*Op // by call id
	over       bool
}

// Send implements connect.StreamingClientConn.
func (c *tapped) Send(msg any) error {
	r, _ := msg.(*parleyv1.StreamingConsumeRequest)
	var ops []*Op
	switch q := r.GetRequest().(type) {
	case *parleyv1.StreamingConsumeRequest_Ack:
		ops = c.t.asked(Ack, q.Ack.GetTokens(), nil)
	case *parleyv1.StreamingConsumeRequest_Extend:
		ops = c.t.asked(Extend, q.Extend.GetDeliveries().GetTokens(), nil)
	case *parleyv1.StreamingConsumeRequest_Nack:
		ops = c.t.asked(Nack, nil, q.Nack.GetItems())
	}
	id := r.GetCallId()
	if len(ops) > 0 {
		c.t.begin(ops, c.info.Addr)
		c.mu.Lock()
		c.unanswered[id] = ops
		c.mu.Unlock()
	}
	err := c.StreamingClientConn.Send(msg)
	c.mu.Lock()
	over := c.over
	c.mu.Unlock()
	if err != nil || over {
		c.t.end(c.take(id), nil, errGone)
	}
	return err
}

// take removes and returns the ops of an unanswered request.
func (c *tapped) take(id int64) []*Op {
	c.mu.Lock()
	defer c.mu.Unlock()
	ops := c.unanswered[id]
	delete(c.unanswered, id)
	return ops
}

// Receive implements connect.StreamingClientConn.
func (c *tapped) Receive(msg any) error {
	if err := c.StreamingClientConn.Receive(msg); err != nil {
		c.end(err)
		return err
	}
	switch r := msg.(type) {
	case *parleyv1.ConsumeResponse:
		c.frame(r)
	case *parleyv1.StreamingConsumeResponse:
		a := r.GetAnswer()
		if a == nil {
			c.frame(r.GetConsume())
			break
		}
		ops, results := c.take(a.GetCallId()), a.GetResults()
		if e := a.GetError(); e != nil {
			results = refused(e, len(ops))
		}
		c.t.end(ops, results, nil)
	}
	return nil
}

// frame records a frame of the stream before the SDK receives it.
func (c *tapped) frame(f *parleyv1.ConsumeResponse) {
	at := now()
	if id := f.GetInfo().GetStreamId(); id != "" {
		c.mu.Lock()
		c.info.ID, c.info.Begin = id, at
		info := c.info
		c.mu.Unlock()
		c.t.out.write(line{Stream: &info})
	}
	for _, one := range f.GetDeliveries().GetDeliveries() {
		d := newDelivery(&c.info, one, at)
		c.t.mu.Lock()
		c.t.given[d.Token] = d
		c.t.mu.Unlock()
		c.t.out.write(line{Delivery: d})
	}
}

// end records the end of the stream and of the ops in flight.
func (c *tapped) end(err error) {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return
	}
	c.over = true
	e := chaos.EndingOf(err)
	c.info.End, c.info.Reason = now(), fmt.Sprintf("%s %s", e.Reason, e)
	info := c.info
	var left []*Op
	for id, ops := range c.unanswered {
		left = append(left, ops...)
		delete(c.unanswered, id)
	}
	c.mu.Unlock()
	c.t.end(left, nil, errGone)
	if info.ID != "" {
		c.t.out.write(line{Stream: &info})
	}
}
