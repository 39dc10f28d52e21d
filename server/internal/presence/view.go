package presence

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle"
)

// The times of a view.
const (
	// headInterval is how often the owner of a shard reads its head.
	headInterval = time.Second
	// headSilence is the age of the last head of a shard from which a node reads the head itself.
	headSilence = 2 * time.Second
	// checkInterval is the minimum time between two reads of a head that a contradiction causes.
	checkInterval = 100 * time.Millisecond
	// raceDelay is how long a missing entry may still arrive before it is read. The publishers of two
	// entries race each other.
	raceDelay = 20 * time.Millisecond
	// retryDelay is the time between attempts of a failed read.
	retryDelay = 500 * time.Millisecond
	// lagAge is the age of states from which a stream is lagging.
	lagAge = 5 * time.Second
)

// The limits of a view.
const (
	// sinceLimit is the number of entries that one read of a log returns.
	sinceLimit = 1000
	// maxParked bounds the entries of a shard that wait for an earlier one. Entries beyond it are
	// read from the log.
	maxParked = 1024
	// maxEvents bounds the calls of own that a shard has still to make. Beyond it announcements are
	// ignored, and read from the log later.
	maxEvents = 4096
	// maxGet is the number of users in a GetCall.
	maxGet = 100
)

// view is what this node knows of the presence of all users. It follows the logs of all shards,
// keeps the states of watched and of recently read users, and delivers changes to streams. It is
// safe for concurrent use.
//
// # Positions
//
// A state in the table has the position in the shard's log as of which it is known: that of the
// entry, or of the read. A state with a lower position never replaces one with a higher position.
// A user who is not in the table has no position, so a read is only kept if the follower had not
// passed it, and a watch is registered before its state is read.
//
// # Heads
//
// Only a head that this node has read itself can end an epoch or show that a log has gone back: it
// was read after the position that it is compared with was reached. A broadcast head that
// contradicts the position makes the node read the head. The age of a shard's states is the time
// since the last head was read that the follower was level with.
type view struct {
	cfg   *Config
	clk   *clock
	own   own
	stats viewStats
	reads *reader
	lru   *lru // nil with CacheFull

	shards [Shards]viewShard
	// The shards whose head, log, watched users and full cache are to be read.
	heads, logs, reloads, loads *schedule[int]
	// memberLoads are the channels whose members are to be read, counts those whose online count is to
	// be delivered.
	memberLoads, counts *schedule[*channelWatch]

	// ctx ends with the run.
	ctx   context.Context //nolint:containedctx // the run's, not a call's
	began time.Time
	// channelRevision is the revision of the newest state of any channel.
	channelRevision atomic.Int64
	lastReported    atomic.Int64

	streamMu sync.Mutex // guards the fields below
	// streams are the streams that watch users or channels.
	streams map[*Stream]struct{}
	// lagged is set if a shard was lagging at the last look.
	lagged bool

	channelMu sync.Mutex // guards the fields below, and channelWatch.refs
	channels  map[string]*channelWatch
	// members counts the members of all channels; a member of two channels counts twice.
	members int
	// turns has the subjects for which members are read, or wait to be, for the first time.
	turns map[string]*turn
}

// newView returns a view that knows nothing. cfg has its defaults set.
func newView(cfg *Config, clk *clock, own own) *view {
	v := &view{
		cfg: cfg, clk: clk, own: own,
		heads: newSchedule[int](), logs: newSchedule[int](), reloads: newSchedule[int](), loads: newSchedule[int](),
		memberLoads: newSchedule[*channelWatch](), counts: newSchedule[*channelWatch](),
		streams: map[*Stream]struct{}{}, channels: map[string]*channelWatch{}, turns: map[string]*turn{},
	}
	v.reads = newReader(v)
	if cfg.Cache != CacheFull {
		v.lru = newLRU(cfg.CacheUsers, cfg.TTL/2)
	}
	for i := range v.shards {
		v.shards[i].num = i
		v.shards[i].watched = map[string]*watched{}
	}
	return v
}

// start starts the view's goroutines, which end with the run. It does not wait for the store.
func (v *view) start(run *lifecycle.Run) error {
	v.ctx, v.began = run.Context(), time.Now()
	unregister, err := v.instruments(v.cfg.Meter)
	if err != nil {
		return err
	}
	run.OnEnd(func(context.Context) error { unregister(); return nil })
	v.heads.start(run, Shards, 3, v.readHeads)
	v.logs.start(run, 16, 4, v.catchUp)
	v.reloads.start(run, 16, 2, v.reload)
	v.memberLoads.start(run, 1, 4, v.loadMembers)
	v.counts.start(run, 64, 1, v.deliverCounts)
	if v.cfg.Cache == CacheFull {
		v.loads.start(run, 1, 4, v.load)
	}
	v.reads.start(run)
	for i := range v.shards {
		v.heads.set(i, v.began)
	}
	run.Go(v.tick)
	return nil
}

// tick does what is due once a second.
func (v *view) tick(ctx context.Context) {
	ticker := time.NewTicker(headInterval)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			v.requestHeads(now)
			v.updateLagging(now)
		case <-ctx.Done():
			return
		}
	}
}

// epoch returns the epoch of a shard that the view follows; empty while none is known.
func (v *view) epoch(shard int) string {
	s := &v.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

// epochSince returns the epoch of a shard, and since when it is known by this node's clock.
func (v *view) epochSince(shard int) (epoch string, since time.Time) {
	s := &v.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch, s.since
}

// settled reports whether the states of a shard are complete, as far as is known.
func (v *view) settled(shard int) bool {
	s := &v.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase == shardSettled
}

// reconnected makes the view read all heads, because the bus may have lost messages.
func (v *view) reconnected() {
	now := time.Now()
	for i := range v.shards {
		v.heads.set(i, now)
	}
	v.reloadChannels(now)
}

// timeout returns a context for one step of the store.
func (v *view) timeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, v.cfg.StoreTimeout)
}

// reportError counts a failure. It writes at most one warning per second, because every shard fails
// while the store is down.
func (v *view) reportError(err error, attrs ...any) {
	if v.ctx.Err() != nil {
		return
	}
	v.stats.errors.Add(1)
	now := time.Now().UnixNano()
	last := v.lastReported.Load()
	if now-last < int64(time.Second) || !v.lastReported.CompareAndSwap(last, now) {
		return
	}
	v.cfg.Logger.Warn("presence step failed, retrying", append(attrs, slog.Any("error", err))...)
}
