package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

const (
	topic, group = "jobs", "workers"
	// batch is the number of messages of a call of Produce, of which there are five a second.
	batch = 10
	// consumers is the number of consumers that are there at a time.
	consumers = 3
	// remembered is how long idempotency keys and dead letters are kept.
	remembered = time.Minute
)

func (l *load) createTopic(ctx context.Context) error {
	_, err := l.admin.CreateTopic(ctx, &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{
		Name: topic, Partitions: 4, IdempotencyWindow: durationpb.New(remembered),
		Retention: &parleyv1.TopicRetention{DeadLetterMaxAge: durationpb.New(remembered)},
	}})
	if err != nil {
		return err
	}
	_, err = l.admin.CreateGroup(ctx, &parleyv1.CreateGroupRequest{Topic: topic, Group: &parleyv1.Group{Name: group}})
	return err
}

// startJobs starts a producer and the consumers.
func (l *load) startJobs(ctx context.Context) {
	run := time.Now().UnixNano()
	l.each(ctx, 200*time.Millisecond, func(ctx context.Context, i int) {
		req := &parleyv1.ProduceRequest{Topic: topic}
		for k := range batch {
			req.Messages = append(req.Messages, &parleyv1.QueueMessage{
				Key: fmt.Sprint("key-", (batch*i+k)%100), Payload: []byte(text), IdempotencyKey: fmt.Sprint(run, "-", i, "-", k),
			})
		}
		_, err := l.queues.Produce(ctx, req)
		_ = l.count(ctx, "produced batches", err)
	})
	for c := range consumers {
		l.repeat(ctx, func(ctx context.Context, i int) error {
			return l.consume(ctx, fmt.Sprint("consumer-", c), 10+(7*c+3*i)%20)
		})
	}
}

// consume consumes until it has received so many batches, and leaves.
func (l *load) consume(ctx context.Context, name string, batches int) error {
	stay, leave := context.WithCancel(ctx)
	defer leave()
	stream, err := l.queues.Consume(stay, &parleyv1.ConsumeRequest{
		Topics: []string{topic}, Group: group, Consumer: name, Concurrency: 100, MaxInFlight: 1000,
	})
	if err != nil {
		return l.count(ctx, "consumers", err)
	}
	defer func() { _ = stream.Close() }()
	id := ""
	for stream.Receive() {
		if first := stream.Msg().GetStarted(); first != nil {
			id = first.GetSessionId()
		}
		deliveries := stream.Msg().GetDeliveries().GetDeliveries()
		if len(deliveries) == 0 {
			continue
		}
		if err := l.settle(ctx, id, deliveries); err != nil {
			return err
		}
		if batches--; batches == 0 {
			_, err := l.queues.Leave(ctx, &parleyv1.LeaveRequest{SessionId: id})
			if err := l.count(ctx, "leaves", err); err != nil {
				return err
			}
		}
	}
	return l.count(ctx, "consumers", stream.Err())
}

// settle acknowledges deliveries. It returns the first attempts of one key for a retry, and those
// of another one as dead letters.
func (l *load) settle(ctx context.Context, session string, deliveries []*parleyv1.Delivery) error {
	ack := &parleyv1.AckRequest{SessionId: session}
	nack := &parleyv1.NackRequest{SessionId: session}
	for _, d := range deliveries {
		switch {
		case d.GetKey() == "key-7" && d.GetAttempt() == 1:
			retry := &parleyv1.NackItem_Retry{Retry: &parleyv1.NackRetry{Delay: durationpb.New(time.Second)}}
			nack.Items = append(nack.Items, &parleyv1.NackItem{Token: d.GetToken(), Reason: "a retry", Outcome: retry})
		case d.GetKey() == "key-8":
			dead := &parleyv1.NackItem_DeadLetter{DeadLetter: &parleyv1.NackDeadLetter{}}
			nack.Items = append(nack.Items, &parleyv1.NackItem{Token: d.GetToken(), Reason: "a dead letter", Outcome: dead})
		default:
			ack.Tokens = append(ack.Tokens, d.GetToken())
		}
	}
	if len(nack.GetItems()) > 0 {
		_, err := l.queues.Nack(ctx, nack)
		if err := l.count(ctx, "nacks", err); err != nil {
			return err
		}
	}
	if len(ack.GetTokens()) == 0 {
		return nil
	}
	_, err := l.queues.Ack(ctx, ack)
	return l.count(ctx, "acks", err)
}
