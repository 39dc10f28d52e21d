package presence

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/stream"
)

// Hub holds the streams with presence of one node, writes the states that follow from them, and
// answers what is known of all users. It is safe for concurrent use.
type Hub struct {
	cfg     Config
	clock   *clock
	view    *view
	conns   *connections
	writer  *writer
	lease   *lease
	sweeper *sweeper
	logins  *logins
	streams *stream.Registry[*Stream]
	epochs  *epochs
	life    lifecycle.Base
	// draining is set once the ends of streams are no longer written: the users are to return
	// elsewhere, and those who do not are removed with the node.
	draining atomic.Bool
	// lastReported is when a failure was last logged, in Unix nanoseconds.
	lastReported atomic.Int64
	// revivals starts one goroutine per death of this node.
	revivals chan struct{}
	metrics  *metrics
}

// NewHub creates a hub. It refuses streams until Start.
func NewHub(cfg Config) *Hub {
	cfg.setDefaults()
	h := &Hub{
		cfg: cfg, clock: newClock(), revivals: make(chan struct{}, 1),
		streams: stream.NewRegistry[*Stream](stream.Config{
			Node: cfg.Node, MaxStreams: cfg.MaxStreams, MaxPerSubject: cfg.MaxPerSubject, Plural: "streams with presence",
		}),
	}
	h.metrics = newMetrics(h.cfg.Meter)
	h.view = newView(&h.cfg, h.clock, h)
	h.writer = newWriter(&h.cfg, h.clock, h)
	h.conns = h.writer.conns
	h.lease = newLease(&h.cfg, h)
	h.sweeper = newSweeper(&h.cfg, h.clock, h)
	h.logins = newLogins(h)
	h.epochs = newEpochs(h)
	return h
}

// Start starts accepting streams. See lifecycle.Service.
func (h *Hub) Start(ctx context.Context) error {
	return h.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		if err := h.view.start(run); err != nil {
			return err
		}
		cancel, err := h.cfg.Bus.Listen(BusHandler{
			Announcement: h.view.announced, Heads: h.view.saw, Beat: h.lease.heardOf,
			Dead: func(string) { h.lease.hurry() },
		})
		if err != nil {
			return fmt.Errorf("listen to presence: %w", err)
		}
		unobserve, err := h.metrics.observe(h.conns, h.writer.pending)
		if err != nil {
			cancel()
			return err
		}
		run.OnStop(func(context.Context) error { h.endAll(); return nil })
		for _, w := range h.writer.workers {
			run.Go(w.run)
		}
		run.Go(h.lease.beats)
		run.Go(h.sweeper.run)
		run.Go(h.logins.run)
		run.Go(h.revive1)
		run.Go(h.renewals)
		h.epochs.start(run)
		run.OnEnd(func(context.Context) error {
			cancel()
			unobserve()
			return nil
		})
		h.streams.Open()
		return nil
	})
}

// Stop ends every stream with SHUTTING_DOWN at once, stops all background work and waits for it.
// The presence of users who do not return elsewhere ends with this node's lease.
func (h *Hub) Stop(ctx context.Context) error { return h.life.Stop(ctx) }

func (h *Hub) endAll() {
	h.leave()
	for _, s := range h.streams.Refuse() {
		s.end(stream.ShuttingDown())
	}
}

// leave lets this node's lease end. The ends of its streams are not written any more: users who do
// not return elsewhere are removed with the node.
func (h *Hub) leave() {
	h.draining.Store(true)
	h.lease.leave()
}

// Drain refuses new streams and ends the existing ones: each one's Next returns the advice to
// reconnect within the given time, then SHUTTING_DOWN. It does not end the presence of the users,
// who are to return on other nodes. It waits until all streams are closed, or ctx ends. Streams
// that ride on another one end with that one.
func (h *Hub) Drain(ctx context.Context, within time.Duration) error {
	h.leave()
	return h.streams.Drain(ctx, func(s *Stream) { _ = s.drain(max(within, time.Millisecond)) })
}

// Close ends a stream and frees what it holds. Its user has OfflineAfter to return. It may be
// called twice.
func (h *Hub) Close(s *Stream) {
	s.end(stream.NotFound())
	h.view.forget(s)
	if s.conn != nil && !h.draining.Load() {
		h.conns.lost(s.conn)
	}
	h.streams.Remove(s.ID())
}

// find returns a live stream of the subject.
func (h *Hub) find(streamID, subject string) (*Stream, error) {
	s, ok := h.streams.Find(streamID, subject)
	if !ok || s.ended() {
		return nil, stream.NotFound()
	}
	return s, nil
}

