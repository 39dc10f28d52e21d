package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// rawQueue is the common part of the floors of queues: a redis-server of its own with streams, one
// group in each, accessed by go-redis.
type rawQueue struct {
	client   *redis.Client
	stop     func()
	streams  []string
	payload  int
	duration time.Duration
}

// openRawQueue starts a redis-server with the first arguments of every floor of queues: a
// directory, the persistence of Redis, the bytes of a payload, and the duration.
func openRawQueue(ctx context.Context, args []string) (*rawQueue, error) {
	if len(args) < 4 {
		return nil, errors.New("requires the arguments directory, persistence, bytes, duration")
	}
	payload, err1 := strconv.Atoi(args[2])
	duration, err2 := time.ParseDuration(args[3])
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(args[0], "parley-bench-floor-")
	if err != nil {
		return nil, err
	}
	client, stop, err := startRedis(ctx, dir, persistence(args[1]))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	q := &rawQueue{client: client, payload: payload, duration: duration}
	q.stop = func() {
		stop()
		_ = os.RemoveAll(dir)
	}
	for i := range queuePartitions {
		stream := "stream:" + strconv.Itoa(i)
		q.streams = append(q.streams, stream)
		if err := client.XGroupCreateMkStream(ctx, stream, queueGroup, "0").Err(); err != nil {
			q.stop()
			return nil, err
		}
	}
	return q, nil
}

// consume starts a goroutine for each Redis stream, and returns. Until ctx ends, each reads batches
// from its stream, calls handle with each payload, and then acknowledges the batch by one XACK.
func (q *rawQueue) consume(ctx context.Context, group *sync.WaitGroup, failed *rawFailure, acked *atomic.Int64, handle func(d string)) {
	for _, stream := range q.streams {
		group.Go(func() {
			for ctx.Err() == nil {
				read, err := q.client.XReadGroup(ctx, &redis.XReadGroupArgs{
					Group: queueGroup, Consumer: "bench", Streams: []string{stream, ">"}, Count: queueBatch, Block: time.Second,
				}).Result()
				if errors.Is(err, redis.Nil) {
					continue
				}
				if err != nil {
					failed.set(ctx, err)
					return
				}
				messages := read[0].Messages
				ids := make([]string, len(messages))
				for i := range messages {
					ids[i] = messages[i].ID
					d, _ := messages[i].Values["d"].(string)
					handle(d)
				}
				if err := q.client.XAck(ctx, stream, queueGroup, ids...).Err(); err != nil {
					failed.set(ctx, err)
					return
				}
				acked.Add(int64(len(ids)))
			}
		})
	}
}

// rawFailure keeps the first error, but ignores errors after the end of ctx.
type rawFailure struct{ err atomic.Pointer[error] }

func (f *rawFailure) set(ctx context.Context, err error) {
	if ctx.Err() == nil {
		f.err.CompareAndSwap(nil, &err)
	}
}

func (f *rawFailure) get() error {
	if err := f.err.Load(); err != nil {
		return *err
	}
	return nil
}

// floorQueue produces and consumes concurrently, with pipelines of queueBatch and one XACK per
// read. It outputs one queueRun.
func floorQueue(ctx context.Context, args []string, out *json.Encoder) error {
	q, err := openRawQueue(ctx, args)
	if err != nil {
		return err
	}
	defer q.stop()
	running, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	var failed rawFailure
	var produced, acked atomic.Int64
	q.consume(running, &group, &failed, &acked, func(string) {})
	payload := make([]byte, q.payload)
	for _, stream := range q.streams {
		group.Go(func() {
			for running.Err() == nil {
				if produced.Load()-acked.Load() > queueBacklog {
					pause(running, time.Millisecond)
					continue
				}
				pipeline := q.client.Pipeline()
				for range queueBatch {
					pipeline.XAdd(running, &redis.XAddArgs{Stream: stream, Values: []any{"d", payload}})
				}
				if _, err := pipeline.Exec(running); err != nil {
					failed.set(running, err)
					return
				}
				produced.Add(queueBatch)
			}
		})
	}
	run, err := q.measure(running, &acked)
	stop()
	group.Wait()
	if err := errors.Join(context.Cause(ctx), failed.get(), err); err != nil {
		return fmt.Errorf("raw Redis: %w", err)
	}
	return out.Encode(run)
}

// measure waits for the warm-up, measures the running load for q.duration, and returns the result.
func (q *rawQueue) measure(ctx context.Context, acked *atomic.Int64) (queueRun, error) {
	used := func() (queueUsed, error) {
		redis, err1 := redisCPU(ctx, q.client)
		load, err2 := ownCPU()
		return queueUsed{at: time.Now(), acked: acked.Load(), redis: redis, load: load}, errors.Join(err1, err2)
	}
	pause(ctx, queueWarm)
	before, err := used()
	if err != nil {
		return queueRun{}, err
	}
	awaitRun(ctx, q.duration, before.acked, acked.Load)
	after, err := used()
	if err != nil {
		return queueRun{}, err
	}
	return after.since(&before)
}

// add appends one message to the i-th Redis stream.
func (q *rawQueue) add(ctx context.Context, i int, payload []byte) error {
	return q.client.XAdd(ctx, &redis.XAddArgs{Stream: q.streams[i], Values: []any{"d", payload}}).Err()
}

// consuming runs do while all Redis streams are consumed. The stopwatch records the delay of each
// message.
func (q *rawQueue) consuming(ctx context.Context, watch *stopwatch, do func(ctx context.Context) error) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	var failed rawFailure
	var acked atomic.Int64
	q.consume(running, &group, &failed, &acked, func(d string) { watch.stop([]byte(d)) })
	err := do(running)
	stop()
	group.Wait()
	return errors.Join(failed.get(), err)
}
