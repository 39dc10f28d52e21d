package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

const (
	// largestPayload is the size of the largest payload of a queue message, and perRequest how many
	// of them a request holds.
	largestPayload, perRequest = 256 << 10, 7
	// mostPartitions is the largest number of partitions of a topic.
	mostPartitions = 256
)

// queueBudgets returns the rows of topics with few partitions: batches of 1,000 messages, the
// largest payloads, and 10,000 deliveries in flight.
func queueBudgets(r *budgetRig) []budgetRow {
	ctx := r.t.Context()
	r.topic("one", 1, "g")
	r.topic("large", 1, "g")
	for range 20 {
		r.must(callErr(r.produce("large", perRequest, largestPayload, false)))
	}
	large := r.consumer("large", "g", 1)
	_, err := large.read(1)
	r.must(err)
	held := r.holding("held", 10_000)
	due, err := r.schedule("one", 1000, 1900)
	r.must(err)
	scheduled := func(i int) string { return due.GetResults()[i].GetScheduled().GetMessageId() }
	pending := func(size int32) func(int) (proto.Message, error) {
		return func(int) (proto.Message, error) {
			return answered(r.admin.ListPending(ctx, &parleyv1.ListPendingRequest{Topic: "held", Group: "g", PageSize: size}))
		}
	}
	return []budgetRow{
		{name: "Produce, 1,000 of 2 KB to one partition", n: 5, call: func(int) (proto.Message, error) { return r.produce("one", 1000, 2000, false) }},
		{name: "Produce, 7 of 256 KiB", n: 5, call: func(int) (proto.Message, error) { return r.produce("one", perRequest, largestPayload, false) }},
		{name: "CancelScheduled, among 1,000", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.queues.CancelScheduled(ctx, &parleyv1.CancelScheduledRequest{Topic: "one", MessageId: scheduled(i)}))
		}},
		{name: "RescheduleScheduled, among 1,000", n: 5, call: func(i int) (proto.Message, error) {
			return answered(r.queues.RescheduleScheduled(ctx, &parleyv1.RescheduleScheduledRequest{
				Topic: "one", MessageId: scheduled(100 + i), Due: &parleyv1.RescheduleScheduledRequest_Delay{Delay: durationpb.New(time.Hour)},
			}))
		}},
		{name: "GrantCredits, 32 deliveries of 256 KiB", n: 3, call: func(i int) (proto.Message, error) { return large.grant(1+32*(i+1), 32) }},
		{name: "ListPending, 1 of 10,000", n: 5, call: pending(1)},
		{name: "ListPending, 1,000 of 10,000", n: 5, call: pending(1000)},
		{name: "Extend, 10,000 deliveries", n: 5, call: func(int) (proto.Message, error) { return held.extend(nil) }},
		{name: "Extend, 1,000 tokens", n: 5, call: func(int) (proto.Message, error) { return held.extend(held.tokens[:1000]) }},
		{name: "Ack, 1,000", n: 3, call: func(int) (proto.Message, error) { return held.ack(1000) }},
		{name: "Nack, 1,000 retries", n: 3, call: func(int) (proto.Message, error) {
			return held.nack(1000, func(token string) *parleyv1.NackItem { return retried(token, time.Hour) })
		}},
		{name: "Nack, 500 dead letters", n: 3, call: func(int) (proto.Message, error) { return held.nack(500, dead) }},
	}
}

// partitionBudgets returns the rows of topics with 256 partitions and 10 groups.
func partitionBudgets(r *budgetRig) []budgetRow {
	var groups []string
	for i := range manyGroups {
		groups = append(groups, fmt.Sprintf("group-%02d", i))
	}
	r.topic("wide", mostPartitions, groups...)
	r.must(callErr(r.produce("wide", 1000, 1000, true)))
	var idle *budgetConsumer
	return append([]budgetRow{
		{name: "Consume, 1,000 messages of 256 partitions", n: 3, call: func(i int) (proto.Message, error) { return r.consume("wide", groups[i], 1000) }},
		{name: "StreamingConsume, 1,000 messages of 256 partitions", n: 3, call: func(i int) (proto.Message, error) {
			return r.consumeStreaming("wide", groups[4+i], 1000)
		}},
		{name: "Produce, 1,000 of 2 KB to 256 partitions", n: 3, call: func(int) (proto.Message, error) { return r.produce("wide", 1000, 1900, true) }},
		{name: "Schedule, 1,000 of 2 KB to 256 partitions", n: 3, call: func(int) (proto.Message, error) { return answered(r.schedule("wide", 1000, 1900)) }},
		{name: "Leave, 256 partitions", n: 3, call: func(int) (proto.Message, error) { return idle.leave() }, prepare: func(int) error {
			idle = r.consumer("wide", groups[9], 1)
			if _, err := idle.read(1); err != nil {
				return err
			}
			if err := idle.assigned(mostPartitions); err != nil {
				return err
			}
			return lastErr(idle.ack(1))
		}},
	}, r.wideBudgets()...)
}