// UpdateWatch adds users to those that a stream watches, and removes others; a user in both lists
// is added. It returns the states of the added users, in order, as far as they are known within 1
// s. It fails with STREAM_NOT_FOUND, and with LIMIT_EXCEEDED above the limit; then nothing is
// changed.
func (h *Hub) UpdateWatch(ctx context.Context, streamID, subject string, add, remove []string) ([]UserState, error) {
	s, err := h.find(streamID, subject)
	if err != nil {
		return nil, err
	}
	return h.view.watch(ctx, s, add, remove)
}

// WatchChannel makes a stream follow which members of a channel are online, and returns the present
// state. If the states of some members are not known within 1 s, it returns nil, and the state
// follows on the stream. The caller may read the channel. A repeat returns the state again.
//
// It fails with the errors of Config.Members, with LIMIT_EXCEEDED above Config.MaxChannels or
// 100,000 members, with NODE_FULL if the channels of the node have too many members, with
// STREAM_NOT_FOUND, and with SHUTTING_DOWN if the stream is draining, and then changes nothing.
func (h *Hub) WatchChannel(ctx context.Context, streamID, subject string, ch ChannelRef) (*ChannelState, error) {
	s, err := h.find(streamID, subject)
	if err != nil {
		return nil, err
	}
	return h.view.watchChannel(ctx, s, ch)
}

// UnwatchChannel undoes WatchChannel.
func (h *Hub) UnwatchChannel(_ context.Context, streamID, subject, channelID string) error {
	s, err := h.find(streamID, subject)
	if err != nil {
		return err
	}
	h.view.unwatchChannel(s, channelID)
	return nil
}

// SetBackground sets whether the device of a stream is in the background. It has no effect on an
// invisible stream.
func (h *Hub) SetBackground(_ context.Context, streamID, subject string, background bool) error {
	s, err := h.find(streamID, subject)
	if err != nil {
		return err
	}
	if s.conn != nil {
		h.conns.setBackground(s.conn, background)
	}
	return nil
}

// Disconnect ends the presence of a stream: its user is offline at once, also if the stream has
// ended before and the user had still time to return. Next then returns io.EOF.
func (h *Hub) Disconnect(_ context.Context, streamID, subject string) error {
	h.conns.leave(subject, streamID)
	if s, ok := h.streams.Find(streamID, subject); ok {
		s.end(nil)
	}
	return nil
}

// NotAfter returns the time at which a call about a subject's stream ends that begins now, by the
// store's clock; the zero time while that is not known. timeout is how long its caller waits.
func (h *Hub) NotAfter(subject string, timeout time.Duration) time.Time {
	now := h.clock.now(ShardOf(subject))
	if now.IsZero() {
		return now
	}
	return now.Add(timeout)
}

// Passed reports whether a time that another node's NotAfter has returned has passed. The estimates
// of two nodes differ by up to half a second. It is false while the store's time is not known.
func (h *Hub) Passed(subject string, notAfter time.Time) bool {
	return h.clock.now(ShardOf(subject)).After(notAfter)
}

// Get returns the presence of users, in order, at most Config.MaxStaleness old. If that is not
// possible, it fails with STORE_UNAVAILABLE.
func (h *Hub) Get(ctx context.Context, users []string) ([]UserState, error) {
	return h.view.get(ctx, users)
}

// List returns up to limit users that are online, after a position, and the position after them;
// the zero position begins and ends the list. A user that is online during the whole listing is
// returned exactly once.
func (h *Hub) List(ctx context.Context, after ListPosition, limit int) ([]UserState, ListPosition, error) {
	return h.view.list(ctx, after, limit)
}

// MembersChanged makes the streams that watch a channel follow its present members.
func (h *Hub) MembersChanged(channelID string) { h.view.membersChanged(channelID) }

// Reconnected makes the hub look for announcements that it has missed. It is called after the bus
// was disconnected.
func (h *Hub) Reconnected() { h.view.reconnected() }

// swept implements sweepHub.
func (h *Hub) swept(users int, took time.Duration) { h.metrics.swept(users, took) }

// kick ends a connection that w has replaced, and returns the fault.
func (h *Hub) kick(c *conn, w *Winner, generation int64) error {
	f := kicked(w, generation)
	sh := &h.conns.shards[c.shard]
	sh.mu.Lock()
	s := c.stream
	sh.mu.Unlock()
	h.conns.remove(c)
	if s != nil && s.end(f) {
		h.metrics.kicked(KickCause(f.Kick.Cause))
	}
	return f
}

