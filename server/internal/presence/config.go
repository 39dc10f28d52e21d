package presence

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// Config configures a Hub. Store, Bus, Owner and Node are required; another zero field means the
// default.
type Config struct {
	Store Store
	Bus   Bus
	Owner Owner
	// Members reads the members of channels, for WatchChannel. Nil means that no channel can be
	// watched.
	Members Members
	// Node is this node's id: the suffix of stream ids, after 26 characters, and the beginning of
	// the presence id. It has up to 38 characters of A-Z a-z 0-9 _ -.
	Node string

	// TTL is how long the store keeps a part that is not renewed. The default is 30 min.
	TTL time.Duration
	// LeaseTTL is how long a node may be silent before it is declared dead. The default is 4 s.
	LeaseTTL time.Duration
	// OfflineAfter is how long a platform stays online after its last connection was lost. The
	// default is 1 s; negative means none.
	OfflineAfter time.Duration
	// FlushInterval and FlushUsers bound how long a change waits while others are written: it is
	// written after this time, or when this many users are waiting. Without waiting changes it is
	// written at once. The defaults are 10 ms and 100.
	FlushInterval time.Duration
	FlushUsers    int
	// Workers is the number of concurrent writers. The default is 8.
	Workers int
	// StoreTimeout bounds one step of the store. The default is 2 s.
	StoreTimeout time.Duration
	// Cache is how the states of users that nobody watches are kept. The default is CacheLRU.
	Cache CacheMode
	// CacheUsers is the number of users that CacheLRU keeps. The default is 2,097,152.
	CacheUsers int
	// MaxStaleness is the maximum age of an answer, by the store's clock. The default is 2 s.
	MaxStaleness time.Duration
	// Policy is the login policy. The default is PolicyAll.
	Policy Policy

	// HeartbeatInterval is the maximum time without a frame. The default is 15 s.
	HeartbeatInterval time.Duration
	// MaxStreams is the maximum number of streams with presence on this node; 0 means no limit.
	MaxStreams int
	// MaxPerSubject is the maximum number of streams of one subject on this node. The default is 64.
	MaxPerSubject int
	// MaxWatched is the maximum number of users that one stream watches. The default is 1,000.
	MaxWatched int
	// MaxChannels is the maximum number of channels that one stream watches. The default is 20.
	MaxChannels int
	// ChannelMembers is the number of members above which a watched channel is only counted. The
	// default is 1,000.
	ChannelMembers int

	Logger *slog.Logger
	Meter  metric.Meter
	Tracer trace.Tracer
}

// CacheMode is how a node keeps the states of users.
type CacheMode string

// The modes.
const (
	// CacheLRU keeps users that were asked for.
	CacheLRU CacheMode = "lru"
	// CacheFull keeps all users that are online.
	CacheFull CacheMode = "full"
)

func (c *Config) setDefaults() {
	c.TTL = cmp.Or(c.TTL, 30*time.Minute)
	c.LeaseTTL = cmp.Or(c.LeaseTTL, 4*time.Second)
	c.OfflineAfter = max(cmp.Or(c.OfflineAfter, time.Second), 0)
	c.FlushInterval = cmp.Or(c.FlushInterval, 10*time.Millisecond)
	c.FlushUsers = cmp.Or(c.FlushUsers, 100)
	c.Workers = cmp.Or(c.Workers, 8)
	c.StoreTimeout = cmp.Or(c.StoreTimeout, 2*time.Second)
	c.Cache = cmp.Or(c.Cache, CacheLRU)
	c.CacheUsers = cmp.Or(c.CacheUsers, 1024*2048)
	c.MaxStaleness = cmp.Or(c.MaxStaleness, 2*time.Second)
	c.Policy = cmp.Or(c.Policy, PolicyAll)
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, 15*time.Second)
	c.MaxPerSubject = cmp.Or(c.MaxPerSubject, 64)
	c.MaxWatched = cmp.Or(c.MaxWatched, 1000)
	c.MaxChannels = cmp.Or(c.MaxChannels, 20)
	c.ChannelMembers = cmp.Or(c.ChannelMembers, 1000)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Meter == nil {
		c.Meter = metricnoop.Meter{}
	}
	if c.Tracer == nil {
		c.Tracer = tracenoop.Tracer{}
	}
}

// Members reads the members of channels. It is safe for concurrent use.
type Members interface {
	// Members returns up to limit members of a channel after the member after, ordered by user id. The
	// first page, which is after the empty id, also has the number of all members, and fails with
	// CHANNEL_NOT_FOUND, or with CHANNEL_OPEN for an open channel. total is 0 for the others.
	Members(ctx context.Context, channelID, after string, limit int) (users []string, total int, err error)
}
