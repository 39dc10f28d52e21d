package queue

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/stream"
)

// Hints carries readiness between nodes: that something may be fetched in a partition. A hint is told at most once and may
// be lost, so whoever waits for one also looks by itself now and then. Safe for concurrent use.
type Hints interface {
	// Ready tells all nodes. It does not block.
	Ready(topic string, partition int)
	// Listen calls fn for each hint of the topic until cancel. fn must not block.
	Listen(topic string, fn func(partition int)) (cancel func(), err error)
	// Connected reports whether hints come through.
	Connected() bool
}

// TopicSource is what the hub knows topics by; *Catalog is one.
type TopicSource interface {
	Topic(ctx context.Context, name string) (*Topic, error)
	Forget(name string)
}

// HubConfig is what a Hub needs (Store, Catalog, Node, Secret) and what it can be told. A zero field takes its default.
type HubConfig struct {
	Store   GroupStore
	Catalog TopicSource
	// Node is the node's id, with which stream ids end after 26 characters.
	Node string
	// Secret keys the delivery tokens. It must be the same on all nodes, so that each can tell a stale token from a false one.
	Secret []byte
	// Ready carries hints; nil is none, and partitions are polled then.
	Ready Hints

	// LeaseTTL is how long a crashed node's partitions stay its own. Default 10 s.
	LeaseTTL time.Duration
	// HeartbeatInterval is the longest time without a frame. Default 15 s.
	HeartbeatInterval time.Duration
	// MaxSessions is how many sessions this node takes; 0 is no bound.
	MaxSessions int
	// MaxSessionsPerSubject is how many sessions one subject may have on this node. Default 100.
	MaxSessionsPerSubject int

	// Logger defaults to none.
	Logger *slog.Logger
	// Meter makes the instruments; default none.
	Meter metric.Meter
}

func (c *HubConfig) setDefaults() {
	c.LeaseTTL = cmp.Or(c.LeaseTTL, 10*time.Second)
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, 15*time.Second)
	c.MaxSessionsPerSubject = cmp.Or(c.MaxSessionsPerSubject, 100)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// OpenRequest asks for a consumer session.
type OpenRequest struct {
	Subject string
	// Expires is when the session ends with TOKEN_EXPIRED; the zero time is never.
	Expires                time.Time
	Topic, Group, Consumer string
	// MaxMessages and MaxBytes are the credits to begin with; MaxBytes 0 is DefaultCreditBytes.
	MaxMessages, MaxBytes int64
	// AckTimeout is how long a delivery may go unsettled; 0 is DefaultAckTimeout.
	AckTimeout time.Duration
}

// Hub holds the consumer sessions of one node. Safe for concurrent use.
type Hub struct {
	cfg     HubConfig
	metrics *Metrics
	// troubled is when trouble was last logged, in Unix nanoseconds.
	troubled atomic.Int64
	life     lifecycle.Base
	// run has all goroutines, but for those of the sessions' workers. Start sets it. ctx is its context, which ends with Stop, once
	// all sessions are gone.
	run *lifecycle.Run
	ctx context.Context //nolint:containedctx // the hub's own life, not a call's
	// streams are the sessions. mu may be taken with its lock held.
	streams *stream.Registry[*Session]

	// mu guards groups. It may be held when a group's is taken, and never with a session's.
	mu     sync.Mutex
	groups map[groupName]*group
}

// NewHub makes a hub, which refuses sessions until Start. What the config names stays the caller's.
func NewHub(c HubConfig) *Hub {
	c.setDefaults()
	h := &Hub{
		cfg: c, groups: map[groupName]*group{},
		streams: stream.NewRegistry[*Session](stream.Config{
			Node: c.Node, MaxStreams: c.MaxSessions, MaxPerSubject: c.MaxSessionsPerSubject, Plural: "consumers",
		}),
	}
	var err error
	if h.metrics, err = NewMetrics(c.Meter); err != nil {
		c.Logger.Warn("queue consumers run without metrics", slog.Any("error", err))
	}
	return h
}

// Start begins to take sessions. See lifecycle.Service.
func (h *Hub) Start(ctx context.Context) error {
	return h.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		h.run, h.ctx = run, run.Context()
		run.OnStop(func(context.Context) error {
			h.endAll()
			<-h.streams.Drained()
			return h.awaitGroups(h.ctx)
		})
		run.Go(func(context.Context) { h.renewAll() })
		h.streams.Open()
		return nil
	})
}

// Stop ends every session with SHUTTING_DOWN at once, hands leases back, stops all background work and waits for it: for a few
// seconds if the store is away.
func (h *Hub) Stop(ctx context.Context) error { return h.life.Stop(ctx) }

// Open makes a session. It fails with TOPIC_NOT_FOUND, GROUP_NOT_FOUND, NODE_FULL, and SHUTTING_DOWN once the hub drains.
// The caller must Close the session.
func (h *Hub) Open(ctx context.Context, r OpenRequest) (*Session, error) {
	r.MaxBytes = cmp.Or(r.MaxBytes, DefaultCreditBytes)
	r.AckTimeout = cmp.Or(r.AckTimeout, DefaultAckTimeout)
	t, err := h.cfg.Catalog.Topic(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	if !hasGroup(t, r.Group) {
		// It may have been made on another node a moment ago.
		h.cfg.Catalog.Forget(r.Topic)
		if t, err = h.cfg.Catalog.Topic(ctx, r.Topic); err != nil {
			return nil, err
		}
		if !hasGroup(t, r.Group) {
			return nil, noGroup()
		}
	}
	return h.streams.Admit(r.Subject, r.Expires, func(id stream.Identity) *Session {
		s := newSession(h, r, id)
		h.join(s, t)
		return s
	})
}

// join makes a session a member of its group on this node, which is created if need be.
func (h *Hub) join(s *Session, t *Topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := groupName{s.request.Topic, s.request.Group}
	g := h.groups[name]
	if g == nil {
		g = newGroup(h, name, t)
		h.groups[name] = g
		h.run.Go(func(context.Context) { g.run() })
	}
	s.group = g
	g.joins(s)
}

// Drain refuses new sessions and has those there are hand their partitions back: they are sent nothing new, and each ends with
// SHUTTING_DOWN once what it holds is settled, or after within. It waits until all are gone or ctx ends, and returns ctx's error then.
func (h *Hub) Drain(ctx context.Context, within time.Duration) error {
	overdue := time.AfterFunc(within, h.endAll)
	defer overdue.Stop()
	if err := h.streams.Drain(ctx, func(s *Session) { s.drain(stream.ShuttingDown()) }); err != nil {
		return err
	}
	return h.awaitGroups(ctx)
}

// endAll refuses new sessions and ends those there are.
func (h *Hub) endAll() {
	for _, s := range h.streams.Refuse() {
		s.end(stream.ShuttingDown())
	}
}

// awaitGroups blocks until every group has retired, or ctx ends, whose error it returns then. The sessions are gone by now.
func (h *Hub) awaitGroups(ctx context.Context) error {
	h.mu.Lock()
	groups := slices.Collect(maps.Values(h.groups))
	h.mu.Unlock()
	for _, g := range groups {
		select {
		case <-g.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// retire takes a group without sessions off the books, and reports whether it did.
func (h *Hub) retire(g *group) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.live > 0 || len(g.gone) > 0 {
		return false
	}
	delete(h.groups, g.name)
	return true
}

// teardownTime is how long a session that has ended may take to give everything back. After it leases end by themselves.
func (h *Hub) teardownTime() time.Duration { return min(h.cfg.LeaseTTL, maxCallTime) }
