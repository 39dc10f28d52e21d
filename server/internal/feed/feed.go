// Package feed carries every entry of every log from the store to the change stream, and from there
// to the cache and the channel rows.
//
//	store -> Feeder -> message_change_events -> Builder (redis_cache_group) -> msg_cache:<channel>,
//	                                                                      chat:session:<id>:messages
//	                                         -> Advancer (channel_group)    -> channels, members
//
// The Feeder publishes the entries of the store immediately and skips none. It confirms an entry in
// the store only after the stream has it, so an entry may be published twice, but is always
// published. An entry that cannot be published at once is later published in its state at that
// time: a message that was recalled in the meantime goes out without its text.
//
// The Builder keeps the newest messages of each channel in the cache, without a gap. Only a message
// creates or renews such a set; edits and recalls change its messages, and remove the set if it
// does not include the entries before them. A set that a read has missed can be built again by a
// Refill.
//
// The Advancer advances the numbers of channel rows and the read cursors of senders.
//
// Every step may be repeated, so none keeps state of its own. A service that dies is restarted, and
// two of the same kind only repeat each other's work. No lease is needed: it is enough that the
// nodes roughly agree on an Owner for each shard.
package feed

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/message"
)

const (
	// batchSize is the maximum number of entries in one call of Publisher.Publish.
	batchSize = 256
	// parallel is the maximum number of concurrent calls of the store for one batch.
	parallel = 16
	// closeWait bounds how long a stopped Feeder waits for the store to save a feed's position.
	closeWait = 5 * time.Second
	// backlogWait is how long a Feeder that cannot publish waits for an entry, whose age it measures.
	backlogWait = time.Second
	// longCall is how long a call must have lasted for retry to treat its failure as the first one,
	// with the shortest delay.
	longCall = 10 * time.Second
)

// Publisher writes events to the change stream.
type Publisher interface {
	// Publish stores events in order and returns once all are stored. After an error each event may
	// or may not be stored. Repeats must be harmless.
	Publish(ctx context.Context, events []message.Event) error
}

// Source delivers the events of the change stream to a consumer.
type Source interface {
	// Consume calls fn with batches of the shard's events, in the order in which they were
	// published, until ctx ends. A batch is confirmed after fn succeeds, and delivered again if fn
	// fails.
	Consume(ctx context.Context, shard int, fn func(context.Context, []message.Event) error) error
}

// FeederStore is the part of the store that the Feeder uses. message.Store documents the methods.
type FeederStore interface {
	Identity() message.Identity
	OpenFeed(ctx context.Context, shard int) (message.Feed, error)
	Apply(ctx context.Context, changes ...*message.Entry) error
	Messages(ctx context.Context, places []message.Place) ([]message.Entry, error)
	Head(ctx context.Context, channelID string) (message.Head, error)
	NewEpoch(ctx context.Context) (string, error)
}

// History reads past events of the change stream.
type History interface {
	// LastPublished returns the newest event of a shard. ok is false if the stream has none.
	LastPublished(ctx context.Context, shard int) (e message.Event, ok bool, err error)
}

// BuilderStore is the part of the store that the Builder uses. message.Store documents the methods.
type BuilderStore interface {
	Identity() message.Identity
	Head(ctx context.Context, channelID string) (message.Head, error)
	Entries(ctx context.Context, channelID string, r message.Range) ([]message.Entry, error)
	Pending(ctx context.Context, channelIDs ...string) ([]message.Entry, error)
	Changed(ctx context.Context, channelID string, after, before int64, limit, maxBytes int) ([]message.Entry, error)
}

// eachShard starts n goroutines that call run, one for each shard, and returns at once.
func eachShard(ctx context.Context, life *lifecycle.Base, n int, run func(ctx context.Context, shard int)) error {
	return life.Start(ctx, func(_ context.Context, r *lifecycle.Run) error {
		for shard := range n {
			r.Go(func(ctx context.Context) { run(ctx, shard) })
		}
		return nil
	})
}

// retry calls fn until it succeeds or ctx ends; it returns an error only if ctx ends. The delay is
// 20 ms after the first failure and doubles up to 5 s, with jitter. After a call of more than 10 s
// it starts at 20 ms again.
func retry(ctx context.Context, logger *slog.Logger, step string, fn func() error) error {
	waits := newBackoff()
	for {
		began := time.Now()
		err := fn()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", step, context.Cause(ctx))
		}
		if time.Since(began) > longCall {
			waits.Reset()
		}
		wait := waits.NextBackOff()
		logger.WarnContext(ctx, "step failed, retrying", "step", step, "delay", wait, "error", err)
		if err := lifecycle.Pause(ctx, wait); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
}

func newBackoff() *backoff.ExponentialBackOff {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.Multiplier, waits.MaxInterval = 20*time.Millisecond, 2, 5*time.Second
	waits.Reset()
	return waits
}

// span records a step of an event, from began until now, in the trace of the request that appended
// it. It does nothing if traceparent is empty: only sampled requests leave a trace context in their
// entries.
func span(ctx context.Context, tracer trace.Tracer, name string, kind trace.SpanKind, began time.Time, traceparent string) {
	if traceparent == "" {
		return
	}
	remote := propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
	_, s := tracer.Start(remote, name, trace.WithSpanKind(kind), trace.WithTimestamp(began))
	s.End()
}