// presenceID implements writerHub.
func (h *Hub) presenceID() (string, bool) { return h.lease.current() }

// leasedEpoch implements writerHub. A store that has lost its data has lost the leases too: the
// parts of a node that wrote before it renewed its lease, and then died, would stay until they
// expire.
func (h *Hub) leasedEpoch(shard int) string {
	epoch, since := h.view.epochSince(shard)
	if epoch == "" || !h.lease.leasedSince(since) {
		return ""
	}
	return epoch
}

// fenced implements writerHub.
func (h *Hub) fenced(id string) { h.lease.declaredDead(id) }

// flushed implements writerHub.
func (h *Hub) flushed(users int, took time.Duration, responded bool) {
	h.metrics.flushed(users, took, responded)
	if !responded {
		h.report("flush", errNoResponse)
	}
}

func (h *Hub) epoch(shard int) string { return h.view.epoch(shard) }

// works reports whether this node settles a shard and removes the parts of dead nodes there: it
// owns the shard, or the owner cannot reach the store. Then every other node does, and repeats are
// harmless.
func (h *Hub) works(shard int) bool {
	return h.cfg.Owner.Owns(shard) || h.lease.unable(h.cfg.Owner.Owner(shard))
}

// appended applies entries that this node's step has appended, and announces them.
func (h *Hub) appended(a Announcement) {
	if len(a.Entries) == 0 {
		return
	}
	h.metrics.logged(a.Entries)
	h.view.announced(a)
	h.cfg.Bus.Announce(a)
}

// ended records the position and the time of a log's last entry after this node's step.
func (h *Hub) ended(shard int, epoch string, seq int64, at time.Time) {
	h.view.ended(shard, epoch, seq, at)
}

// epochDiffers makes the view read the head of a shard.
func (h *Hub) epochDiffers(shard int) { h.view.readHead(shard) }

// restored implements writerHub.
func (h *Hub) restored(shard int) { h.epochs.restores.add(shard) }

// entryApplied implements own.
func (h *Hub) entryApplied(shard int, e *Entry) {
	if e.Login != nil {
		h.logins.logged(shard, e)
		return
	}
	h.conns.reconcile(shard, e)
}

// epochBegan implements own.
func (h *Hub) epochBegan(shard int, head Head) {
	h.sweeper.again(shard)
	if h.cfg.Policy != PolicyAll {
		h.logins.again(h.conns.liveOf(shard))
	}
	if h.conns.restore(shard, head.Epoch) {
		h.epochs.restores.add(shard)
	}
}

// epochMissing implements own.
func (h *Hub) epochMissing(shard int, head Head) {
	h.epochs.missing(shard, head.Epoch)
}

// entriesLost implements own.
func (h *Hub) entriesLost(shard int) {
	h.conns.renew(shard)
	if h.cfg.Policy != PolicyAll {
		h.logins.again(h.conns.liveOf(shard))
	}
}

// handOver implements leaseHub.
func (h *Hub) handOver(reason string) {
	drained := 0
	for _, s := range h.streams.All() {
		if s.drain(2 * time.Second) {
			drained++
		}
	}
	if drained > 0 {
		h.cfg.Logger.Warn("streams with presence must reconnect to another node", slog.String("reason", reason), slog.Int("streams", drained))
	}
}

// deathsKnown implements leaseHub.
func (h *Hub) deathsKnown(dead []string) { h.sweeper.setDead(dead) }

// revive implements leaseHub.
func (h *Hub) revive() {
	select {
	case h.revivals <- struct{}{}:
	default:
	}
}

// revive1 continues under a new presence id after each death of this node, until ctx ends.
func (h *Hub) revive1(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.revivals:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(reviveAfter):
		}
		h.conns.reset()
		if h.cfg.Policy != PolicyAll {
			h.conns.live(func(c *conn) { h.logins.again([]*conn{c}) })
		}
		h.lease.revived()
		h.epochs.restoreAgain()
		h.writer.notifyAll()
	}
}

// report logs a failure, at most once per second.
func (h *Hub) report(step string, err error) {
	now := time.Now().UnixNano()
	last := h.lastReported.Load()
	if now-last < int64(time.Second) || !h.lastReported.CompareAndSwap(last, now) {
		return
	}
	h.cfg.Logger.Warn("presence step failed, retrying", slog.String("step", step), slog.Any("error", err))
}
