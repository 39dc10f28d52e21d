package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

const (
	// shareWorkers is the number of workers in the figure about many workers on one partition.
	shareWorkers = 24
	// shareHandlers is the number of handlers in the figure about a slow key.
	shareHandlers = 16
	// shareTime is the time that a handler takes.
	shareTime = 10 * time.Millisecond
	slowKey   = "slow"
)

// sharing is the load of the area queue-share: one topic with handlers that wait.
type sharing struct {
	partitions        int32
	workers, handlers int
	// slow has one key whose first message is not done before the end.
	slow bool
}

// share runs the load once, and returns the messages that were handled per second.
func (s *queueServer) share(ctx context.Context, env *Env, load sharing) (rate float64, err error) {
	names, remove, err := s.topicsOf(ctx, 1, load.partitions)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	topic := names[0]
	ending := make(chan struct{})
	blocked := make(chan struct{}, 1)
	var handled atomic.Int64
	handle := func(ctx context.Context, d *queue.Delivery) error {
		if d.Key == slowKey {
			blocked <- struct{}{}
			select {
			case <-ending:
			case <-ctx.Done():
			}
			return nil
		}
		pause(ctx, shareTime)
		handled.Add(1)
		return nil
	}
	client, err := parley.New(s.Addrs[0], parley.WithToken(s.Token))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	p := queue.NewProducer(client, topic)
	most := int(env.Duration/shareTime) * load.workers * load.handlers // what ideal handlers do
	if load.slow {
		if err := produceAll(ctx, p, []queue.Message{{Key: slowKey, Payload: []byte(slowKey)}}); err != nil {
			return 0, err
		}
	}
	for from := 0; from < most; from += delayBatch {
		batch := make([]queue.Message, min(delayBatch, most-from))
		for i := range batch {
			batch[i] = queue.Message{Key: strconv.Itoa(from + i), Payload: make([]byte, env.QueuePayload)}
		}
		if err := produceAll(ctx, p, batch); err != nil {
			return 0, err
		}
	}
	topics := make([]string, load.workers) // a worker for each
	for i := range topics {
		topics[i] = topic
	}
	c, err := s.consume(ctx, topics, handle, queue.WithConcurrency(load.handlers))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	defer close(ending)
	if load.slow {
		select {
		case <-blocked:
		case <-time.After(startTimeout):
			return 0, errors.New("the slow message was not delivered")
		}
	}
	began, before := time.Now(), handled.Load()
	pause(ctx, env.Duration/2)
	return float64(handled.Load()-before) / time.Since(began).Seconds(), errors.Join(context.Cause(ctx), c.err())
}

// crashed returns the time from the SIGKILL of a worker until another one has handled all messages
// that it was handling.
func (s *queueServer) crashed(ctx context.Context, env *Env) (took time.Duration, err error) {
	topics, remove, err := s.topics(ctx, 1)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	client, err := parley.New(s.Addrs[0], parley.WithToken(s.Token))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	batch := make([]queue.Message, shareHandlers)
	for i := range batch {
		batch[i] = queue.Message{Key: strconv.Itoa(i), Payload: make([]byte, env.QueuePayload)}
	}
	if err := produceAll(ctx, queue.NewProducer(client, topics[0]), batch); err != nil {
		return 0, err
	}
	victim, err := env.StartFloor("queue-worker", s.Addrs[0], s.Token, topics[0])
	if err != nil {
		return 0, err
	}
	var all bool
	if err := victim.Read(ctx, &all); err != nil {
		_ = victim.Close() // the error above has more details
		return 0, err
	}
	var handled atomic.Int64
	c, err := s.consume(ctx, topics, func(context.Context, *queue.Delivery) error {
		handled.Add(1)
		return nil
	})
	if err != nil {
		victim.proc.kill()
		return 0, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	began := time.Now()
	victim.proc.kill()
	for limit := began.Add(startTimeout); handled.Load() < shareHandlers; pause(ctx, time.Millisecond) {
		if err := errors.Join(context.Cause(ctx), c.err()); err != nil {
			return 0, err
		}
		if time.Now().After(limit) {
			return 0, fmt.Errorf("%d of %d messages of a killed worker were handled", handled.Load(), shareHandlers)
		}
	}
	return time.Since(began), nil
}

// floorQueueWorker is no floor but a worker in a process of its own, to be killed. Its arguments
// are the base URL of a server, a token and a topic. It outputs true when all its handlers have
// begun. They do not end.
func floorQueueWorker(ctx context.Context, args []string, out *json.Encoder) error {
	if len(args) != 3 {
		return errors.New("requires the arguments address, token, topic")
	}
	client, err := parley.New(args[0], parley.WithToken(args[1]))
	if err != nil {
		return err
	}
	defer client.Close()
	var begun atomic.Int64
	w := queue.NewWorker(client, queueGroup, queue.WithConcurrency(shareHandlers), queue.WithStopTimeout(0))
	return w.Handle(args[2], func(ctx context.Context, _ *queue.Delivery) error {
		if begun.Add(1) == shareHandlers {
			if err := out.Encode(true); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return ctx.Err()
	}).Run(ctx)
}

// measureQueueShare measures how the handlers of a group share its messages, and what follows the
// crash of a worker.
func measureQueueShare(ctx context.Context, env *Env) (figures []Figure, err error) {
	s, err := env.startQueues(ctx, appendOnly)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var one, many, slow, even, crash []float64
	step := func(load sharing, into *[]float64) func(context.Context) error {
		return func(ctx context.Context) error {
			rate, err := s.share(ctx, env, load)
			*into = append(*into, rate)
			return err
		}
	}
	err = env.Each(ctx,
		step(sharing{partitions: 1, workers: shareWorkers, handlers: 1}, &one),
		step(sharing{partitions: shareWorkers, workers: shareWorkers, handlers: 1}, &many),
		step(sharing{partitions: 1, workers: 1, handlers: shareHandlers, slow: true}, &slow),
		step(sharing{partitions: 1, workers: 1, handlers: shareHandlers}, &even),
		func(ctx context.Context) error {
			took, err := s.crashed(ctx, env)
			crash = append(crash, took.Seconds())
			return err
		})
	if err != nil {
		return nil, err
	}
	setup := env.queueSetup(map[string]string{
		"redis": appendOnly.text(), "batches": "", "partitions": "", "duration": (env.Duration / 2).String(),
		"handlers": "take " + shareTime.String(),
	})
	return []Figure{
		Figure{
			ID: "queue-share/workers", Name: fmt.Sprintf("queue: %d workers with a handler each on 1 partition", shareWorkers),
			Unit: "1/s", Setup: setup,
		}.WithFloor(fmt.Sprintf("the same on %d partitions", shareWorkers), one, many),
		Figure{
			ID: "queue-share/key", Name: fmt.Sprintf("queue: 1 of %d handlers is busy with one key, on 1 partition", shareHandlers),
			Unit: "1/s", Setup: setup,
		}.WithFloor("no handler is busy", slow, even),
		{
			ID:   "queue-share/crash",
			Name: fmt.Sprintf("queue: kill -9 of a worker with %d messages in flight: until another one has handled the last", shareHandlers),
			Unit: "s", Setup: setup, Value: Summarize(crash),
			Notes: []string{"the group's resume grace is 10 s, its default: so long the worker may come back"},
		},
	}, nil
}
