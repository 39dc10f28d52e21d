package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/message"
)

// FeederConfig configures a Feeder.
type FeederConfig struct {
	Store     FeederStore
	Publisher Publisher
	// History may be nil. The Feeder then does not detect a store that was restored without a new
	// epoch.
	History History
	// Owner decides which shards are this node's; nil means all.
	Owner Owner
	// Metrics may be nil.
	Metrics *Metrics
	// Tracer may be nil.
	Tracer trace.Tracer
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

// Feeder publishes the entries of the shards that this node owns to the change stream. It retries
// every failure forever, in order, and skips nothing.
type Feeder struct {
	life      lifecycle.Base
	store     FeederStore
	publisher Publisher
	history   History
	owner     Owner
	metrics   *Metrics
	tracer    trace.Tracer
	logger    *slog.Logger
	// recent holds the last published entries, by shard.
	recent []*recent
}

// NewFeeder returns a Feeder. Start starts it.
func NewFeeder(config FeederConfig) (*Feeder, error) {
	metrics, err := orNoMetrics(config.Metrics)
	if err != nil {
		return nil, err
	}
	f := &Feeder{
		store: config.Store, publisher: config.Publisher, history: config.History, owner: config.Owner, metrics: metrics,
		tracer: orNoTracer(config.Tracer), logger: cmp.Or(config.Logger, slog.Default()),
	}
	for range config.Store.Identity().Shards {
		f.recent = append(f.recent, newRecent())
	}
	return f, nil
}

func orNoMetrics(m *Metrics) (*Metrics, error) {
	if m != nil {
		return m, nil
	}
	return NewMetrics(nil)
}

func orNoTracer(t trace.Tracer) trace.Tracer {
	if t != nil {
		return t
	}
	return noop.Tracer{}
}

// Start starts to publish the entries of the shards that this node owns, and returns at once. See
// lifecycle.Service.
func (f *Feeder) Start(ctx context.Context) error {
	return eachShard(ctx, &f.life, f.store.Identity().Shards, f.run)
}

// Stop stops publishing and waits until the store has saved how far each shard is published, for
// at most 5 s.
func (f *Feeder) Stop(ctx context.Context) error { return f.life.Stop(ctx) }

// run publishes the entries of one shard, while this node owns it, until ctx ends.
func (f *Feeder) run(ctx context.Context, shard int) {
	logger := f.logger.With("shard", shard)
	whileOwned(ctx, f.owner, shard, func(ctx context.Context) {
		defer f.metrics.unpublished.set(shard, time.Time{})
		var again sync.WaitGroup
		defer again.Wait()
		again.Go(func() { f.republishLoop(ctx, logger, f.recent[shard]) })
		// The error can only be that ctx has ended.
		_ = retry(ctx, logger, "feed", func() error { return f.feed(ctx, logger, shard) })
	})
}

// checkEpoch replaces the epoch, and fails with errEpochReplaced, if a log ends before its last
// published entry. The store was then put back to an earlier state without a new epoch. Clients
// must discard their copies of such logs, and only a new epoch tells them. checkEpoch checks one
// log of the shard, that of the event published last.
func (f *Feeder) checkEpoch(ctx context.Context, logger *slog.Logger, shard int) error {
	if f.history == nil {
		return nil
	}
	last, ok, err := f.history.LastPublished(ctx, shard)
	if err != nil {
		return fmt.Errorf("read the last published event: %w", err)
	}
	if !ok || last.Epoch != f.store.Identity().Epoch {
		return nil
	}
	head, err := f.store.Head(ctx, last.Message.ChannelID)
	if err != nil {
		return fmt.Errorf("read the head of its log: %w", err)
	}
	if head.Seq >= last.Seq {
		return nil
	}
	epoch, err := f.store.NewEpoch(ctx)
	if err != nil {
		return fmt.Errorf("replace the epoch: %w", err)
	}
	logger.ErrorContext(ctx, "store rolled back, epoch replaced, nodes restart",
		"channel_id", last.Message.ChannelID, "published", last.Seq, "head", head.Seq, "epoch", epoch)
	return errEpochReplaced
}

var errEpochReplaced = errors.New("the epoch was replaced")

// feed opens the store's feed of a shard and publishes its entries until a step fails. The
// returned error is never nil.
func (f *Feeder) feed(ctx context.Context, logger *slog.Logger, shard int) error {
	if err := f.checkEpoch(ctx, logger, shard); err != nil {
		f.measureBacklog(ctx, shard)
		return err
	}
	source, err := f.store.OpenFeed(ctx, shard)
	if err != nil {
		return fmt.Errorf("open the feed: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
		defer cancel()
		if err := source.Close(ctx); err != nil {
			logger.WarnContext(ctx, "saving the feed position failed, events will be published again", "error", err)
		}
	}()
	for {
		entries, err := source.Next(ctx, batchSize)
		if err != nil {
			return fmt.Errorf("read the feed: %w", err)
		}
		if len(entries) > 0 {
			f.metrics.unpublished.set(shard, entries[0].MsgTime)
		}
		if err := f.publish(ctx, logger, newBatch(entries)); err != nil {
			return err
		}
		f.metrics.unpublished.set(shard, time.Time{})
		f.recent[shard].add(entries)
		// Confirm only now: an entry that is confirmed before it is published is lost if the
		// process dies.
		if err := source.Published(ctx); err != nil {
			return fmt.Errorf("confirm to the feed: %w", err)
		}
	}
}

// measureBacklog sets the metric of the oldest unpublished entry of a shard that cannot be
// published yet, because the epoch cannot be checked while the stream of events is away. It
// publishes nothing.
func (f *Feeder) measureBacklog(ctx context.Context, shard int) {
	source, err := f.store.OpenFeed(ctx, shard)
	if err != nil {
		return
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
		defer cancel()
		_ = source.Close(ctx) // there is no new position to save
	}()
	ctx, cancel := context.WithTimeout(ctx, backlogWait)
	defer cancel()
	// Next waits for an entry. If none comes, the metric stays as it is.
	if entries, err := source.Next(ctx, 1); err == nil && len(entries) > 0 {
		f.metrics.unpublished.set(shard, entries[0].MsgTime)
	}
}

// publish applies the edits and recalls of a batch to the store and publishes its events, retrying
// until both succeed. It fails only if ctx ends.
func (f *Feeder) publish(ctx context.Context, logger *slog.Logger, b *batch) error {
	began := time.Now()
	err := retry(ctx, logger, "apply changes", func() error { return b.apply(ctx, f.store) })
	if err != nil {
		return err
	}
	events, err := f.send(ctx, logger, b)
	if err != nil {
		return err
	}
	f.metrics.Published.Add(ctx, int64(len(events)))
	now := time.Now()
	for i := range events {
		f.metrics.PublishLag.Record(ctx, max(0, now.Sub(events[i].Time).Seconds()))
		span(ctx, f.tracer, "message_change_events publish", trace.SpanKindProducer, began, events[i].Traceparent)
	}
	return nil
}

// send publishes a batch in its current state, retrying until it succeeds. It returns the published
// events, and fails only if ctx ends.
func (f *Feeder) send(ctx context.Context, logger *slog.Logger, b *batch) (events []message.Event, err error) {
	err = retry(ctx, logger, "publish", func() error {
		// Refresh before every attempt: a message may have been recalled since the last one.
		if err := b.refresh(ctx, f.store); err != nil {
			return err
		}
		events = b.events(f.store.Identity().Epoch)
		if err := f.publisher.Publish(ctx, events); err != nil {
			f.metrics.PublishFailures.Add(ctx, 1)
			return err
		}
		return nil
	})
	return events, err
}
