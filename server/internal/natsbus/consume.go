package natsbus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/parleyhq/parley/server/internal/message"
)

const (
	// CacheGroup is the consumer group that builds the cache.
	CacheGroup = "redis_cache_group"
	// ChannelGroup is the consumer group that moves the channels' rows forward.
	ChannelGroup = "channel_group"
)

// pullWait is how long one request to JetStream waits for events.
const pullWait = 5 * time.Second

// Group is a durable consumer group of the event stream: one consumer per bucket, named after group and bucket. Groups
// are independent of each other: each gets every event. Safe for concurrent use.
type Group struct {
	bus   *Bus
	name  string
	batch int
}

// Group gives a consumer group by its name, a word of A-Z a-z 0-9 _ -, which decides what was consumed before. Its
// functions get up to batch events at a time; 256 if 0. Nothing is made in NATS before Consume.
func (b *Bus) Group(name string, batch int) *Group {
	return &Group{bus: b, name: name, batch: cmp.Or(batch, 256)}
}

// Consume has fn called with a bucket's events, up to a batch at a time, in the order in which they were published, until
// ctx ends, which is the only error that it returns. Each event comes at least once: when fn fails, it gets the same
// batch again, after a wait of 50 ms and then longer ones up to 5 s; when the process or NATS dies, the events come again
// after Config.AckWait, perhaps later than newer ones; when ctx ends, what was not handled comes again at once, but for
// what was on its way, which comes after Config.AckWait. A consumer or a stream that is gone is made again.
func (g *Group) Consume(ctx context.Context, bucket int, fn func(context.Context, []message.Event) error) error {
	waits := newBackoff()
	for {
		joined := g.bus.nextJoin()
		err := g.consume(ctx, bucket, fn, waits.Reset)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			continue // NATS is back
		}
		g.bus.log.WarnContext(ctx, "consuming was interrupted", "consumer", g.consumerName(bucket), "error", err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-joined:
		case <-time.After(waits.NextBackOff()):
		}
	}
}

// consume makes stream and consumer and pulls until something fails, or a reconnect leaves it without its request.
func (g *Group) consume(
	ctx context.Context, bucket int, fn func(context.Context, []message.Event) error, worked func(),
) error {
	joined := g.bus.nextJoin()
	if err := g.bus.ensureStream(ctx); err != nil {
		return err
	}
	consumer, err := g.ensureConsumer(ctx, bucket)
	if err != nil {
		return err
	}
	for {
		pullCtx, cancel := context.WithTimeout(ctx, pullWait)
		var watching sync.WaitGroup
		watching.Go(func() {
			select {
			case <-joined: // the server that held the request is gone, or has forgotten it
				cancel()
			case <-pullCtx.Done():
			}
		})
		err := g.pull(pullCtx, ctx, consumer, fn, worked)
		cancel()
		watching.Wait()
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		select {
		case <-joined:
			return nil
		default:
		}
	}
}

// pull asks for a batch of events and hands on what has arrived whenever something has.
func (g *Group) pull(
	pullCtx, ctx context.Context, consumer jetstream.Consumer, fn func(context.Context, []message.Event) error,
	worked func(),
) error {
	pulled, err := consumer.Fetch(g.batch, jetstream.FetchContext(pullCtx))
	if err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	msgs := pulled.Messages()
	for {
		first, ok := <-msgs
		if !ok {
			break
		}
		batch := []jetstream.Msg{first}
	more:
		for {
			select {
			case msg, ok := <-msgs:
				if !ok {
					break more
				}
				batch = append(batch, msg)
			default:
				break more
			}
		}
		if err := g.handle(ctx, batch, fn); err != nil {
			g.giveBack(ctx, batch, msgs)
			return err
		}
		worked()
	}
	if err := pulled.Error(); err != nil && !errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, context.Canceled) {
		return fmt.Errorf("pull: %w", err)
	}
	return nil
}

// giveBack has JetStream deliver at once, to whoever takes the bucket over, what was pulled and not handled, instead of
// after AckWait. The pull's context must have ended, or end soon.
func (g *Group) giveBack(ctx context.Context, batch []jetstream.Msg, msgs <-chan jetstream.Msg) {
	if ctx.Err() == nil {
		return // this very consumer goes on, and what was acknowledged of the batch must not come again
	}
	for msg := range msgs { // it is closed once nothing is sent to this pull any more
		batch = append(batch, msg)
	}
	for _, msg := range batch {
		// Without the delay the pull that ends would catch the first of them again, behind the others.
		if err := msg.NakWithDelay(100 * time.Millisecond); err != nil {
			g.bus.log.DebugContext(ctx, "give back an event", "error", err)
			return
		}
	}
}

// handle gives a batch to fn until it succeeds, and confirms it.
func (g *Group) handle(ctx context.Context, batch []jetstream.Msg, fn func(context.Context, []message.Event) error) error {
	events := make([]message.Event, 0, len(batch))
	for _, msg := range batch {
		e, err := decode(msg.Subject(), msg.Data())
		if err != nil {
			// It would be no better the next time.
			g.bus.log.ErrorContext(ctx, "dropped an event that can't be read", "error", err)
			continue
		}
		events = append(events, e)
	}
	stop := g.keepInProgress(ctx, batch)
	defer stop()
	waits := newBackoff()
	for len(events) > 0 {
		err := fn(ctx, events)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		wait := waits.NextBackOff()
		g.bus.log.WarnContext(ctx, "events will be handled again", "events", len(events), "wait", wait, "error", err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
	for _, msg := range batch {
		if err := msg.Ack(); err != nil {
			return fmt.Errorf("acknowledge: %w", err) // it comes again, and changes nothing
		}
	}
	return nil
}

// keepInProgress asks JetStream for more time for a batch until stop is called.
func (g *Group) keepInProgress(ctx context.Context, batch []jetstream.Msg) (stop func()) {
	done := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		tick := time.NewTicker(g.bus.config.AckWait / 3)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			for _, msg := range batch {
				if err := msg.InProgress(); err != nil {
					g.bus.log.DebugContext(ctx, "ask for more time", "error", err)
					break
				}
			}
		}
	})
	return func() { close(done); asking.Wait() }
}

// newBackoff waits 50 ms at first, then twice as long each time, up to 5 s, each with jitter.
func newBackoff() *backoff.ExponentialBackOff {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.Multiplier, waits.MaxInterval = 50*time.Millisecond, 2, 5*time.Second
	waits.Reset()
	return waits
}