// topic creates a topic with consumer groups.
func (r *budgetRig) topic(name string, partitions int32, groups ...string) {
	r.t.Helper()
	ctx := r.t.Context()
	r.must(callErr(r.admin.CreateTopic(ctx, &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: name, Partitions: partitions}})))
	for _, g := range groups {
		r.must(callErr(r.admin.CreateGroup(ctx, &parleyv1.CreateGroupRequest{Topic: name, Group: g})))
	}
}

// queueBatch returns n messages of size bytes. With keys each has a key and an idempotency key of
// its own.
func queueBatch(n, size int, keys bool) []*parleyv1.QueueMessage {
	all := make([]*parleyv1.QueueMessage, n)
	payload := bytes.Repeat([]byte("x"), size)
	for i := range all {
		all[i] = &parleyv1.QueueMessage{Payload: payload}
		if keys {
			all[i].Key, all[i].IdempotencyKey = fmt.Sprint("key-", i), fmt.Sprint(time.Now().UnixNano(), "-", i)
		}
	}
	return all
}

// produce produces n messages as queueBatch returns.
func (r *budgetRig) produce(topic string, n, size int, keys bool) (*parleyv1.ProduceResponse, error) {
	res, err := r.queues.Produce(r.t.Context(), &parleyv1.ProduceRequest{Topic: topic, Messages: queueBatch(n, size, keys)})
	for _, result := range res.GetResults() {
		if e := result.GetError(); e != nil {
			return nil, errors.New(e.String())
		}
	}
	return res, err
}

// schedule schedules n messages of size bytes, due in an hour.
func (r *budgetRig) schedule(topic string, n, size int) (*parleyv1.ScheduleResponse, error) {
	req := &parleyv1.ScheduleRequest{Topic: topic}
	for _, m := range queueBatch(n, size, true) {
		req.Messages = append(req.Messages, &parleyv1.ScheduledMessage{
			Message: m, Due: &parleyv1.ScheduledMessage_Delay{Delay: durationpb.New(time.Hour)},
		})
	}
	res, err := r.queues.Schedule(r.t.Context(), req)
	for _, result := range res.GetResults() {
		if e := result.GetError(); e != nil {
			return nil, errors.New(e.String())
		}
	}
	return res, err
}

// consume joins a group, reads n deliveries and ends the stream without settling them.
func (r *budgetRig) consume(topic, group string, n int) (proto.Message, error) {
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	stream, err := r.queues.Consume(ctx, &parleyv1.ConsumeRequest{Topic: topic, Group: group, Consumer: "c", MaxMessages: 10_000})
	if err != nil {
		return nil, err
	}
	all := &parleyv1.DeliveryBatch{}
	for len(all.GetDeliveries()) < n {
		if !stream.Receive() {
			return nil, stream.Err()
		}
		proto.Merge(all, stream.Msg().GetDeliveries())
	}
	return all, nil
}

// consumeStreaming joins a group, reads n deliveries, acknowledges them on the stream and leaves.
func (r *budgetRig) consumeStreaming(topic, group string, n int) (proto.Message, error) {
	stream, err := r.queues.StreamingConsume(r.t.Context())
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.CloseRequest(); _ = stream.CloseResponse() }()
	start := &parleyv1.ConsumeRequest{Topic: topic, Group: group, Consumer: "c", MaxMessages: 10_000}
	if err := stream.Send(&parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Start{Start: start}}); err != nil {
		return nil, err
	}
	all, acks := &parleyv1.DeliveryBatch{}, &parleyv1.StreamingAck{}
	for {
		res, err := stream.Receive()
		if err != nil {
			return nil, err
		}
		switch {
		case res.GetAnswer() != nil:
			return all, failed(res.GetAnswer().GetResults())
		case res.GetConsume().GetDeliveries() == nil:
			continue
		}
		proto.Merge(all, res.GetConsume().GetDeliveries())
		for _, d := range res.GetConsume().GetDeliveries().GetDeliveries() {
			acks.Tokens = append(acks.Tokens, d.GetToken())
		}
		if len(acks.GetTokens()) == n {
			if err := stream.Send(&parleyv1.StreamingConsumeRequest{CallId: 1, Request: &parleyv1.StreamingConsumeRequest_Ack{Ack: acks}}); err != nil {
				return nil, err
			}
		}
	}
}

