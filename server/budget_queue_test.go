package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

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
	for range 30 {
		r.must(callErr(r.produce("large", perRequest, largestPayload, false)))
	}
	large := r.consumer("large", "g", 1)
	_, err := large.read(1)
	r.must(err)
	held := r.holding("held", 10_000)
	due, err := r.schedule("one", 1000, 1900)
	r.must(err)
	scheduled := func(i int) []string {
		var ids []string
		for _, result := range due.GetResults()[100*i : 100*(i+1)] {
			ids = append(ids, result.GetProduced().GetMessageId())
		}
		return ids
	}
	return []budgetRow{
		{name: "Produce, 1,000 of 2 KB to one partition", n: 5, call: func(int) (proto.Message, error) { return r.produce("one", 1000, 2000, false) }},
		{name: "Produce, 7 of 256 KiB", n: 5, call: func(int) (proto.Message, error) { return r.produce("one", perRequest, largestPayload, false) }},
		{name: "CancelMessages, 100 of 1,000", n: 3, call: func(i int) (proto.Message, error) {
			return answered(r.queues.CancelMessages(ctx, &parleyv1.CancelMessagesRequest{Topic: "one", MessageIds: scheduled(i)}))
		}},
		{name: "RescheduleMessages, 100 of 1,000", n: 3, call: func(i int) (proto.Message, error) {
			req := rescheduling("one", scheduled(5+i)...)
			req.Due = &parleyv1.RescheduleMessagesRequest_Delay{Delay: durationpb.New(time.Hour)}
			return answered(r.queues.RescheduleMessages(ctx, req))
		}},
		{name: "UpdateSession, 32 deliveries of 256 KiB", n: 3, call: func(i int) (proto.Message, error) { return large.widen(1+32*(i+1), 32) }},
		{name: "Receive, 4 of 256 KiB", n: 3, call: func(int) (proto.Message, error) {
			return answered(r.queues.Receive(ctx, &parleyv1.ReceiveRequest{Topic: "large", Group: "g", MaxMessages: 100, AckTimeout: durationpb.New(time.Hour)}))
		}},
		{name: "ListJobs, 1 of 10,000 that run", n: 5, call: r.jobs("held", false, 1)},
		{name: "ListJobs, 1,000 of 10,000 that run", n: 5, call: r.jobs("held", false, 1000)},
		{name: "ListJobs, a page of 1 MiB", n: 3, call: r.jobs("large", true, 1000)},
		{name: "GetJob, 256 KiB", n: 3, call: func(int) (proto.Message, error) {
			return answered(r.topics.GetJob(ctx, &parleyv1.GetJobRequest{Topic: "large", MessageId: large.ids[0]}))
		}},
		{name: "ListConsumers, 10,000 deliveries", n: 5, call: func(int) (proto.Message, error) {
			return answered(r.topics.ListConsumers(ctx, &parleyv1.ListConsumersRequest{Topic: "held", Group: "g", PageSize: 1000}))
		}},
		{name: "Extend, 10,000 deliveries", n: 5, call: func(int) (proto.Message, error) { return held.extend(nil) }},
		{name: "Extend, 1,000 tokens", n: 5, call: func(int) (proto.Message, error) { return held.extend(held.tokens[:1000]) }},
		{name: "Ack, 1,000", n: 3, call: func(int) (proto.Message, error) { return held.ack(1000) }},
		{name: "Nack, 1,000 retries", n: 3, call: func(int) (proto.Message, error) {
			return held.nack(1000, func(token string) *parleyv1.NackItem { return retried(token, time.Hour) })
		}},
		{name: "RetryJobs, 1,000 retries", n: 1, call: func(i int) (proto.Message, error) {
			return answered(r.topics.RetryJobs(ctx, &parleyv1.RetryJobsRequest{Topic: "held", Group: "g", MessageIds: held.returned[1000*i : 1000*(i+1)]}))
		}},
		{name: "Nack, 500 dead letters", n: 1, call: func(int) (proto.Message, error) { return held.nack(500, dead) }},
	}
}

