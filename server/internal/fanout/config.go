package fanout

import (
	"cmp"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/unread"
)

// Config configures a Hub. A zero field means the default.
type Config struct {
	// Node is the suffix of stream ids, after 26 characters, from which any node can tell where a
	// stream lives. It has up to 38 characters of A-Z a-z 0-9 _ -. The default is none.
	Node string
	// QueueBytes and QueueEvents bound the live events that wait for one stream's reader. A stream
	// that exceeds either is ended with SLOW_CONSUMER. One event is always accepted. The defaults are
	// 1 MiB and 4096.
	QueueBytes, QueueEvents int
	// Unread bounds what waits for all streams of a subject and of the node: live events, and the
	// frame that is being written. The first 64 KiB of each stream are not counted. A stream for which
	// there is nothing left is ended with SLOW_CONSUMER, unless no event waits for it. Nil means no
	// limit.
	Unread *unread.Budget
	// HeartbeatInterval is the maximum time without a frame. The default is 15 s.
	HeartbeatInterval time.Duration
	// MaxChannelsPerStream is the maximum number of channels of one stream. The default is 500.
	MaxChannelsPerStream int
	// MaxStreamsPerSubject is the maximum number of streams of one subject on this node. The
	// default is 100.
	MaxStreamsPerSubject int
	// MaxStreams is the maximum number of streams on this node; 0 means no limit.
	MaxStreams int
	// ReplayFrameBytes is the approximate size of replayed data in one frame, and of one read of
	// the log. The default is 64 KiB.
	ReplayFrameBytes int
	// ReplayPatience is how long a replay may go on without coming closer to the end of its log. After
	// half of it the subscriber gets the log's State again, then its stream is ended with
	// SLOW_CONSUMER. The default is 1 min.
	ReplayPatience time.Duration
	// RecentBytes is the approximate maximum memory for the latest events of all channels on this
	// node. They are kept for a few seconds, so that subscribers that come back need not read the log.
	// The default is 64 MiB.
	RecentBytes int
	// FrameBytes is the maximum size of a frame of several pieces; a single piece may be larger.
	// The default is 1 MiB.
	FrameBytes int

	// CheckAfter holds the times after a subscription to the bus, and after a reconnect of the bus, at
	// which a topic compares its tail, the last event that it delivered, with the log. After the last
	// one it does so every CheckEvery, or up to a quarter sooner. The default is 0.25, 1 and 5 s.
	CheckAfter []time.Duration
	// CheckEvery is the interval of later checks. The default is 40 s.
	CheckEvery time.Duration
	// CheckGrace is how long a tail that is behind the log must stand still before the missing
	// events count as lost rather than in flight. The default is 100 ms.
	CheckGrace time.Duration
	// ReconnectSpread is the time over which the checks after a reconnect are spread. The default
	// is 1 s.
	ReconnectSpread time.Duration
	// Linger is how long a channel without subscribers on this node stays subscribed to the bus. The
	// default is 5 s.
	Linger time.Duration

	// LogTimeout bounds one read of the log. The default is 5 s.
	LogTimeout time.Duration
	// RetryMin and RetryMax bound the delay after failed reads. The delay is random between zero
	// and a limit, which starts at RetryMin and doubles up to RetryMax. The defaults are 100 ms and
	// 5 s.
	RetryMin, RetryMax time.Duration
	// ReplayReads is the maximum number of concurrent reads for the replays of all streams,
	// StreamReads for those of one stream. The defaults are 64 and 4.
	ReplayReads, StreamReads int
	// TopicReads is the maximum number of concurrent reads of the log that fetch missing events or
	// check for them. The default is 32.
	TopicReads int

	// Texts reads the texts of open messages. If it is nil, a subscriber that begins in the middle of
	// one gets it when it is closed.
	Texts Texts
	// TextBytes bounds the memory for the texts of open messages on this node. What is beyond is sent
	// when the message is closed. The default is 128 MiB.
	TextBytes int64

	// Admission decides who may receive entries. Nil admits everyone.
	Admission Admission
	// Logger receives the logs. Nil means slog.Default.
	Logger *slog.Logger
	// Meter creates the instruments. The default records nothing.
	Meter metric.Meter
	// OnDeliver is called once per live event with the number of streams that it was queued to. It is
	// not called if there are none, and never for replays. It is called under a topic's lock: it must
	// not block, call the hub, or keep the event.
	OnDeliver func(e *message.Event, subscribers int)
}

func (c *Config) setDefaults() {
	c.QueueBytes = cmp.Or(c.QueueBytes, 1<<20)
	c.QueueEvents = cmp.Or(c.QueueEvents, 4096)
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, 15*time.Second)
	c.MaxChannelsPerStream = cmp.Or(c.MaxChannelsPerStream, 500)
	c.MaxStreamsPerSubject = cmp.Or(c.MaxStreamsPerSubject, 100)
	c.ReplayFrameBytes = cmp.Or(c.ReplayFrameBytes, 64<<10)
	c.ReplayPatience = cmp.Or(c.ReplayPatience, time.Minute)
	c.RecentBytes = cmp.Or(c.RecentBytes, 64<<20)
	c.FrameBytes = cmp.Or(c.FrameBytes, 1<<20)
	c.TextBytes = cmp.Or(c.TextBytes, 128<<20)
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
	c.StreamReads = cmp.Or(c.StreamReads, 4)
	c.TopicReads = cmp.Or(c.TopicReads, 32)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Meter == nil {
		c.Meter = noop.Meter{}
	}
}
