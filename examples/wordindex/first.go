package main

import (
	"context"
	"iter"
	"time"

	nextv1 "github.com/parleyhq/parley/gen/go/parley/next/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/nextqueue"
	first "github.com/parleyhq/parley/sdk/go/queue"
)

// The commands are written for the second design of the queues. This file lets them run on the
// first one too, and ends with it: the types below are then *queue.Producer, *queue.Worker and
// *queue.Admin.
type (
	producer interface {
		Produce(ctx context.Context, messages ...queue.Message) ([]queue.Result, error)
	}
	worker interface {
		Run(ctx context.Context) error
		Stats() queue.Stats
	}
	admin interface {
		CreateTopic(ctx context.Context, t *queue.Topic) (*queue.Topic, error)
		CreateGroup(ctx context.Context, topic string, g *queue.Group) (*queue.Group, error)
		Stats(ctx context.Context, topic string) (*queue.TopicStats, []*queue.PartitionStats, error)
		DeadLetters(ctx context.Context, topic, group string) iter.Seq2[*queue.DeadMessage, error]
		ReplayDeadLetters(ctx context.Context, topic string, letters queue.Selection) (replayed int64, more bool, err error)
	}
)

func newAdmin(c *parley.Client, next bool) admin { //nolint:ireturn // one of two
	if next {
		return queue.NewAdmin(c)
	}
	return firstAdmin{first.NewAdmin(c)}
}

func (a *app) newProducer() producer { //nolint:ireturn // one of two
	if a.flags.Next {
		return queue.NewProducer(a.client, a.flags.Topic)
	}
	return firstProducer{first.NewProducer(a.client, a.flags.Topic)}
}

// newWorker returns a worker of the topic. An empty name leaves its name to the SDK, and an
// ackTimeout of 0 the timeout.
func (a *app) newWorker( //nolint:ireturn // one of two
	group, name string, concurrency int, ackTimeout time.Duration, h queue.Handler,
) worker {
	if a.flags.Next {
		options := []queue.WorkerOption{queue.WithConcurrency(concurrency)}
		if name != "" {
			options = append(options, queue.WithConsumerName(name))
		}
		if ackTimeout != 0 {
			options = append(options, queue.WithAckTimeout(ackTimeout))
		}
		return queue.NewWorker(a.client, group, options...).Handle(a.flags.Topic, h)
	}
	options := []first.WorkerOption{first.WithConcurrency(concurrency)}
	if name != "" {
		options = append(options, first.WithConsumerName(name))
	}
	if ackTimeout != 0 {
		options = append(options, first.WithAckTimeout(ackTimeout))
	}
	return firstWorker{first.NewWorker(a.client, a.flags.Topic, group, func(ctx context.Context, d *first.Delivery) error {
		return h(ctx, &queue.Delivery{
			Topic: d.Topic, Group: d.Group, MessageID: d.MessageID, Partition: d.Partition, Key: d.Key, Payload: d.Payload,
			Headers: d.Headers, Attempt: d.Attempt, ProduceTime: d.ProduceTime,
		})
	}, options...)}
}

type firstWorker struct{ *first.Worker }

func (w firstWorker) Stats() queue.Stats {
	s := w.Worker.Stats()
	return queue.Stats{Delivered: s.Delivered, Acked: s.Acked, Nacked: s.Nacked, Released: s.Released, Lost: s.Lost}
}

type firstProducer struct{ *first.Producer }

// Produce stores the messages without a delay in one call, and then each other one in its own.
func (p firstProducer) Produce(ctx context.Context, messages ...queue.Message) ([]queue.Result, error) {
	results := make([]queue.Result, len(messages))
	var direct []first.Message
	var places []int
	take := func(place int, r first.Result) {
		results[place].Err = r.Err
		if r.Receipt != nil {
			results[place].Receipt = &queue.Receipt{MessageID: r.Receipt.MessageID, Duplicate: r.Receipt.Duplicate}
		}
	}
	convert := func(m *queue.Message) first.Message {
		return first.Message{Key: m.Key, Payload: m.Payload, Headers: m.Headers, IdempotencyKey: m.IdempotencyKey}
	}
	for i := range messages {
		if messages[i].Delay == 0 {
			direct, places = append(direct, convert(&messages[i])), append(places, i)
		}
	}
	stored, err := p.Producer.Produce(ctx, direct...)
	for i, r := range stored {
		take(places[i], r)
	}
	for i := range messages {
		if err != nil || messages[i].Delay == 0 {
			continue
		}
		if stored, err = p.Schedule(ctx, messages[i].Delay, convert(&messages[i])); err == nil {
			take(i, stored[0])
		}
	}
	return results, err
}

type firstAdmin struct{ *first.Admin }

// CreateTopic creates the topic with what the second design has in its groups.
func (a firstAdmin) CreateTopic(ctx context.Context, t *queue.Topic) (*queue.Topic, error) {
	_, err := a.Admin.CreateTopic(ctx, &first.Topic{
		Name: t.GetName(), Partitions: t.GetPartitions(), StrictOrder: true, IdempotencyWindow: t.GetIdempotencyWindow(),
		Retry: &first.RetryPolicy{
			MaxAttempts: retries.MaxAttempts, MinBackoff: retries.GetMinBackoff(), MaxBackoff: retries.GetMaxBackoff(),
		},
	})
	return t, err
}

// CreateGroup creates a group that reads from the beginning.
func (a firstAdmin) CreateGroup(ctx context.Context, topic string, g *queue.Group) (*queue.Group, error) {
	return g, a.Admin.CreateGroup(ctx, topic, g.GetName(), first.FromBeginning())
}

// Stats returns the total only.
func (a firstAdmin) Stats(ctx context.Context, topic string) (*queue.TopicStats, []*queue.PartitionStats, error) {
	total, _, err := a.Admin.Stats(ctx, topic)
	if err != nil {
		return nil, nil, err
	}
	stats := &queue.TopicStats{Scheduled: total.GetDelayed(), Produced: total.GetProduced()}
	for _, g := range total.GetGroups() {
		stats.Groups = append(stats.Groups, &nextv1.GroupStats{
			Group: g.GetGroup(), Waiting: g.GetUnread() + g.GetParked(), Running: g.GetPending(), Retrying: g.GetRetrying(),
			Acked: g.GetAcked(), Dead: g.GetDead(), Trimmed: g.GetTrimmed(),
			Retried: g.GetRetried(), Replayed: g.GetReplayed(),
		})
	}
	return stats, nil, nil
}

func (a firstAdmin) DeadLetters(ctx context.Context, topic, group string) iter.Seq2[*queue.DeadMessage, error] {
	return func(yield func(*queue.DeadMessage, error) bool) {
		for d, err := range a.Admin.DeadLetters(ctx, topic, group) {
			letter := &queue.DeadMessage{
				Group: d.GetGroup(), Key: d.GetKey(), Payload: d.GetPayload(), Headers: d.GetHeaders(), Reason: d.GetReason(),
			}
			if !yield(letter, err) {
				return
			}
		}
	}
}

// ReplayDeadLetters replays those of the group that indexes: nothing else is ever selected.
func (a firstAdmin) ReplayDeadLetters(ctx context.Context, topic string, _ queue.Selection) (replayed int64, more bool, err error) {
	return a.Admin.ReplayDeadLetters(ctx, topic, first.DeadLettersOf(indexers))
}
