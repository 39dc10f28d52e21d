package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/message"
)

const (
	defaultKeep        = 150
	defaultLoadTimeout = 10 * time.Second
	// maxBatchRounds is how often a batch is appended to the cache, with rebuilds of missing sets
	// after each time, before it fails and is delivered again.
	maxBatchRounds = 10
	// maxRebuildRounds is how often one rebuild loads a channel's entries at most. It loads them again
	// if the log has grown meanwhile, or after ErrStaleLoad.
	maxRebuildRounds = 5
)

// BuilderConfig configures a Builder.
type BuilderConfig struct {
	Source Source
	Cache  CacheWriter
	Store  BuilderStore
	// Keep is the number of entries per channel that the cache holds; 0 means 150.
	Keep int
	// LoadTimeout is how long a rebuild of a channel's cached entries waits for the store to return
	// the entries that were published. The channel is then left uncached. 0 means 10 s.
	LoadTimeout time.Duration
	// Owner decides which buckets are this node's; nil means all.
	Owner Owner
	// Metrics may be nil.
	Metrics *Metrics
	// Tracer may be nil.
	Tracer trace.Tracer
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

// Builder maintains the cache of each channel's newest entries from the change stream, for the
// buckets that this node owns.
type Builder struct {
	life        lifecycle.Base
	source      Source
	cache       CacheWriter
	store       BuilderStore
	keep        int
	loadTimeout time.Duration
	owner       Owner
	metrics     *Metrics
	tracer      trace.Tracer
	logger      *slog.Logger
}

// NewBuilder returns a Builder. Start starts it.
func NewBuilder(config BuilderConfig) (*Builder, error) {
	metrics, err := orNoMetrics(config.Metrics)
	if err != nil {
		return nil, err
	}
	return &Builder{
		source: config.Source, cache: config.Cache, store: config.Store, keep: cmp.Or(config.Keep, defaultKeep),
		loadTimeout: cmp.Or(config.LoadTimeout, defaultLoadTimeout), owner: config.Owner, metrics: metrics, tracer: orNoTracer(config.Tracer),
		logger: cmp.Or(config.Logger, slog.Default()),
	}, nil
}

// Start starts to consume the events of the buckets that this node owns, and returns at once. See
// lifecycle.Service.
func (b *Builder) Start(ctx context.Context) error {
	return eachBucket(ctx, &b.life, b.store.Identity().Buckets, b.run)
}

// Stop stops consuming and waits for the goroutines, even if ctx ends. Batches in progress are
// delivered again to the next consumer.
func (b *Builder) Stop(ctx context.Context) error { return b.life.Stop(ctx) }

// run consumes the events of one bucket, while this node owns it, until ctx ends.
func (b *Builder) run(ctx context.Context, bucket int) {
	whileOwned(ctx, b.owner, bucket, func(ctx context.Context) {
		// The error can only be that ctx has ended.
		_ = retry(ctx, b.logger.With("bucket", bucket), "consume", func() error {
			return b.source.Consume(ctx, bucket, b.handle)
		})
	})
}

// handle applies a batch of events to the cache. Every part of it may be repeated, so after an
// error the whole batch is.
func (b *Builder) handle(ctx context.Context, events []message.Event) error {
	began := time.Now()
	runs := b.groupByChannel(ctx, events)
	for round := 0; len(runs) > 0; round++ {
		if round == maxBatchRounds {
			return errors.New("build the cache: sets vanish while they are built")
		}
		done, err := b.cache.Append(ctx, runs)
		if err != nil {
			return err
		}
		if runs, err = b.rebuildAll(ctx, runs, done); err != nil {
			return err
		}
	}
	b.metrics.Appended.Add(ctx, int64(len(events)))
	for i := range events {
		span(ctx, b.tracer, "redis_cache_group process", trace.SpanKindConsumer, began, events[i].Traceparent)
	}
	return nil
}

// groupByChannel groups events by channel. Within a channel they keep their order.
//
// Events of another epoch are omitted: they belong to a log that the store no longer has. A set
// that they are in has their epoch, so the first entry of the new epoch deletes or replaces it.
func (b *Builder) groupByChannel(ctx context.Context, events []message.Event) []ChannelChanges {
	epoch := b.store.Identity().Epoch
	var runs []ChannelChanges
	at := make(map[string]int)
	foreign := 0
	for i := range events {
		e := &events[i]
		if e.Epoch != epoch {
			foreign++
			continue
		}
		n, ok := at[e.Message.ChannelID]
		if !ok {
			n = len(runs)
			at[e.Message.ChannelID] = n
			runs = append(runs, ChannelChanges{ChannelID: e.Message.ChannelID, Epoch: epoch})
		}
		runs[n].Changes = append(runs[n].Changes, cacheChangeOf(e))
	}
	if foreign > 0 {
		b.metrics.Foreign.Add(ctx, int64(foreign))
		b.logger.WarnContext(ctx, "ignored events of another epoch", "events", foreign)
	}
	return runs
}

// cacheChangeOf returns the change that an event makes to its channel's set of cached entries.
func cacheChangeOf(e *message.Event) CacheChange {
	if e.Kind == message.KindSend {
		return CacheChange{Entry: message.Cached{Epoch: e.Epoch, Seq: e.Seq, Count: e.Count, Message: e.Message}}
	}
	return CacheChange{
		Entry: message.Cached{
			Epoch: e.Epoch, Seq: e.Seq, Count: e.Count, Kind: e.Kind, TargetSeq: e.Message.Seq, Message: e.Message,
		},
		Target: &message.Cached{Epoch: e.Epoch, Seq: e.Message.Seq, Count: e.Message.Count, Message: e.Message},
	}
}

// rebuildAll rebuilds the sets of the runs that CacheWriter.Append did not finish, and returns the
// remaining parts of those runs. done holds the number of changes that were applied, by run. Runs
// whose rebuild was abandoned are omitted.
func (b *Builder) rebuildAll(ctx context.Context, runs []ChannelChanges, done []int) ([]ChannelChanges, error) {
	var left []ChannelChanges
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	abandoned := make([]atomic.Bool, len(runs))
	for i := range runs {
		if done[i] == len(runs[i].Changes) {
			continue
		}
		run := ChannelChanges{ChannelID: runs[i].ChannelID, Epoch: runs[i].Epoch, Changes: runs[i].Changes[done[i]:]}
		n := len(left)
		left = append(left, run)
		group.Go(func() error {
			built, err := b.rebuild(groupCtx, run.ChannelID, run.Changes[0].Entry.Seq)
			abandoned[n].Store(!built)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	kept := left[:0]
	for n, run := range left {
		if !abandoned[n].Load() {
			kept = append(kept, run)
		}
	}
	return kept, nil
}

// rebuild replaces a channel's set of cached entries with the newest entries of the store, once
// these reach the seq reach, which was published. If they do not in time, it drops the set, which
// is always correct, and returns false without an error.
//
// Another builder may have processed a later recall before this builder's set existed. After
// writing, rebuild therefore reads the head of the log, and writes again if the log has grown
// beyond the set.
func (b *Builder) rebuild(ctx context.Context, channelID string, reach int64) (built bool, err error) {
	b.metrics.Rebuilds.Add(ctx, 1)
	for range maxRebuildRounds {
		entries, began, err := b.load(ctx, channelID, reach)
		if err != nil {
			return false, err
		}
		if entries == nil {
			break
		}
		err = b.cache.Replace(ctx, channelID, began, entries)
		if errors.Is(err, ErrStaleLoad) {
			continue // this process was suspended between the load and the write
		}
		if err != nil {
			return false, err
		}
		built = true
		head, err := b.store.Head(ctx, channelID)
		if err != nil {
			return false, errors.Join(fmt.Errorf("read the head of %s: %w", channelID, err), b.cache.Drop(ctx, channelID))
		}
		if head.Seq <= entries[len(entries)-1].Seq {
			break
		}
		reach = head.Seq
	}
	if built {
		return true, nil
	}
	b.metrics.Abandoned.Add(ctx, 1)
	b.logger.ErrorContext(ctx, "store did not return published entries in time, channel left uncached",
		"channel_id", channelID, "seq", reach)
	return false, b.cache.Drop(ctx, channelID)
}

// load returns a channel's newest entries in ascending order, in the form that the cache holds. It
// returns nil if they do not reach the seq reach within LoadTimeout. began is the result of
// CacheWriter.Now from before the read.
func (b *Builder) load(ctx context.Context, channelID string, reach int64) (entries []message.Cached, began time.Time, err error) {
	waits := newBackoff()
	epoch := b.store.Identity().Epoch
	for deadline := time.Now().Add(b.loadTimeout); ; {
		if began, err = b.cache.Now(ctx, channelID); err != nil {
			return nil, began, err
		}
		newest, err := b.store.Entries(ctx, channelID, message.Range{Desc: true, Limit: b.keep})
		if err != nil {
			return nil, began, fmt.Errorf("load the newest entries of %s: %w", channelID, err)
		}
		slices.Reverse(newest)
		if dense(newest) && newest[len(newest)-1].Seq >= reach {
			// The store may return a message as it was before an edit or a recall that is also among the
			// entries.
			message.Fold(newest)
			entries = make([]message.Cached, len(newest))
			for i := range newest {
				entries[i] = message.CachedOf(epoch, &newest[i])
			}
			return entries, began, nil
		}
		if time.Now().After(deadline) {
			return nil, began, nil
		}
		if err := sleep(ctx, waits.NextBackOff()); err != nil {
			return nil, began, fmt.Errorf("load the newest entries of %s: %w", channelID, err)
		}
	}
}

// dense reports whether entries are not empty and ascend without gaps.
func dense(entries []message.Entry) bool {
	for i := 1; i < len(entries); i++ {
		if entries[i].Seq != entries[i-1].Seq+1 {
			return false
		}
	}
	return len(entries) > 0
}
