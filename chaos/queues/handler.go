package queues

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/parleyhq/parley/chaos"
	"github.com/parleyhq/parley/internal/rig"
	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// sdkPatience is the timeout of one attempt of the SDK. Requests on a stream may take four times as
// long.
const sdkPatience = 1500 * time.Millisecond

// handle consumes through the SDK's Worker until ctx ends. A tap records the calls on the wire, and
// the handler its results.
func handle(ctx context.Context, c Consumer, out sink) error {
	c.setDefaults()
	client, err := parley.New(strings.Join(c.Addrs, ","), c.credentials(), parley.WithAttemptTimeout(sdkPatience),
		parley.WithInterceptors(newTap(c, out)))
	if err != nil {
		return err
	}
	defer client.Close()
	h := &handler{consumer: c, out: out, rng: chaos.Source(c.Seed, c.Name)}
	opts := []queue.WorkerOption{
		queue.WithConsumerName(c.Name), queue.WithMaxInFlight(c.InFlight, maxBytes), queue.WithAckTimeout(c.AckTimeout),
		queue.WithConcurrency(sdkConcurrency), queue.WithStopTimeout(callLimit),
	}
	if !c.Bidi {
		opts = append(opts, queue.WithUnaryCalls())
	}
	if err := queue.NewWorker(client, c.Group, opts...).Handle(c.Topic, h.handle).Run(ctx); err != nil {
		out.write(line{Failure: &Failure{Who: Working, Addr: c.Name, Begin: now(), End: now(), Err: err.Error()}})
	}
	return nil
}

// lethalAfter is how long a handler has a lethal message before it dies, so that the server knows
// that it has begun it.
const lethalAfter = 100 * time.Millisecond

// credentials returns the option with the consumer's tokens.
func (c *Consumer) credentials() parley.Option {
	if len(c.Secret) == 0 {
		return parley.WithToken(c.Token)
	}
	return parley.WithTokenSource(func(context.Context) (string, error) {
		return rig.Token(c.Secret, "chaos", c.TokenTTL, nil)
	})
}

// sdkConcurrency exceeds the number of keys of a partition, so that only messages of one key wait
// for each other.
const sdkConcurrency = 24

// handler settles messages according to their marks, and records the results.
type handler struct {
	consumer Consumer
	out      sink

	mu  sync.Mutex // guards rng
	rng *rand.Rand
}

// handle is the Worker's queue.Handler. It works for a while, records its result and returns it.
func (h *handler) handle(ctx context.Context, d *queue.Delivery) error {
	c, begin, mark := &h.consumer, now(), markOf(d.Payload)
	if kindOf(mark) == lethal {
		chaos.Sleep(ctx, lethalAfter)
		c.die(lethal, d.Attempt)
	}
	h.mu.Lock()
	v := decide(h.rng, mark, d.Attempt)
	work := time.Duration(h.rng.Int64N(int64(c.Work) + 1))
	panics := v.kind == Nack && v.delayMS == none && !v.dead() && h.rng.IntN(4) == 0
	h.mu.Unlock()
	if kindOf(mark) == long {
		work = c.AckTimeout * 4 / 3
	}
	chaos.Sleep(ctx, work)
	h.out.write(line{Handled: &Handled{
		Begin: begin, End: now(), Client: c.Name, Topic: d.Topic, Group: d.Group, MessageID: d.MessageID, Partition: d.Partition, Key: d.Key,
		Mark: mark, Attempt: d.Attempt, Kind: v.kind, DelayMS: v.delayMS, Dead: v.dead(),
	}})
	if panics {
		panic(nackReason) //nolint:forbidigo // as a program's handler may
	}
	return v.err()
}

// err returns the error with which the handler requests a verdict, or nil for an ack.
func (v verdict) err() error {
	if v.kind == Ack {
		return nil
	}
	if v.kind == Release {
		return fmt.Errorf("%s: %w", nackReason, queue.ErrRelease)
	}
	err := errors.New(nackReason)
	switch {
	case v.bury:
		return queue.DeadLetter(err)
	case v.code != "":
		return queue.Code(err, v.code)
	case v.delayMS != none:
		return queue.RetryAfter(err, time.Duration(v.delayMS)*time.Millisecond)
	default:
		return err
	}
}
