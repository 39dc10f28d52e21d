package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	queue "github.com/parleyhq/parley/sdk/go/queue"
)

var (
	errTwice  = errors.New("this one fails twice")
	errPoison = errors.New("poison")
)

type workCommand struct {
	Name        string        `help:"The worker's name, shown by 'parley queue partitions'." placeholder:"NAME"`
	Concurrency int           `default:"8" help:"Maximum number of lines in progress."`
	AckTimeout  time.Duration `default:"30s" help:"If this worker sends nothing for this long, its lines are delivered to other workers."`
	Takes       time.Duration `help:"How long each line takes, as if the work were harder." placeholder:"TIME"`
	Record      bool          `help:"Record in the index's Redis when each delivery begins and ends."`
	Fixed       bool          `help:"Index poison instead of failing."`
}

// Run handles messages until it is interrupted. It then finishes the messages that it has begun and
// releases the other ones.
func (c *workCommand) Run(a *app) error {
	if err := a.prepare(); err != nil {
		return err
	}
	x := newIndex(a.redis, a.flags.Topic, indexers)
	handler := c.failing(x)(c.slow(func(ctx context.Context, d *queue.Delivery) error {
		return x.add(ctx, d, wordsOf(string(d.Payload)))
	}))
	if c.Record {
		// The outermost, so that a delivery is recorded for as long as it takes.
		handler = c.recording(x)(handler)
	}
	options := []queue.WorkerOption{queue.WithConcurrency(c.Concurrency), queue.WithAckTimeout(c.AckTimeout)}
	if c.Name != "" {
		options = append(options, queue.WithConsumerName(c.Name))
	}
	worker := queue.NewWorker(a.client, indexers, options...).Handle(a.flags.Topic, handler)
	err := worker.Run(a.ctx)
	s := worker.Stats()
	a.printf("%d lines delivered: %d indexed, %d failed, %d released, %d lost", s.Delivered, s.Acked, s.Nacked, s.Released, s.Lost)
	return err
}

// failing returns a middleware that fails the jobs that have a fault. It counts their failures in
// the index's Redis. The number of attempts would be wrong, because a worker that dies with a job
// uses up an attempt without a failure.
func (c *workCommand) failing(x *index) queue.Middleware {
	return func(next queue.Handler) queue.Handler {
		return func(ctx context.Context, d *queue.Delivery) error {
			line := d.Headers[lineHeader]
			var failure error
			switch fault(d.Headers[faultHeader]) {
			case twice:
				failures, err := x.redis.HGet(ctx, x.failures(), line).Int()
				if err != nil && !errors.Is(err, redis.Nil) {
					return err
				}
				if failures < 2 {
					failure = errTwice
				}
			case poison:
				if !c.Fixed {
					failure = errPoison
				}
			}
			if failure == nil {
				return next(ctx, d)
			}
			if err := x.redis.HIncrBy(ctx, x.failures(), line, 1).Err(); err != nil {
				return fmt.Errorf("count a failure: %w", err)
			}
			return failure
		}
	}
}

// recording returns a middleware that appends two entries per delivery to a list in the index's
// Redis: "begin <ms> <worker> <message> <attempt>" before the handler is called, and the same with
// "ok" or "failed" after it has returned.
func (c *workCommand) recording(x *index) queue.Middleware {
	worker := fmt.Sprintf("%s/%d", c.Name, os.Getpid())
	return func(next queue.Handler) queue.Handler {
		return func(ctx context.Context, d *queue.Delivery) error {
			record := func(what string) error {
				entry := fmt.Sprintf("%s %d %s %s %d", what, time.Now().UnixMilli(), worker, d.MessageID, d.Attempt)
				return x.redis.RPush(context.WithoutCancel(ctx), x.deliveries(), entry).Err()
			}
			if err := record("begin"); err != nil {
				return err
			}
			err := next(ctx, d)
			if err != nil {
				return errors.Join(err, record("failed"))
			}
			return record("ok")
		}
	}
}

// slow is a middleware that makes every job take its own time, or else that of the flag: half of it
// before the line is indexed, and half after, so that workers die in both places.
func (c *workCommand) slow(next queue.Handler) queue.Handler {
	return func(ctx context.Context, d *queue.Delivery) error {
		takes := c.Takes
		if own := d.Headers[takesHeader]; own != "" {
			var err error
			if takes, err = time.ParseDuration(own); err != nil {
				return err
			}
		}
		if err := pause(ctx, takes/2); err != nil {
			return err
		}
		if err := next(ctx, d); err != nil {
			return err
		}
		return pause(ctx, takes/2)
	}
}

func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
