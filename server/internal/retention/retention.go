// Package retention removes the old entries of logs, according to a policy for each channel, and
// what deleted channels leave.
//
// A log is trimmed in three steps, each of which only moves forward:
//
//	boundary   the first entry that may be read; every read respects it within a second
//	stripped   entries before the boundary lose their content, message.ExpiryGrace later
//	deleted    stripped entries are deleted once no write with their client_msg_id may be a repeat
//
// The boundary and how far the other steps have come are in the channel's row, together with the
// time at which the channel is due: when a Trimmer must look at it again. So a Trimmer keeps no
// state that another one needs. Each step may be repeated, and two Trimmers only repeat each
// other's work.
package retention

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/maypok86/otter/v2"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/message"
)

// Log is the part of the message store that a Trimmer uses. message.Store documents the methods.
type Log interface {
	message.LogTrimmer
	Entries(ctx context.Context, channelID string, r message.Range) ([]message.Entry, error)
}

// Rows is the part of the store of channels that a Trimmer uses. channel.Store documents Rows.
type Rows interface {
	channel.TrimStore
	Rows(ctx context.Context, channelIDs []string) (map[string]channel.Row, error)
}

// Cache is the cache of the newest messages.
type Cache interface {
	// Page is message.Cache.Page.
	Page(ctx context.Context, channelID string, r message.Range) (message.CachedPage, error)
	// Drop deletes what the cache has of a channel.
	Drop(ctx context.Context, channelID string) error
}

// Owner decides which shards this node works for. It is feed.Owner.
type Owner interface {
	Owns(shard int) bool
	Changed() <-chan struct{}
}

// Config configures a Trimmer. Log, Rows, Cache, Shards, EndLog and IdempotencyWindow are required.
type Config struct {
	Log   Log
	Rows  Rows
	Cache Cache
	// Shards is the store's number of shards.
	Shards int
	// Owner decides which shards are this node's; nil means all.
	Owner Owner
	// EndLog is channel.EndLog.
	EndLog func(ctx context.Context, row *channel.Row) (channel.LogEnd, error)
	// EventsMaxAge is how long the event stream keeps an event. The default is 24 h.
	EventsMaxAge time.Duration
	// Default is the policy of the channels without one of their own.
	Default channel.Retention
	// IdempotencyWindow is how long the client_msg_id of an expired entry is remembered at least, from
	// its append on.
	IdempotencyWindow time.Duration
	// Clock reads the clock that the times of messages come from. Nil means the node's.
	Clock func(ctx context.Context) (time.Time, error)
	// Grace is message.ExpiryGrace if 0.
	Grace time.Duration
	// TouchedEvery and DueEvery are the intervals at which channels with new entries, and channels
	// that are due, are looked at. The defaults are 1 s and 10 s.
	TouchedEvery, DueEvery time.Duration
	// Meter may be nil.
	Meter metric.Meter
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

const (
	// maxRemembered bounds each of the sets of channels that a Trimmer keeps in memory.
	maxRemembered = 65_536
	// duePage is the number of due channels of a shard in one read, passPage that of all channels.
	duePage, passPage = 100, 500
	// passPause is the pause between two pages of a pass over all channels, passEvery that between two
	// passes.
	passPause, passEvery = 100 * time.Millisecond, time.Hour
	// parallel is the maximum number of channels that are looked at concurrently.
	parallel = 4
	// retryAfter is the time after which a step that failed is repeated.
	retryAfter = 10 * time.Second
)

// Trimmer trims the logs of the shards that this node owns. It is a lifecycle.Service.
type Trimmer struct {
	cfg  Config
	life lifecycle.Base
	// passes holds a value when all channels must be looked at.
	passes chan struct{}
	// enough holds, by channel, the count of messages from which on the log must be looked at.
	enough *otter.Cache[string, int64]

	expired, stripped, deleted metric.Int64Counter

	mu sync.Mutex
	// touched holds the channels with new entries that must be looked at. Guarded by mu.
	touched map[string]struct{}
	// failed holds the channels that could not be trimmed. Guarded by mu.
	failed map[string]struct{}
	// seen holds the boundaries of logs with entries to strip. Guarded by mu.
	seen map[string]seenBoundary
}

// seenBoundary is the Oldest of a Boundary, and a time at which it was stored already.
type seenBoundary struct {
	oldest int64
	at     time.Time
}

// New returns a Trimmer. Start starts it.
func New(cfg Config) (*Trimmer, error) {
	cfg.Grace = cmp.Or(cfg.Grace, message.ExpiryGrace)
	cfg.TouchedEvery, cfg.DueEvery = cmp.Or(cfg.TouchedEvery, time.Second), cmp.Or(cfg.DueEvery, 10*time.Second)
	cfg.Logger, cfg.EventsMaxAge = cmp.Or(cfg.Logger, slog.Default()), cmp.Or(cfg.EventsMaxAge, 24*time.Hour)
	if cfg.Clock == nil {
		cfg.Clock = func(context.Context) (time.Time, error) { return time.Now(), nil }
	}
	if cfg.Meter == nil {
		cfg.Meter = noop.Meter{}
	}
	t := &Trimmer{
		cfg: cfg, passes: make(chan struct{}, 1),
		touched: make(map[string]struct{}), failed: make(map[string]struct{}), seen: make(map[string]seenBoundary),
		enough: otter.Must(&otter.Options[string, int64]{
			MaximumSize: maxRemembered,
			Executor:    func(fn func()) { fn() }, // no goroutine that would have to be stopped
		}),
	}
	var errs [3]error
	t.expired, errs[0] = cfg.Meter.Int64Counter("parley.retention.expired",
		metric.WithDescription("Messages that can no longer be read because of a retention policy."))
	t.stripped, errs[1] = cfg.Meter.Int64Counter("parley.retention.stripped",
		metric.WithDescription("Expired entries whose content was removed, with repeats."))
	t.deleted, errs[2] = cfg.Meter.Int64Counter("parley.retention.deleted",
		metric.WithDescription("Expired entries that were deleted, with repeats."))
	return t, errors.Join(errs[:]...)
}

// Start starts to trim and returns at once. See lifecycle.Service.
func (t *Trimmer) Start(ctx context.Context) error {
	return t.life.Start(ctx, func(_ context.Context, r *lifecycle.Run) error {
		r.Go(t.run)
		r.Go(t.passOver)
		r.Go(t.watchOwner)
		return nil
	})
}

// Stop stops trimming and waits for the goroutines, even if ctx ends. What was begun is done by the
// next Trimmer.
func (t *Trimmer) Stop(ctx context.Context) error { return t.life.Stop(ctx) }

// Advanced records that rows have advanced. It returns promptly and may be called
// concurrently.
func (t *Trimmer) Advanced(moves []channel.Advance) {
	for i := range moves {
		if enough, ok := t.enough.GetIfPresent(moves[i].ChannelID); !ok || moves[i].Count >= enough {
			t.touch(moves[i].ChannelID)
		}
	}
}

// touch records that a channel must be looked at. If too many must, all are.
func (t *Trimmer) touch(channelID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.touched) < maxRemembered {
		t.touched[channelID] = struct{}{}
		return
	}
	clear(t.touched)
	t.requestPass()
}

