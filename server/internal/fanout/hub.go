package fanout

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	randv2 "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"golang.org/x/sync/singleflight"

	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/stream"
)

// Hub joins the sessions of one node to its channels. Safe for concurrent use.
type Hub struct {
	cfg   Config
	bus   Bus
	log   Log
	enc   Encoder
	stats stats
	lag   metric.Float64Histogram
	// troubled is when trouble was last logged, in Unix nanoseconds.
	troubled atomic.Int64

	life lifecycle.Base
	// ctx ends with Stop, and with it every read of the log. Start sets it.
	ctx context.Context //nolint:containedctx // the hub's own life, not a call's
	// flight joins reads of the same piece of a log that are under way.
	flight   singleflight.Group
	replays  pool
	reads    pool
	schedule schedule
	recents  recents

	streams *stream.Registry[*Session]

	// mu guards what follows.
	mu     sync.Mutex
	topics map[string]*topic
}

// New makes a hub, which refuses sessions until Start. The bus, the log and the encoder stay the caller's.
func New(cfg Config, bus Bus, log Log, enc Encoder) *Hub {
	cfg.setDefaults()
	h := &Hub{
		cfg: cfg, bus: bus, log: log, enc: enc,
		topics: map[string]*topic{}, schedule: schedule{wake: make(chan struct{}, 1)},
		streams: stream.NewRegistry[*Session](stream.Config{
			Node: cfg.Node, MaxStreams: cfg.MaxSessions, MaxPerSubject: cfg.MaxSessionsPerSubject,
		}),
	}
	h.replays.max, h.reads.max = h.cfg.ReplayReads, h.cfg.TopicReads
	bus.OnReconnect(h.reconnected)
	return h
}

// Start begins to take sessions. See lifecycle.Service.
func (h *Hub) Start(ctx context.Context) error {
	return h.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		unobserve, err := h.instruments(h.cfg.Meter)
		if err != nil {
			h.cfg.Logger.Warn("fan-out runs without metrics", slog.Any("error", err))
			h.lag, unobserve = noop.Float64Histogram{}, func() {}
		}
		h.ctx = run.Context()
		run.Go(func(ctx context.Context) {
			h.schedule.run(ctx, func(t *topic) { h.reads.submit(t.due) })
		})
		run.Go(h.recents.sweep)
		run.OnStop(func(context.Context) error { h.endAll(); return nil })
		run.OnEnd(func(context.Context) error {
			h.replays.close()
			h.reads.close()
			h.closeTopics()
			unobserve()
			return nil
		})
		h.streams.Open()
		return nil
	})
}

// Open makes a session for subject, which ends at expires; the zero time is never. It refuses with NODE_FULL over a limit of
// this node's, in all or for the subject, and with SHUTTING_DOWN once the hub drains. The caller must Close the session.
func (h *Hub) Open(subject string, expires time.Time) (*Session, error) {
	s, err := h.streams.Admit(subject, expires, h.newSession)
	if err != nil {
		return nil, err
	}
	h.stats.sessions.Add(1)
	return s, nil
}

// Session finds a live session of subject's. An unknown id, another's and an ended one's all get the same
// STREAM_NOT_FOUND.
func (h *Hub) Session(id, subject string) (*Session, error) {
	s, ok := h.streams.Find(id, subject)
	if !ok || s.ended() {
		return nil, stream.NotFound()
	}
	return s, nil
}

// Drain refuses new sessions, and ends those there are: each hands over what is queued, then the advice to reconnect
// within a time, then SHUTTING_DOWN. It waits until all are closed or ctx ends, and returns ctx's error then.
func (h *Hub) Drain(ctx context.Context, within time.Duration) error {
	return h.streams.Drain(ctx, func(s *Session) { s.drain(max(within, time.Millisecond)) })
}

// Stop ends every session with SHUTTING_DOWN at once, stops all background work and waits for it.
func (h *Hub) Stop(ctx context.Context) error { return h.life.Stop(ctx) }

func (h *Hub) endAll() {
	for _, s := range h.streams.Refuse() {
		s.end(stream.ShuttingDown())
	}
}

func (h *Hub) closeTopics() {
	h.mu.Lock()
	topics := h.topics
	h.topics = map[string]*topic{}
	h.mu.Unlock()
	for _, t := range topics {
		t.close()
	}
}

// attach joins a new subscription to its channel's topic, making that if need be.
func (h *Hub) attach(u *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[u.want.ChannelID]
	if t == nil {
		t = &topic{hub: h, channelID: u.want.ChannelID, connecting: make(chan struct{}, 1)}
		h.topics[t.channelID] = t
		h.stats.topics.Add(1)
	}
	u.topic = t
	t.mu.Lock()
	u.index = len(t.subs)
	t.subs = append(t.subs, u)
	t.mu.Unlock()
	h.stats.subscribers.Add(1)
}

// retire removes a topic that nobody has wanted for a while, and reports whether it did.
func (h *Hub) retire(t *topic) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.subs) > 0 || time.Since(t.emptyAt) < h.cfg.Linger {
		return false
	}
	t.closed = true
	delete(h.topics, t.channelID)
	return true
}

// reconnected starts every topic's checks anew, spread over a while.
func (h *Hub) reconnected() {
	h.mu.Lock()
	topics := slices.Collect(maps.Values(h.topics))
	h.mu.Unlock()
	for _, t := range topics {
		t.mu.Lock()
		t.restartChecks(time.Now().Add(randv2.N(h.cfg.ReconnectSpread)))
		t.mu.Unlock()
	}
}

// state and replay read the log, each within the time that one read may take.
func (h *Hub) state(channelID string) (message.State, error) {
	ctx, cancel := context.WithTimeout(h.ctx, h.cfg.LogTimeout)
	defer cancel()
	return h.log.State(ctx, channelID)
}

func (h *Hub) replay(channelID string, after, atLeast int64, limit, maxBytes int, patient bool) ([]message.Event, error) {
	key := fmt.Sprint(channelID, " ", after, " ", atLeast, " ", limit, " ", maxBytes, " ", patient)
	shared, err, _ := h.flight.Do(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(h.ctx, h.cfg.LogTimeout)
		defer cancel()
		return h.log.Replay(ctx, channelID, after, atLeast, limit, maxBytes, patient)
	})
	if err != nil {
		return nil, err
	}
	events, _ := shared.([]message.Event)
	return events, dense(events, after)
}

// trouble counts a failure, and logs one a second: a log that is away fails for every channel.
func (h *Hub) trouble(channelID string, err error) {
	if h.ctx.Err() != nil {
		return
	}
	h.stats.readErrors.Add(1)
	now := time.Now().UnixNano()
	last := h.troubled.Load()
	if now-last < int64(time.Second) || !h.troubled.CompareAndSwap(last, now) {
		return
	}
	h.cfg.Logger.Warn("fan-out retries", slog.String("channel_id", channelID), slog.Any("error", err))
}
