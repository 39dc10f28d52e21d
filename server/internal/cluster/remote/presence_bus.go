package remote

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/presence"
)

const (
	// presenceTopics is the number of topics over which the announcements of shards are spread.
	presenceTopics = 16
	// maxAnnouncementBytes bounds the encoded entries of one message. A larger announcement is split.
	maxAnnouncementBytes = 256 << 10
	// maxPresenceQueue and maxPresenceQueueBytes bound the messages that wait to be sent.
	maxPresenceQueue      = 4096
	maxPresenceQueueBytes = 16 << 20
)

var (
	presenceChanges = func() (events [presenceTopics]cluster.Event[*clusterv1.PresenceAnnouncement]) {
		for i := range events {
			events[i].Name = fmt.Sprintf("presence-%d", i)
		}
		return events
	}()
	presenceHeads = cluster.Event[*clusterv1.PresenceHeads]{Name: "presence-heads"}
	presenceBeat  = cluster.Event[*clusterv1.PresenceBeat]{Name: "presence-beat"}
	presenceDead  = cluster.Event[*clusterv1.PresenceDead]{Name: "presence-dead"}
)

// PresenceBus implements presence.Bus over broadcasts to all nodes. Messages wait in a queue, which
// one goroutine sends, so that its methods do not block. Messages beyond the bounds of the queue
// are dropped. It sends only between Start and Stop. Safe for concurrent use.
type PresenceBus struct {
	endpoint *cluster.Endpoint
	log      *slog.Logger
	life     lifecycle.Base
	wake     chan struct{}

	mu sync.Mutex // guards the fields below
	// sending is true between Start and Stop.
	sending bool
	queue   []presenceMessage
	// bytes is the size of the queue. dropping is set from the first message that is dropped until the
	// queue is empty.
	bytes    int
	dropping bool
}

// presenceMessage is a message that waits to be sent.
type presenceMessage struct {
	send func() error
	size int
}

var _ presence.Bus = (*PresenceBus)(nil)

// NewPresenceBus creates a PresenceBus. A nil logger means slog.Default.
func NewPresenceBus(endpoint *cluster.Endpoint, logger *slog.Logger) *PresenceBus {
	return &PresenceBus{endpoint: endpoint, log: cmp.Or(logger, slog.Default()), wake: make(chan struct{}, 1)}
}

// Start starts sending. See lifecycle.Service.
func (b *PresenceBus) Start(ctx context.Context) error {
	return b.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		b.setSending(true)
		run.OnStop(func(context.Context) error { b.setSending(false); return nil })
		run.Go(b.run)
		return nil
	})
}

// Stop sends the messages that wait, and stops sending.
func (b *PresenceBus) Stop(ctx context.Context) error { return b.life.Stop(ctx) }

func (b *PresenceBus) setSending(sending bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sending = sending
}

// run sends messages until ctx ends, and then those that still wait.
func (b *PresenceBus) run(ctx context.Context) {
	failed := false // whether the last message could not be sent
	for ended := false; ; {
		for _, m := range b.take() {
			err := m.send()
			if err != nil && !failed {
				b.log.DebugContext(ctx, "broadcasting presence failed", "error", err)
			}
			failed = err != nil
		}
		if ended {
			return
		}
		select {
		case <-b.wake:
		case <-ctx.Done():
			ended = true
		}
	}
}

// take returns the messages of the queue, which it empties.
func (b *PresenceBus) take() []presenceMessage {
	b.mu.Lock()
	defer b.mu.Unlock()
	messages := b.queue
	b.queue, b.bytes, b.dropping = nil, 0, false
	return messages
}