// fail records that a channel could not be trimmed. Beyond maxRemembered, all channels are looked
// at.
func (t *Trimmer) fail(channelID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.failed) < maxRemembered {
		t.failed[channelID] = struct{}{}
		return
	}
	clear(t.failed)
	t.requestPass()
}

// touchFailed touches the channels that could not be trimmed.
func (t *Trimmer) touchFailed() {
	t.mu.Lock()
	failed := t.failed
	t.failed = make(map[string]struct{})
	t.mu.Unlock()
	for id := range failed {
		t.touch(id)
	}
}

func (t *Trimmer) requestPass() {
	select {
	case t.passes <- struct{}{}:
	default:
	}
}

// takeTouched returns the touched channels and forgets them.
func (t *Trimmer) takeTouched() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	ids := slices.Collect(maps.Keys(t.touched))
	clear(t.touched)
	return ids
}

func (t *Trimmer) owns(channelID string) bool {
	return t.cfg.Owner == nil || t.cfg.Owner.Owns(message.Shard(channelID, t.cfg.Shards))
}

// policy returns the policy of a channel.
func (t *Trimmer) policy(row *channel.Row) channel.Retention {
	if row.Retention != nil {
		return *row.Retention
	}
	return t.cfg.Default
}

// removable returns the Oldest of a log's boundary that was stored at least Grace ago, if entries
// before it are not stripped yet, and otherwise 0 and how long to wait. Both are 0 if there is
// nothing to strip. stripped is the seq up to which entries have been stripped.
func (t *Trimmer) removable(row *channel.Row, stripped int64) (oldest int64, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen, ok := t.seen[row.ChannelID]
	if ok && seen.oldest <= stripped+1 {
		delete(t.seen, row.ChannelID)
		ok = false
	}
	if !ok {
		if row.Oldest <= stripped+1 {
			return 0, 0
		}
		if len(t.seen) >= maxRemembered {
			clear(t.seen) // they are seen again
		}
		seen = seenBoundary{row.Oldest, time.Now()}
		t.seen[row.ChannelID] = seen
	}
	if age := time.Since(seen.at); age < t.cfg.Grace {
		return 0, max(time.Millisecond, t.cfg.Grace-age)
	}
	return seen.oldest, 0
}
