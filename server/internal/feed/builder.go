package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/message"
)

const (
	defaultLoadTimeout = 10 * time.Second
	// maxBatchRounds is how often a batch is appended to the cache, with rebuilds of missing sets
	// after each time, before it fails and is delivered again.
	maxBatchRounds = 10
	// maxRebuildRounds is how often one rebuild loads a channel's entries at most. It loads them again
	// if the log has grown meanwhile, or after ErrStaleLoad.
	maxRebuildRounds = 5
	// maxUnknown and maxUnknownBytes bound the changes that a rebuild looks at to find the last one
	// whose message is too old to be cached.
	maxUnknown, maxUnknownBytes = 1000, 1 << 20
)

// BuilderConfig configures a Builder.
type BuilderConfig struct {
	Source Source
	Cache  CacheWriter
	Store  BuilderStore
	// LoadTimeout is how long a rebuild of a channel's cached messages waits for the store to return
	// the entries that were published. The channel is then left uncached. 0 means 10 s.
	LoadTimeout time.Duration
	// Owner decides which shards are this node's; nil means all.
	Owner Owner
	// Metrics may be nil.
	Metrics *Metrics
	// Tracer may be nil.
	Tracer trace.Tracer
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

// Builder maintains the cache of each channel's newest messages from the change stream, for the
// shards that this node owns.
type Builder struct {
	life        lifecycle.Base
	source      Source
	cache       CacheWriter
	store       BuilderStore
	loadTimeout time.Duration
	owner       Owner
	metrics     *Metrics
	tracer      trace.Tracer
	logger      *slog.Logger
	refills     refills
}

// NewBuilder returns a Builder. Start starts it.
func NewBuilder(config BuilderConfig) (*Builder, error) {
	metrics, err := orNoMetrics(config.Metrics)
	if err != nil {
		return nil, err
	}
	return &Builder{
		source: config.Source, cache: config.Cache, store: config.Store,
		loadTimeout: cmp.Or(config.LoadTimeout, defaultLoadTimeout), owner: config.Owner, metrics: metrics, tracer: orNoTracer(config.Tracer),
		logger: cmp.Or(config.Logger, slog.Default()), refills: newRefills(config.Store.Identity().Shards),
	}, nil
}

// Start starts to consume the events of the shards that this node owns, and returns at once. See
// lifecycle.Service.
func (b *Builder) Start(ctx context.Context) error {
	return eachShard(ctx, &b.life, b.store.Identity().Shards, b.run)
}

// Stop stops consuming and waits for the goroutines, even if ctx ends. Batches in progress are
// delivered again to the next consumer.
func (b *Builder) Stop(ctx context.Context) error { return b.life.Stop(ctx) }

// run consumes the events of one shard, while this node owns it, until ctx ends.
func (b *Builder) run(ctx context.Context, shard int) {
	turn := newTurn()
	whileOwned(ctx, b.owner, shard, func(ctx context.Context) {
		var refilling sync.WaitGroup
		refilling.Go(func() { b.refillAll(ctx, shard, turn) })
		// The error can only be that ctx has ended.
		_ = retry(ctx, b.logger.With("shard", shard), "consume", func() error {
			return b.source.Consume(ctx, shard, func(ctx context.Context, events []message.Event) error {
				return turn.take(ctx, func() error { return b.handle(ctx, events) })
			})
		})
		refilling.Wait()
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

// cacheChangeOf returns the change that an event makes to its channel's set of cached messages.
func cacheChangeOf(e *message.Event) CacheChange {
	return CacheChange{Seq: e.Seq, Count: e.Count, Sent: e.Kind == message.KindSend, Message: e.Message}
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
			built, err := b.rebuild(groupCtx, run.ChannelID, run.Changes[0].Seq)
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

// rebuild replaces a channel's cached messages with the newest ones of the store, once the log
// there reaches the seq reach, which was published. If it does not in time, it drops the set, which
// is always correct, and returns false without an error.
//
// Another builder may have processed a later recall before this builder's set existed. After
// writing, rebuild therefore reads the head of the log, and writes again if the log has grown
// beyond the set. A log whose messages have all expired is left uncached.
func (b *Builder) rebuild(ctx context.Context, channelID string, reach int64) (built bool, err error) {
	b.metrics.Rebuilds.Add(ctx, 1)
	for range maxRebuildRounds {
		log, began, err := b.load(ctx, channelID, reach)
		if errors.Is(err, errAllExpired) {
			return false, b.cache.Drop(ctx, channelID)
		}
		if err != nil {
			return false, err
		}
		if log.Newest == 0 {
			break
		}
		err = b.cache.Replace(ctx, channelID, began, log)
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
		if head.Seq <= log.Newest {
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

// errAllExpired is the error of loading a log without readable messages.
var errAllExpired = errors.New("no message can be read")

// load returns a channel's newest messages. It returns a zero log if the store does not have the
// entry at the seq reach within LoadTimeout. began is the result of CacheWriter.Now from before the
// read.
func (b *Builder) load(ctx context.Context, channelID string, reach int64) (log message.CachedLog, began time.Time, err error) {
	waits := newBackoff()
	for deadline := time.Now().Add(b.loadTimeout); ; {
		if began, err = b.cache.Now(ctx, channelID); err != nil {
			return log, began, err
		}
		head, err := b.store.Head(ctx, channelID)
		if err != nil {
			return log, began, fmt.Errorf("load the newest messages of %s: %w", channelID, err)
		}
		if head.Seq >= reach {
			if head.Count == head.Expired {
				return log, began, errAllExpired
			}
			log, err = b.read(ctx, channelID, head)
			if err != nil {
				return log, began, fmt.Errorf("load the newest messages of %s: %w", channelID, err)
			}
			if n := len(log.Messages); n > 0 && log.Messages[n-1].Count == head.Count {
				return log, began, nil
			}
		}
		if time.Now().After(deadline) {
			return message.CachedLog{}, began, nil
		}
		if err := lifecycle.Pause(ctx, waits.NextBackOff()); err != nil {
			return log, began, fmt.Errorf("load the newest messages of %s: %w", channelID, err)
		}
	}
}

// read reads a channel's newest messages up to head. No read of the store is older than an earlier
// one, so the messages include every entry up to head, or later ones.
func (b *Builder) read(ctx context.Context, channelID string, head message.Head) (log message.CachedLog, err error) {
	pending, err := b.store.Pending(ctx, channelID)
	if err != nil {
		return log, err
	}
	keep, maxBytes := b.cache.Limits(channelID)
	newest, err := b.store.Entries(ctx, channelID, message.Range{
		After: head.First() - 1, Before: head.Seq + 1, Desc: true, Limit: keep, MaxBytes: maxBytes, MessagesOnly: true,
	})
	if err != nil || len(newest) == 0 {
		return log, err
	}
	slices.Reverse(newest)
	log = message.CachedLog{Epoch: b.store.Identity().Epoch, Newest: head.Seq, Count: head.Count}
	if log.Unknown, err = b.unknown(ctx, channelID, newest[0].Seq, head.Seq); err != nil {
		return log, err
	}
	for i := range pending {
		if e := &pending[i]; e.TargetSeq < newest[0].Seq && e.Seq <= head.Seq {
			log.Unknown = max(log.Unknown, e.Seq)
		}
	}
	message.Fold(newest, pending)
	for i := range newest {
		log.Messages = append(log.Messages, newest[i].Message)
	}
	return log, nil
}

// unknown returns the last change up to head of a message before oldest, the first one that is
// cached; 0 if it is before that, too.
func (b *Builder) unknown(ctx context.Context, channelID string, oldest, head int64) (int64, error) {
	changed, err := b.store.Changed(ctx, channelID, oldest, head+1, maxUnknown, maxUnknownBytes)
	if err != nil {
		return 0, err
	}
	last, size := int64(0), 0
	for i := range changed {
		size += changed[i].Size()
		if changed[i].Seq < oldest {
			last = changed[i].ChangedSeq
		}
	}
	if len(changed) == maxUnknown || size > maxUnknownBytes {
		return head, nil
	}
	return last, nil
}
