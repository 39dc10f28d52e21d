package fanout

import (
	"cmp"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/parleyhq/parley/server/internal/message"
)

// Config is what a Hub can be told. A zero field takes its default.
type Config struct {
	// Node is what stream ids end with, after 26 characters, so that any node knows from an id where the stream lives:
	// up to 38 of A-Z a-z 0-9 _ -. Default none.
	Node string
	// QueueBytes and QueueEvents bound the live events that wait for one session's reader; over either it is cut as a
	// slow consumer. One event is always let in. Defaults 1 MiB and 4096.
	QueueBytes, QueueEvents int
	// HeartbeatInterval is the longest time without a frame. Default 15 s.
	HeartbeatInterval time.Duration
	// MaxChannelsPerSession is how many channels one session may have. Default 500.
	MaxChannelsPerSession int
	// MaxSessionsPerSubject is how many sessions one subject may have on this node. Default 100.
	MaxSessionsPerSubject int
	// MaxSessions is how many sessions this node takes; 0 is no bound.
	MaxSessions int
	// ReplayFrameBytes is about how much replay one frame carries and one read of the log asks for. Default 64 KiB.
	ReplayFrameBytes int
	// RecentBytes is about the most that all channels' ends, which are kept for a few seconds for subscribers that come
	// back, take on this node. Default 64 MiB.
	RecentBytes int
	// FrameBytes is the most that one frame joins; a single piece may be larger. Default 1 MiB.
	FrameBytes int

	// CheckAfter are the times after subscribing to the bus, and after a reconnect of it, at which a topic compares its
	// tail with the log; after the last it does so every CheckEvery, or up to a quarter sooner. Default 0.25, 1 and 5 s.
	CheckAfter []time.Duration
	// CheckEvery defaults to 40 s.
	CheckEvery time.Duration
	// CheckGrace is how long a tail that is behind the log must stand still to be taken for a lost event rather than
	// one on its way. Default 100 ms.
	CheckGrace time.Duration
	// ReconnectSpread is the time over which the checks after a reconnect are spread. Default 1 s.
	ReconnectSpread time.Duration
	// Linger is how long a topic without subscribers stays subscribed to the bus. Default 5 s.
	Linger time.Duration

	// LogTimeout bounds one read of the log. Default 5 s.
	LogTimeout time.Duration
	// RetryMin and RetryMax bound the wait after a failed read: exponential, with full jitter below the bound that is
	// reached. Defaults 100 ms and 5 s.
	RetryMin, RetryMax time.Duration
	// ReplayReads is how many reads run at once for all sessions' replays, SessionReads for one session's. Defaults 64
	// and 4.
	ReplayReads, SessionReads int
	// TopicReads is how many reads run at once for fills and checks. Default 32.
	TopicReads int

	// Logger is slog.Default if nil.
	Logger *slog.Logger
	// Meter makes the instruments; default none.
	Meter metric.Meter
	// OnDeliver is called once per live event, with how many sessions it was queued to; never for replays. It is called
	// under a topic's lock: it must not block, call the hub, or keep the event.
	OnDeliver func(e *message.Event, subscribers int)
}

func (c *Config) setDefaults() {
	c.QueueBytes = cmp.Or(c.QueueBytes, 1<<20)
	c.QueueEvents = cmp.Or(c.QueueEvents, 4096)
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, 15*time.Second)
	c.MaxChannelsPerSession = cmp.Or(c.MaxChannelsPerSession, 500)
	c.MaxSessionsPerSubject = cmp.Or(c.MaxSessionsPerSubject, 100)
	c.ReplayFrameBytes = cmp.Or(c.ReplayFrameBytes, 64<<10)
	c.RecentBytes = cmp.Or(c.RecentBytes, 64<<20)
	c.FrameBytes = cmp.Or(c.FrameBytes, 1<<20)
	if c.CheckAfter == nil {
		c.CheckAfter = []time.Duration{250 * time.Millisecond, time.Second, 5 * time.Second}
	}
	c.CheckEvery = cmp.Or(c.CheckEvery, 40*time.Second)
	c.CheckGrace = cmp.Or(c.CheckGrace, 100*time.Millisecond)
	c.ReconnectSpread = cmp.Or(c.ReconnectSpread, time.Second)
	c.Linger = cmp.Or(c.Linger, 5*time.Second)
	c.LogTimeout = cmp.Or(c.LogTimeout, 5*time.Second)
	c.RetryMin = cmp.Or(c.RetryMin, 100*time.Millisecond)
	c.RetryMax = cmp.Or(c.RetryMax, 5*time.Second)
	c.ReplayReads = cmp.Or(c.ReplayReads, 64)
	c.SessionReads = cmp.Or(c.SessionReads, 4)
	c.TopicReads = cmp.Or(c.TopicReads, 32)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Meter == nil {
		c.Meter = noop.Meter{}
	}
}