// jobs returns a call that lists the jobs of the group g of a topic.
func (r *budgetRig) jobs(topic string, full bool, size int32) func(int) (proto.Message, error) {
	return func(int) (proto.Message, error) {
		return answered(r.topics.ListJobs(r.t.Context(), &parleyv1.ListJobsRequest{Topic: topic, Group: "g", PageSize: size, Full: full}))
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
		{name: "Produce, 1,000 scheduled of 2 KB to 256 partitions", n: 3, call: func(int) (proto.Message, error) { return answered(r.schedule("wide", 1000, 1900)) }},
		{name: "Leave, 256 partitions", n: 3, call: func(int) (proto.Message, error) { return idle.leave() }, prepare: func(int) error {
			idle = r.consumer("wide", groups[9], 1)
			if _, err := idle.read(1); err != nil {
				return err
			}
			return lastErr(idle.ack(1))
		}},
	}, r.wideBudgets()...)
}

// topic creates a topic with consumer groups, whose deliveries no timeout ends.
func (r *budgetRig) topic(name string, partitions int32, groups ...string) {
	r.t.Helper()
	ctx := r.t.Context()
	r.must(callErr(r.topics.CreateTopic(ctx, &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: name, Partitions: partitions}})))
	for _, g := range groups {
		r.must(callErr(r.topics.CreateGroup(ctx, &parleyv1.CreateGroupRequest{Topic: name, Group: slowGroup(g)})))
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
func (r *budgetRig) schedule(topic string, n, size int) (*parleyv1.ProduceResponse, error) {
	req := &parleyv1.ProduceRequest{Topic: topic, Messages: queueBatch(n, size, true)}
	for _, m := range req.GetMessages() {
		m.Due = later(time.Hour).GetDue()
	}
	res, err := r.queues.Produce(r.t.Context(), req)
	for _, result := range res.GetResults() {
		if e := result.GetError(); e != nil {
			return nil, errors.New(e.String())
		}
	}
	return res, err
}

// many returns a request for so many deliveries at once.
func many(topic, group string, n int32) *parleyv1.ConsumeRequest {
	return &parleyv1.ConsumeRequest{
		Topics: []string{topic}, Group: group, Consumer: "c", Concurrency: n, MaxInFlight: min(2*n, 10_000), MaxInFlightBytes: 64 << 20, ReportsBegun: true,
	}
}

// consume joins a group, reads n deliveries and ends the stream without settling them.
func (r *budgetRig) consume(topic, group string, n int) (proto.Message, error) {
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	stream, err := r.queues.Consume(ctx, many(topic, group, 10_000))
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
	type request = parleyv1.StreamingConsumeRequest
	if err := stream.Send(&request{Request: &parleyv1.StreamingConsumeRequest_Start{Start: many(topic, group, 10_000)}}); err != nil {
		return nil, err
	}
	all, acks := &parleyv1.DeliveryBatch{}, &parleyv1.AckRequest{}
	for {
		res, err := stream.Receive()
		if err != nil {
			return nil, err
		}
		switch results := res.GetResults(); {
		case results.GetRequestId() == 1:
			if err := failed(results.GetResults()); err != nil {
				return nil, err
			}
			if err := stream.Send(&request{RequestId: 2, Request: &parleyv1.StreamingConsumeRequest_Leave{Leave: &parleyv1.LeaveRequest{}}}); err != nil {
				return nil, err
			}
			continue
		case results != nil:
			return all, nil
		case res.GetConsume().GetDeliveries() == nil:
			continue
		}
		proto.Merge(all, res.GetConsume().GetDeliveries())
		for _, d := range res.GetConsume().GetDeliveries().GetDeliveries() {
			acks.Tokens = append(acks.Tokens, d.GetToken())
		}
		if len(acks.GetTokens()) == n {
			if err := stream.Send(&request{RequestId: 1, Request: &parleyv1.StreamingConsumeRequest_Ack{Ack: acks}}); err != nil {
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