// failed returns the first error of results.
func failed(results []*parleyv1.SettleResult) error {
	for _, result := range results {
		if e := result.GetError(); e != nil {
			return errors.New(e.String())
		}
	}
	return nil
}

// budgetConsumer is a Consume stream and the tokens of the deliveries that it holds.
type budgetConsumer struct {
	r            *budgetRig
	topic, group string
	id           string
	stream       *connect.ServerStreamForClient[parleyv1.ConsumeResponse]
	tokens       []string
	partitions   int // that it was assigned last
}

// consumer opens a Consume stream with so many credits.
func (r *budgetRig) consumer(topic, group string, credits int64) *budgetConsumer {
	r.t.Helper()
	stream, err := r.queues.Consume(r.t.Context(), &parleyv1.ConsumeRequest{
		Topic: topic, Group: group, Consumer: "c", MaxMessages: credits, MaxBytes: proto.Int64(64 << 20), AckTimeout: durationpb.New(time.Hour),
	})
	r.must(err)
	if !stream.Receive() {
		r.t.Fatal(stream.Err())
	}
	return &budgetConsumer{r: r, topic: topic, group: group, id: stream.Msg().GetInfo().GetStreamId(), stream: stream}
}

// holding returns a consumer that holds n small deliveries of a topic with 4 partitions.
func (r *budgetRig) holding(topic string, n int) *budgetConsumer {
	r.t.Helper()
	r.topic(topic, 4, "g")
	for range n / 1000 {
		r.must(callErr(r.produce(topic, 1000, 100, true)))
	}
	c := r.consumer(topic, "g", int64(n))
	_, err := c.read(n)
	r.must(err)
	return c
}

// receive reads a frame. It reports false at the end of the stream.
func (c *budgetConsumer) receive() bool {
	ok := c.stream.Receive()
	if a := c.stream.Msg().GetAssignment(); ok && a != nil {
		c.partitions = len(a.GetPartitions())
	}
	return ok
}

// read reads n deliveries.
func (c *budgetConsumer) read(n int) (proto.Message, error) {
	all := &parleyv1.DeliveryBatch{}
	for len(all.GetDeliveries()) < n {
		if !c.receive() {
			return nil, c.stream.Err()
		}
		proto.Merge(all, c.stream.Msg().GetDeliveries())
	}
	for _, d := range all.GetDeliveries() {
		c.tokens = append(c.tokens, d.GetToken())
	}
	return all, nil
}

// take returns n tokens, which the consumer no longer holds.
func (c *budgetConsumer) take(n int) []string {
	some := c.tokens[:n]
	c.tokens = c.tokens[n:]
	return some
}

// grant raises the credits to total and reads n deliveries.
func (c *budgetConsumer) grant(total, n int) (proto.Message, error) {
	_, err := c.r.queues.GrantCredits(c.r.t.Context(), &parleyv1.GrantCreditsRequest{
		Topic: c.topic, Group: c.group, StreamId: c.id, TotalMessages: int64(total), TotalBytes: int64(total) * 2 * largestPayload,
	})
	if err != nil {
		return nil, err
	}
	return c.read(n)
}

// extend extends deliveries, all of them if tokens is nil.
func (c *budgetConsumer) extend(tokens []string) (proto.Message, error) {
	req := &parleyv1.ExtendRequest{Topic: c.topic, Group: c.group, StreamId: c.id, Target: &parleyv1.ExtendRequest_All{All: &parleyv1.AllDeliveries{}}}
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
	res, err := c.r.queues.Ack(c.r.t.Context(), &parleyv1.AckRequest{Topic: c.topic, Group: c.group, StreamId: c.id, Tokens: c.take(n)})
	if err != nil {
		return nil, err
	}
	return res, failed(res.GetResults())
}

// nack returns n deliveries.
func (c *budgetConsumer) nack(n int, item func(token string) *parleyv1.NackItem) (proto.Message, error) {
	req := &parleyv1.NackRequest{Topic: c.topic, Group: c.group, StreamId: c.id}
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

// assigned waits until the consumer has n partitions.
func (c *budgetConsumer) assigned(n int) error {
	for c.partitions != n {
		if !c.receive() {
			return c.stream.Err()
		}
	}
	return nil
}

// leave leaves and reads the stream to its end.
func (c *budgetConsumer) leave() (proto.Message, error) {
	res, err := c.r.queues.Leave(c.r.t.Context(), &parleyv1.LeaveRequest{Topic: c.topic, Group: c.group, StreamId: c.id})
	if err != nil {
		return nil, err
	}
	for c.stream.Receive() { // the stream ends when its partitions are released
	}
	return res, c.stream.Err()
}
