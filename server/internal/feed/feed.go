// Package feed carries every entry of every log from the store to the change stream, and from there to the cache.
//
//	store -> Feeder -> message_change_events -> Builder (redis_cache_group) -> msg_cache:<channel>
//	                                         -> Advancer (channel_group)    -> channels, members
//
// The Feeder publishes what the store holds: at once, nothing skipped, and confirmed in the store only after the stream
// has it. So an entry may be published twice, and never not at all. What it could not publish at once it publishes as
// it is later: a message that was recalled in the meantime goes out without its text.
//
// The Builder keeps each channel's newest entries in the cache, as one dense piece of the log. Only a message creates or
// renews such a piece; edits and recalls change what is there, and remove it if it misses what came before them. Since
// every step may be repeated, none of them keeps a state of its own: what dies is started again, and two of a kind at
// once only repeat each other. So no lease is needed: the nodes agree on an Owner for each bucket well enough.
//
// The Advancer moves the numbers of channels' rows, and the read cursors of those who send.
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
	// batchSize is the most entries that are published together.
	batchSize = 256
	// parallel is how many calls to the store one batch makes at a time.
	parallel = 16
	// closeWait bounds how long a stopped Feeder waits for the store to save its position.
	closeWait = 5 * time.Second
	// longCall is how long a call must have gone on for its failure to count as a first one.
	longCall = 10 * time.Second
)

// Publisher is the change stream's entrance.
type Publisher interface {
	// Publish stores events, in their order, and returns once all are stored. After an error each may be stored or not.
	// Repeats must do no harm.
	Publish(ctx context.Context, events []message.Event) error
}

// Source is the change stream's exit for the cache's builder.
type Source interface {
	// Consume calls fn with the bucket's events, in the order in which they were published, until ctx ends. A batch is
	// confirmed after fn succeeded, and comes again if it fails.
	Consume(ctx context.Context, bucket int, fn func(context.Context, []message.Event) error) error
}

// Log is what the Feeder needs of the store; message.Store says what each method promises.
type Log interface {
	Identity() message.Identity
	OpenFeed(ctx context.Context, bucket int) (message.Feed, error)
	Apply(ctx context.Context, change *message.Entry) error
	Messages(ctx context.Context, channelID string, seqs []int64) ([]message.Entry, error)
	Head(ctx context.Context, channelID string) (message.Head, error)
	NewEpoch(ctx context.Context) (string, error)
}

// History is what the change stream remembers.
type History interface {
	// LastPublished gives a bucket's newest event; ok is false if the stream holds none.
	LastPublished(ctx context.Context, bucket int) (e message.Event, ok bool, err error)
}

// Reader is what the Builder needs of the store; message.Store says what each method promises.
type Reader interface {
	Identity() message.Identity
	Head(ctx context.Context, channelID string) (message.Head, error)
	Entries(ctx context.Context, channelID string, r message.Range) ([]message.Entry, error)
}

// eachBucket starts run for each of n buckets.
func eachBucket(ctx context.Context, life *lifecycle.Base, n int, run func(ctx context.Context, bucket int)) error {
	return life.Start(ctx, func(_ context.Context, r *lifecycle.Run) error {
		for bucket := range n {
			r.Go(func(ctx context.Context) { run(ctx, bucket) })
		}
		return nil
	})
}

// retry calls fn until it succeeds or ctx ends, which is the only error that it returns. It waits 20 ms after the first
// failure, then twice as long each time, up to 5 s, each with jitter; after a call that went on for 10 s, 20 ms again.
func retry(ctx context.Context, log *slog.Logger, what string, fn func() error) error {
	waits := newBackoff()
	for {
		began := time.Now()
		err := fn()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		if time.Since(began) > longCall {
			waits.Reset()
		}
		wait := waits.NextBackOff()
		log.WarnContext(ctx, "a step failed and will be repeated", "step", what, "wait", wait, "error", err)
		if err := sleep(ctx, wait); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
}

func newBackoff() *backoff.ExponentialBackOff {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.Multiplier, waits.MaxInterval = 20*time.Millisecond, 2, 5*time.Second
	waits.Reset()
	return waits
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// span records that an event went through a step, as part of the trace of the request that appended it. Only requests
// that were sampled have left a trace context in their entries.
func span(ctx context.Context, tracer trace.Tracer, name string, kind trace.SpanKind, began time.Time, traceparent string) {
	if traceparent == "" {
		return
	}
	remote := propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
	_, s := tracer.Start(remote, name, trace.WithSpanKind(kind), trace.WithTimestamp(began))
	s.End()
}
