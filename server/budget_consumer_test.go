package server_test

import (
	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// budgetConsumer is a Consume stream with its session, and the tokens and messages of the
// deliveries that it holds.
type budgetConsumer struct {
	r           *budgetRig
	id          string
	stream      *connect.ServerStreamForClient[parleyv1.ConsumeResponse]
	tokens, ids []string
	// returned are the messages that it returned, in order.
	returned []string
}

// consumer opens a Consume stream that gets up to n deliveries at once.
func (r *budgetRig) consumer(topic, group string, n int32) *budgetConsumer {
	r.t.Helper()
	stream, err := r.queues.Consume(r.t.Context(), many(topic, group, n))
	r.must(err)
	if !stream.Receive() {
		r.t.Fatal(stream.Err())
	}
	return &budgetConsumer{r: r, id: stream.Msg().GetStarted().GetSessionId(), stream: stream}
}

// holding returns a consumer that holds n small deliveries of a topic with 4 partitions.
func (r *budgetRig) holding(topic string, n int32) *budgetConsumer {
	r.t.Helper()
	r.topic(topic, 4, "g")
	for range n / 1000 {
		r.must(callErr(r.produce(topic, 1000, 100, true)))
	}
	c := r.consumer(topic, "g", n)
	_, err := c.read(int(n))
	r.must(err)
	return c
}

// read reads n deliveries.
func (c *budgetConsumer) read(n int) (proto.Message, error) {
	all := &parleyv1.DeliveryBatch{}
	for len(all.GetDeliveries()) < n {
		if !c.stream.Receive() {
			return nil, c.stream.Err()
		}
		proto.Merge(all, c.stream.Msg().GetDeliveries())
	}
	for _, d := range all.GetDeliveries() {
		c.tokens, c.ids = append(c.tokens, d.GetToken()), append(c.ids, d.GetMessageId())
	}
	return all, nil
}

// take returns n tokens, which the consumer no longer holds.
func (c *budgetConsumer) take(n int) []string {
	some := c.tokens[:n]
	c.returned = append(c.returned, c.ids[:n]...)
	c.tokens, c.ids = c.tokens[n:], c.ids[n:]
	return some
}

// widen raises the limits of the session to total and reads n deliveries.
func (c *budgetConsumer) widen(total, n int) (proto.Message, error) {
	_, err := c.r.queues.UpdateSession(c.r.t.Context(), &parleyv1.UpdateSessionRequest{
		SessionId: c.id, Concurrency: int32(total), MaxInFlight: int32(total),
	})
	if err != nil {
		return nil, err
	}
	return c.read(n)
}

// extend extends deliveries, all of them if tokens is nil.
func (c *budgetConsumer) extend(tokens []string) (proto.Message, error) {
	req := &parleyv1.ExtendRequest{SessionId: c.id, Target: &parleyv1.ExtendRequest_All{All: &parleyv1.AllDeliveries{}}}
	if tokens != nil {
		req.Target = &parleyv1.ExtendRequest_Deliveries{Deliveries: &parleyv1.DeliveryTokens{Tokens: tokens}}
	}
	res, err := c.r.queues.Extend(c.r.t.Context(), req)
	if err != nil {
		return nil, err
	}
	return res, failed(res.GetResults())
}

// ack acknowledges n deliveries.
func (c *budgetConsumer) ack(n int) (proto.Message, error) {
	res, err := c.r.queues.Ack(c.r.t.Context(), &parleyv1.AckRequest{SessionId: c.id, Tokens: c.take(n)})
	c.returned = c.returned[:len(c.returned)-n]
	if err != nil {
		return nil, err
	}
	return res, failed(res.GetResults())
}

// nack returns n deliveries.
func (c *budgetConsumer) nack(n int, item func(token string) *parleyv1.NackItem) (proto.Message, error) {
	req := &parleyv1.NackRequest{SessionId: c.id}
	for _, token := range c.take(n) {
		i := item(token)
		i.Reason = largestText[:1024]
		req.Items = append(req.Items, i)
	}
	res, err := c.r.queues.Nack(c.r.t.Context(), req)
	if err != nil {
		return nil, err
	}
	return res, failed(res.GetResults())
}

// leave leaves and reads the stream to its end.
func (c *budgetConsumer) leave() (proto.Message, error) {
	res, err := c.r.queues.Leave(c.r.t.Context(), &parleyv1.LeaveRequest{SessionId: c.id})
	if err != nil {
		return nil, err
	}
	for c.stream.Receive() { // the stream ends when it holds nothing
	}
	return res, c.stream.Err()
}
