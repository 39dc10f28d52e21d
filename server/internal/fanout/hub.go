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

// Hub delivers the events of channels to the streams of one node. It is safe for concurrent use.
type Hub struct {
	cfg   Config
	bus   Bus
	log   Log
	enc   Encoder
	stats stats
	lag   metric.Float64Histogram
	// lastReported is when a failure was last logged, in Unix nanoseconds.
	lastReported atomic.Int64

	life lifecycle.Base
	// ctx is the context of all reads of the log. Start sets it, and Stop ends it.
	ctx context.Context //nolint:containedctx // the hub's own life, not a call's
	// flight joins concurrent reads of the same part of a log.
	flight singleflight.Group
	// admissions joins concurrent checks of one channel's subscribers.
	admissions singleflight.Group
	replays    pool
	reads      pool
	schedule   schedule
	recents    recents

	streams *stream.Registry[*Stream]

	// mu guards the fields below.
	mu     sync.Mutex
	topics map[string]*topic
}

// New returns a hub. It refuses streams until Start. The hub does not close the bus, the log or
// the encoder.
func New(cfg Config, bus Bus, log Log, enc Encoder) *Hub {
	cfg.setDefaults()
	h := &Hub{
		cfg: cfg, bus: bus, log: log, enc: enc,
		topics: map[string]*topic{}, schedule: schedule{wake: make(chan struct{}, 1)},
		streams: stream.NewRegistry[*Stream](stream.Config{
			Node: cfg.Node, MaxStreams: cfg.MaxStreams, MaxPerSubject: cfg.MaxStreamsPerSubject,
		}),
	}
	h.replays.max, h.reads.max = h.cfg.ReplayReads, h.cfg.TopicReads
	bus.OnReconnect(h.reconnected)
	return h
}

// Start starts accepting streams. See lifecycle.Service.
func (h *Hub) Start(ctx context.Context) error {
	return h.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		unobserve, err := h.instruments(h.cfg.Meter)
		if err != nil {
			h.cfg.Logger.Warn("registering fan-out metrics failed", slog.Any("error", err))
			h.lag, unobserve = noop.Float64Histogram{}, func() {}
		}
		h.ctx = run.Context()
		run.Go(func(ctx context.Context) {
			h.schedule.run(ctx, func(due []*topic) { h.reads.submit(func() { h.check(due) }) })
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

// Open creates a stream for subject that ends at expires; the zero time means never. It fails with
// NODE_FULL if the node has reached its limit of streams, in total or for the subject, and with
// SHUTTING_DOWN before Start and once the hub drains or stops. The caller must Close the stream.
func (h *Hub) Open(subject string, expires time.Time) (*Stream, error) {
	s, err := h.streams.Admit(subject, expires, h.newStream)
	if err != nil {
		return nil, err
	}
	h.stats.streams.Add(1)
	return s, nil
}

// Update calls Stream.Update for a live stream of subject. It fails with STREAM_NOT_FOUND alike if
// the id is unknown, the stream is another subject's, or it has ended.
func (h *Hub) Update(streamID, subject string, c Change) error {
	s, ok := h.streams.Find(streamID, subject)
	if !ok {
		return stream.NotFound()
	}
	return s.Update(c)
}

// Drain refuses new streams and ends the existing ones. Each stream's Next returns the queued
// frames, then the advice to reconnect within the given time, then SHUTTING_DOWN. Drain waits until
// Close was called for every stream. If ctx ends first, it returns ctx's error.
func (h *Hub) Drain(ctx context.Context, within time.Duration) error {
	return h.streams.Drain(ctx, func(s *Stream) { s.drain(max(within, time.Millisecond)) })
}

// Stop ends every stream with SHUTTING_DOWN at once, stops all background work and waits for it.
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

// attach adds a new subscription to its channel's topic, which it creates if necessary.
func (h *Hub) attach(u *subscription) {
	u.admitted = h.admittedAt(&u.want)
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[u.want.ChannelID]
	if t == nil {
		t = &topic{hub: h, channelID: u.want.ChannelID, connecting: make(chan struct{}, 1), rev: noRev}
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

// retire removes a topic that has had no subscriptions for Config.Linger. It reports whether it
// did.
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

// reconnected restarts every topic's checks, spread over Config.ReconnectSpread.
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

// state reads the state of a channel's log, in Config.LogTimeout at most.
func (h *Hub) state(channelID string) (message.State, error) {
	states, err := h.states([]string{channelID})
	return states[channelID], err
}

// states reads the states of channels' logs, in Config.LogTimeout at most.
func (h *Hub) states(channelIDs []string) (map[string]message.State, error) {
	ctx, cancel := context.WithTimeout(h.ctx, h.cfg.LogTimeout)
	defer cancel()
	return h.log.States(ctx, channelIDs)
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

// reportError counts a failure. It writes at most one warning per second for all channels, because
// every channel fails while the message store is down.
func (h *Hub) reportError(channelID string, err error) {
	if h.ctx.Err() != nil {
		return
	}
	h.stats.readErrors.Add(1)
	now := time.Now().UnixNano()
	last := h.lastReported.Load()
	if now-last < int64(time.Second) || !h.lastReported.CompareAndSwap(last, now) {
		return
	}
	h.cfg.Logger.Warn("fan-out step failed, retrying", slog.String("channel_id", channelID), slog.Any("error", err))
}