// enqueuePresence queues an event to be sent.
func enqueuePresence[M proto.Message](b *PresenceBus, event cluster.Event[M], msg M) {
	size := proto.Size(msg)
	b.mu.Lock()
	full := len(b.queue) >= maxPresenceQueue || b.bytes+size > maxPresenceQueueBytes
	first := full && b.sending && !b.dropping
	if b.sending && !full {
		b.queue = append(b.queue, presenceMessage{func() error { return cluster.Publish(b.endpoint, event, msg) }, size})
		b.bytes += size
	}
	b.dropping = b.dropping || first
	b.mu.Unlock()
	if first {
		b.log.Warn("dropping announcements of presence: too many wait to be sent", "limit", maxPresenceQueue)
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// itemOverhead bounds the bytes of an item's tag and length.
const itemOverhead = 8

// Announce implements presence.Bus.
func (b *PresenceBus) Announce(a presence.Announcement) {
	event := presenceChanges[a.Shard%presenceTopics]
	w, bytes := &clusterv1.PresenceAnnouncement{Shard: shardToWire(a.Shard), Epoch: a.Epoch}, 0
	for i := range a.Entries {
		e := entryToWire(&a.Entries[i])
		size := proto.Size(e) + itemOverhead
		if len(w.GetEntries()) > 0 && bytes+size > maxAnnouncementBytes {
			enqueuePresence(b, event, w)
			w, bytes = &clusterv1.PresenceAnnouncement{Shard: w.GetShard(), Epoch: a.Epoch}, 0
		}
		w.Entries = append(w.Entries, e)
		bytes += size
	}
	if len(w.GetEntries()) > 0 {
		enqueuePresence(b, event, w)
	}
}

// Heads implements presence.Bus.
func (b *PresenceBus) Heads(heads []presence.ShardHead) {
	w := &clusterv1.PresenceHeads{Heads: make([]*clusterv1.PresenceHead, len(heads))}
	for i := range heads {
		h := &heads[i]
		w.Heads[i] = &clusterv1.PresenceHead{
			Shard: shardToWire(h.Shard), Epoch: h.Epoch, Seq: h.Seq, OpenedUs: timeToWire(h.Opened), SettledAtUs: timeToWire(h.SettledAt),
			NowUs: timeToWire(h.Now), LastAtUs: timeToWire(h.LastAt),
		}
	}
	enqueuePresence(b, presenceHeads, w)
}

// Beat implements presence.Bus.
func (b *PresenceBus) Beat(beat presence.NodeBeat) {
	enqueuePresence(b, presenceBeat, &clusterv1.PresenceBeat{Node: beat.Node, WithoutStoreMs: beat.WithoutStore.Milliseconds()})
}

// Dead implements presence.Bus.
func (b *PresenceBus) Dead(node string) {
	enqueuePresence(b, presenceDead, &clusterv1.PresenceDead{Node: node})
}

// Listen implements presence.Bus. It drops messages with values that this version does not know.
func (b *PresenceBus) Listen(h presence.BusHandler) (cancel func(), err error) {
	var cancels []func()
	cancel = func() {
		var ending sync.WaitGroup
		for _, end := range cancels {
			ending.Go(end)
		}
		ending.Wait()
	}
	add := func(end func(), failed error) {
		if failed != nil {
			err = cmp.Or(err, failed)
			return
		}
		cancels = append(cancels, end)
	}
	var one sync.Mutex // held while a handler of announcements runs: each topic calls it on its own
	for _, event := range presenceChanges {
		add(cluster.Subscribe(b.endpoint, event, func(w *clusterv1.PresenceAnnouncement) {
			if a, ok := announcementFromWire(w); ok {
				one.Lock()
				defer one.Unlock()
				h.Announcement(a)
			}
		}))
	}
	add(cluster.Subscribe(b.endpoint, presenceHeads, func(w *clusterv1.PresenceHeads) { h.Heads(headsFromWire(w)) }))
	add(cluster.Subscribe(b.endpoint, presenceBeat, func(w *clusterv1.PresenceBeat) {
		if w.GetNode() != "" && w.GetWithoutStoreMs() >= 0 {
			h.Beat(presence.NodeBeat{Node: w.GetNode(), WithoutStore: time.Duration(w.GetWithoutStoreMs()) * time.Millisecond})
		}
	}))
	add(cluster.Subscribe(b.endpoint, presenceDead, func(w *clusterv1.PresenceDead) {
		if w.GetNode() != "" {
			h.Dead(w.GetNode())
		}
	}))
	if err != nil {
		cancel()
		return nil, err
	}
	return cancel, nil
}

func shardToWire(shard int) int32 { return int32(shard) } //nolint:gosec // below presence.Shards

func timeToWire(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func timeFromWire(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

// shardFromWire returns a shard; false if there is no such shard.
func shardFromWire(shard int32) (int, bool) { return int(shard), shard >= 0 && shard < presence.Shards }

func entryToWire(e *presence.Entry) *clusterv1.PresenceEntry {
	w := &clusterv1.PresenceEntry{Seq: e.Seq, AtUs: timeToWire(e.At), UserId: e.UserID, State: uint32(e.State), Cause: int32(e.Cause)}
	if l := e.Login; l != nil {
		w.Login = &clusterv1.PresenceWinner{
			Slot: l.Slot, Generation: l.Generation, Order: l.Order, Connection: l.Connection, Node: l.Node,
			Platform: int32(l.Platform), Device: l.Device,
		}
	}
	return w
}

// announcementFromWire decodes an announcement; false if it has a value that this version does not
// know.
func announcementFromWire(w *clusterv1.PresenceAnnouncement) (presence.Announcement, bool) {
	shard, ok := shardFromWire(w.GetShard())
	if !ok || w.GetEpoch() == "" {
		return presence.Announcement{}, false
	}
	a := presence.Announcement{Shard: shard, Epoch: w.GetEpoch(), Entries: make([]presence.Entry, len(w.GetEntries()))}
	for i, e := range w.GetEntries() {
		if a.Entries[i], ok = entryFromWire(e); !ok {
			return presence.Announcement{}, false
		}
	}
	return a, true
}

func entryFromWire(w *clusterv1.PresenceEntry) (presence.Entry, bool) {
	if w.GetSeq() <= 0 || w.GetUserId() == "" || w.GetCause() < 0 || w.GetCause() > math.MaxUint8 {
		return presence.Entry{}, false
	}
	e := presence.Entry{
		Seq: w.GetSeq(), At: timeFromWire(w.GetAtUs()), UserID: w.GetUserId(), State: presence.State(w.GetState()),
		Cause: presence.Cause(w.GetCause()), //nolint:gosec // checked above
	}
	l := w.GetLogin()
	if l == nil {
		return e, true
	}
	if l.GetPlatform() < int32(presence.IOS) || l.GetPlatform() > int32(presence.MaxPlatform) {
		return presence.Entry{}, false
	}
	e.Login = &presence.Winner{
		Slot: l.GetSlot(), Generation: l.GetGeneration(), Order: l.GetOrder(), Connection: l.GetConnection(), Node: l.GetNode(),
		Platform: presence.Platform(l.GetPlatform()), Device: l.GetDevice(), //nolint:gosec // checked above
	}
	return e, true
}

// headsFromWire decodes heads, without those of shards that do not exist.
func headsFromWire(w *clusterv1.PresenceHeads) []presence.ShardHead {
	heads := make([]presence.ShardHead, 0, len(w.GetHeads()))
	for _, h := range w.GetHeads() {
		shard, ok := shardFromWire(h.GetShard())
		if !ok {
			continue
		}
		heads = append(heads, presence.ShardHead{
			Shard: shard, Now: timeFromWire(h.GetNowUs()),
			Head: presence.Head{
				Epoch: h.GetEpoch(), Seq: h.GetSeq(), LastAt: timeFromWire(h.GetLastAtUs()),
				Opened: timeFromWire(h.GetOpenedUs()), SettledAt: timeFromWire(h.GetSettledAtUs()),
			},
		})
	}
	return heads
}
