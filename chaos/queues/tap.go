package queues

import (
	"context"
	"errors"
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
	// session is the latest one.
	session string
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
			ops = t.extended(r)
		case *parleyv1.LeaveRequest:
			ops = t.left(r.GetSessionId())
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
		if len(ops) == 1 && len(results) == 0 && err == nil {
			results = []*parleyv1.SettleResult{{}} // Leave, and Extend of all deliveries, have no results
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
			info: Stream{
				ID: fmt.Sprintf("%s/s%d", c.Name, t.next()), Client: c.Name, Addr: conn.Peer().Addr, Topic: c.Topic, Group: c.Group,
				Asked: now(), Concurrency: sdkConcurrency, AckTimeout: c.AckTimeout, Reports: true,
			},
		}
	}
}

func (t *tap) next() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	return t.n
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

// extended returns the ops of a request to extend deliveries, or to report them as begun.
func (t *tap) extended(r *parleyv1.ExtendRequest) []*Op {
	if r.GetAll() != nil {
		t.mu.Lock()
		session := t.session
		t.mu.Unlock()
		op := t.op(Extend, "")
		op.Session = session
		return []*Op{op}
	}
	kind := Extend
	if r.GetBegun() {
		kind = Begun
	}
	return t.asked(kind, r.GetDeliveries().GetTokens(), nil)
}

// left returns the op of a request to leave a session.
func (t *tap) left(session string) []*Op {
	op := t.op(Leave, "")
	op.Session = session
	return []*Op{op}
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
		op.Mark, op.MessageID, op.Attempt, op.Gen, op.Partition, op.Session = d.Mark, d.MessageID, d.Attempt, d.Gen, d.Partition, d.Session
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
	// verdicts are those of the request that resumes the session, until the first frame answers them.
	verdicts []*Op
	over     bool
}

// Send implements connect.StreamingClientConn.
func (c *tapped) Send(msg any) error {
	if start, ok := msg.(*parleyv1.ConsumeRequest); ok {
		c.asked(start)
	}
	r, _ := msg.(*parleyv1.StreamingConsumeRequest)
	var ops []*Op
	switch q := r.GetRequest().(type) {
	case *parleyv1.StreamingConsumeRequest_Ack:
		ops = c.t.asked(Ack, q.Ack.GetTokens(), nil)
	case *parleyv1.StreamingConsumeRequest_Extend:
		ops = c.t.extended(q.Extend)
	case *parleyv1.StreamingConsumeRequest_Leave:
		ops = c.t.left(c.session())
	case *parleyv1.StreamingConsumeRequest_Start:
		c.asked(q.Start)
	case *parleyv1.StreamingConsumeRequest_Nack:
		ops = c.t.asked(Nack, nil, q.Nack.GetItems())
	}
	id := r.GetRequestId()
	c.t.begin(ops, c.info.Addr)
	if id == 0 {
		err := c.StreamingClientConn.Send(msg)
		c.t.end(ops, nil, errUnasked)
		return err
	}
	if len(ops) > 0 {
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

// errUnasked is the error of a request on a stream that asks for no answer.
var errUnasked = errors.New("no answer was asked for")

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
		a := r.GetResults()
		if a == nil {
			c.frame(r.GetConsume())
			break
		}
		ops, results := c.take(a.GetRequestId()), a.GetResults()
		switch e := a.GetError(); {
		case e != nil:
			results = refused(e, len(ops))
		case len(ops) == 1 && len(results) == 0:
			results = []*parleyv1.SettleResult{{}} // as of unary calls
		}
		c.t.end(ops, results, nil)
	}
	return nil
}

// asked notes the request of the stream.
func (c *tapped) asked(start *parleyv1.ConsumeRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	resume := start.GetResume()
	c.info.Session, c.info.Resumes = resume.GetSessionId(), resume.GetResumes()
	var begun []string
	for _, held := range resume.GetHeld() {
		c.info.Held = append(c.info.Held, held.GetToken())
		if held.GetBegun() {
			begun = append(begun, held.GetToken())
		}
	}
	marks := c.t.asked(Begun, begun, nil)
	c.t.begin(marks, c.info.Addr)
	c.t.end(marks, nil, errGone) // nobody answers them
	for _, one := range resume.GetUnanswered() {
		if nack := one.GetNack(); nack != nil {
			c.info.Held = append(c.info.Held, nack.GetToken())
			c.verdicts = append(c.verdicts, c.t.asked(Nack, nil, []*parleyv1.NackItem{nack})...)
			continue
		}
		c.info.Held = append(c.info.Held, one.GetAck())
		c.verdicts = append(c.verdicts, c.t.asked(Ack, []string{one.GetAck()}, nil)...)
	}
	c.t.begin(c.verdicts, c.info.Addr)
}

func (c *tapped) session() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.info.Session
}

// frame records a frame of the stream before the SDK receives it.
func (c *tapped) frame(f *parleyv1.ConsumeResponse) {
	c.mu.Lock()
	lines := c.info.noted(f, now())
	session := c.info.Session
	var verdicts []*Op
	if f.GetStarted() != nil {
		verdicts, c.verdicts = c.verdicts, nil
	}
	c.mu.Unlock()
	c.t.end(verdicts, f.GetStarted().GetUnanswered(), nil)
	c.t.mu.Lock()
	c.t.session = session
	for _, l := range lines {
		if l.Delivery != nil {
			c.t.given[l.Delivery.Token] = l.Delivery
		}
	}
	c.t.mu.Unlock()
	for _, l := range lines {
		c.t.out.write(l)
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
	left := c.verdicts
	c.verdicts = nil
	for id, ops := range c.unanswered {
		left = append(left, ops...)
		delete(c.unanswered, id)
	}
	c.mu.Unlock()
	c.t.end(left, nil, errGone)
	if info.Begin != 0 {
		c.t.out.write(line{Stream: &info})
	}
}
