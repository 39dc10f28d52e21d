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
	// CacheGroup is the name of the consumer group that builds the cache in Redis.
	CacheGroup = "redis_cache_group"
	// ChannelGroup is the name of the consumer group that advances the channels' rows in the store.
	ChannelGroup = "channel_group"
)

// pullWait is how long one pull request to JetStream waits for events.
const pullWait = 5 * time.Second

// Group is a durable consumer group of the event stream. It has one consumer per shard, named
// after the group and the shard. Groups are independent: each gets every event. Safe for
// concurrent use.
type Group struct {
	bus   *Bus
	name  string
	batch int
}

// Group returns the consumer group with the given name, which consists of A-Z a-z 0-9 _ -. The name
// identifies what the group has consumed before. The group's callbacks get up to batch events at a
// time; 0 means 256. Nothing is created in NATS before Consume.
func (b *Bus) Group(name string, batch int) *Group {
	return &Group{bus: b, name: name, batch: cmp.Or(batch, 256)}
}

// Consume calls fn with a shard's events, up to a batch at a time, in the order in which they were
// published. It blocks until ctx ends and returns only ctx's cause.
//
// Each event is delivered at least once:
//   - If fn fails, it gets the same batch again, after 50 ms at first and then longer, up to 5 s.
//   - If the process or NATS dies, unacknowledged events are delivered again after
//     Config.AckWait, perhaps later than newer ones.
//   - If ctx ends, pulled but unhandled events are delivered again at once. Events in flight to
//     this process are delivered again after Config.AckWait.
//
// If the stream or the consumer is missing, Consume creates it again.
func (g *Group) Consume(ctx context.Context, shard int, fn func(context.Context, []message.Event) error) error {
	waits := newBackoff()
	for {
		joined := g.bus.nextConnect()
		err := g.consume(ctx, shard, fn, waits.Reset)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			continue // NATS is back
		}
		g.bus.log.WarnContext(ctx, "consume interrupted, retrying", "consumer", g.consumerName(shard), "error", err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-joined:
		case <-time.After(waits.NextBackOff()):
		}
	}
}

// consume creates the stream and the consumer if needed and pulls until an error. It returns nil
// after a reconnect, which drops the pull request. It calls worked after each batch that fn has
// handled.
func (g *Group) consume(
	ctx context.Context, shard int, fn func(context.Context, []message.Event) error, worked func(),
) error {
	joined := g.bus.nextConnect()
	if err := g.bus.ensureStream(ctx); err != nil {
		return err
	}
	consumer, err := g.ensureConsumer(ctx, shard)
	if err != nil {
		return err
	}
	for {
		pullCtx, cancel := context.WithTimeout(ctx, pullWait)
		var watching sync.WaitGroup
		watching.Go(func() {
			select {
			case <-joined: // the server that held the pull request is gone or has forgotten it
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

// pull requests a batch of events and handles them as they arrive, until the batch is complete or
// pullCtx ends.
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
			g.nakRest(ctx, batch, msgs)
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

// nakRest makes JetStream redeliver the pulled but unhandled events at once, to whichever node
// takes the shard over, instead of after AckWait. It does so only if ctx has ended. The pull's
// context must have ended, or end soon.
func (g *Group) nakRest(ctx context.Context, batch []jetstream.Msg, msgs <-chan jetstream.Msg) {
	if ctx.Err() == nil {
		return // this consumer continues, and acknowledged events of the batch must not come again
	}
	for msg := range msgs { // closed once the server sends nothing more for this pull
		batch = append(batch, msg)
	}
	for _, msg := range batch {
		// Without the delay the ending pull would receive the first of them again, behind the
		// others.
		if err := msg.NakWithDelay(100 * time.Millisecond); err != nil {
			g.bus.log.DebugContext(ctx, "nak event failed", "error", err)
			return
		}
	}
}

// handle calls fn with a batch until it succeeds or ctx ends, and then acknowledges the batch if it
// succeeded. It drops events that can't be decoded.
func (g *Group) handle(ctx context.Context, batch []jetstream.Msg, fn func(context.Context, []message.Event) error) error {
	events := make([]message.Event, 0, len(batch))
	for _, msg := range batch {
		e, err := decode(msg.Subject(), msg.Data())
		if err != nil {
			// It would fail again the next time.
			g.bus.log.ErrorContext(ctx, "event dropped: decode failed", "error", err)
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
		g.bus.log.WarnContext(ctx, "handle events failed, retrying", "events", len(events), "wait", wait, "error", err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
	for _, msg := range batch {
		if err := msg.Ack(); err != nil {
			return fmt.Errorf("acknowledge: %w", err) // it is redelivered, which changes nothing
		}
	}
	return nil
}

// keepInProgress extends the ack deadline of a batch periodically until stop is called.
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
					g.bus.log.DebugContext(ctx, "extend ack wait failed", "error", err)
					break
				}
			}
		}
	})
	return func() { close(done); asking.Wait() }
}

// newBackoff returns a backoff that starts at 50 ms and doubles up to 5 s, with jitter.
func newBackoff() *backoff.ExponentialBackOff {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.Multiplier, waits.MaxInterval = 50*time.Millisecond, 2, 5*time.Second
	waits.Reset()
	return waits
}
