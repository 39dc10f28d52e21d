package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

const (
	// delayBatch is the number of messages that a call schedules. delayPerCall is roughly its worst
	// duration.
	delayBatch   = 500
	delayPerCall = 250 * time.Millisecond
)

// dueFrom returns the due time of the first of n messages that are scheduled from now on. It is
// late enough that all n are scheduled before it.
func dueFrom(n int) time.Time {
	return time.Now().Add(time.Second + time.Duration(n/delayBatch)*delayPerCall).Truncate(time.Millisecond)
}

// dueOf returns the due time of message i.
func dueOf(first time.Time, i int) time.Time {
	return first.Add(time.Duration(i) * time.Second / queuePace)
}

// dueLimit returns the maximum time from the end of scheduling until all n messages have arrived.
func dueLimit(n int) time.Duration { return time.Duration(n)*time.Second/queuePace + startTimeout }

// schedule schedules n messages, each with a due time of its own that its payload contains.
func (s *queueServer) schedule(ctx context.Context, topic string, n, size int) error {
	client, err := parley.New(s.Addrs[0], parley.WithToken(s.Token))
	if err != nil {
		return err
	}
	defer client.Close()
	p := queue.NewProducer(client, topic)
	first := dueFrom(n)
	for from := 0; from < n; from += delayBatch {
		var batch []queue.Message
		for i := from; i < min(from+delayBatch, n); i++ {
			at := dueOf(first, i)
			// Without keys the messages of a call go to one partition.
			batch = append(batch, queue.Message{Key: strconv.Itoa(i), Payload: []byte(content(at, size)), DeliverAt: at})
		}
		if err := produceAll(ctx, p, batch); err != nil {
			return err
		}
	}
	if time.Now().After(first) {
		return errors.New("the first message was due before the last was scheduled")
	}
	return nil
}

// delayed measures a round of scheduled messages through Parley.
func (s *queueServer) delayed(ctx context.Context, env *Env) (out delays, err error) {
	topics, remove, err := s.topics(ctx, 1)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	var watch stopwatch
	c, err := s.consume(ctx, topics, func(_ context.Context, d *queue.Delivery) error {
		watch.stop(d.Payload)
		return nil
	})
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := s.schedule(ctx, topics[0], env.Delayed, env.QueuePayload); err != nil {
		return out, err
	}
	if err := watch.await(ctx, env.Delayed, dueLimit(env.Delayed)); err != nil {
		return out, err
	}
	return watch.delays()
}

// floorQueueDelayed is the minimal implementation of delays: a sorted set, from which a loop moves
// due messages to Redis streams. After the common arguments it takes the number of messages. It
// outputs one delays.
func floorQueueDelayed(ctx context.Context, args []string, out *json.Encoder) error {
	q, err := openRawQueue(ctx, args)
	if err != nil {
		return err
	}
	defer q.stop()
	n, err := strconv.Atoi(args[len(args)-1])
	if err != nil {
		return err
	}
	first := dueFrom(n)
	for from := 0; from < n; from += delayBatch {
		var due []redis.Z
		for i := from; i < min(from+delayBatch, n); i++ {
			at := dueOf(first, i)
			due = append(due, redis.Z{Score: float64(at.UnixMilli()), Member: content(at, q.payload) + strconv.Itoa(i)})
		}
		if err := q.client.ZAdd(ctx, "due", due...).Err(); err != nil {
			return err
		}
	}
	var watch stopwatch
	err = q.consuming(ctx, &watch, func(ctx context.Context) error {
		for moved := 0; moved < n; {
			one, err := q.move(ctx)
			if err != nil {
				return err
			}
			moved += one
		}
		return watch.await(ctx, n, startTimeout)
	})
	if err != nil {
		return fmt.Errorf("raw Redis: %w", err)
	}
	result, err := watch.delays()
	if err != nil {
		return err
	}
	return out.Encode(result)
}

// move moves up to queueBatch due messages to the Redis streams and returns how many. If none is
// due it sleeps until the next one is, and returns 0.
func (q *rawQueue) move(ctx context.Context) (int, error) {
	due, err := q.client.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: "due", ByScore: true, Start: 0, Stop: time.Now().UnixMilli(), Count: queueBatch,
	}).Result()
	if err != nil {
		return 0, err
	}
	if len(due) == 0 {
		next, err := q.client.ZRangeWithScores(ctx, "due", 0, 0).Result()
		if err != nil || len(next) == 0 {
			return 0, errors.Join(err, errors.New("no message is due"))
		}
		pause(ctx, time.Until(time.UnixMilli(int64(next[0].Score))))
		return 0, context.Cause(ctx)
	}
	pipeline := q.client.TxPipeline()
	members := make([]any, len(due))
	for i, payload := range due {
		members[i] = payload
		pipeline.XAdd(ctx, &redis.XAddArgs{Stream: q.streams[i%len(q.streams)], Values: []any{"d", payload}})
	}
	pipeline.ZRem(ctx, "due", members...)
	_, err = pipeline.Exec(ctx)
	return len(due), err
}

// measureQueueDelay measures how late scheduled messages are delivered.
func measureQueueDelay(ctx context.Context, env *Env) (figures []Figure, err error) {
	s, err := env.startQueues(ctx, appendOnly)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var values, floors []delays
	err = env.Each(ctx, func(ctx context.Context) error {
		one, err := s.delayed(ctx, env)
		values = append(values, one)
		return err
	}, func(ctx context.Context) error {
		one, err := floorOf[delays](ctx, env, "queue-delayed", appendOnly, env.Duration, strconv.Itoa(env.Delayed))
		floors = append(floors, one)
		return err
	})
	if err != nil {
		return nil, err
	}
	setup := env.queueSetup(map[string]string{
		"redis": appendOnly.text(), "batches": "", "duration": "",
		"due": fmt.Sprintf("%d messages, %d a second, each at a millisecond of its own", env.Delayed, queuePace),
	})
	floor := "raw go-redis, a sorted set, one loop that moves what is due to streams"
	figure := func(id, name string, number func(delays) float64) Figure {
		return Figure{ID: "queue-delay/" + id, Name: name, Unit: "ms", Setup: setup}.
			WithFloor(floor, each(values, number), each(floors, number))
	}
	early := Figure{
		ID: "queue-delay/early", Name: "delayed messages that came early", Unit: "messages", Setup: setup,
		Value: Summarize(each(values, func(d delays) float64 { return float64(d.Early) })),
	}
	return []Figure{
		figure("p99", "delayed messages: from due to the handler, p99", delays.tail).withMostBar(20),
		early.WithBar("none, in any round", early.Value.Max == 0),
		figure("p50", "delayed messages: from due to the handler, p50", delays.middle),
		figure("max", "delayed messages: from due to the handler, longest", delays.worst),
	}, nil
}
