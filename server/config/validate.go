package config

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// checker collects the errors of a configuration.
type checker struct{ errs []error }

func (c *checker) checkf(ok bool, key, format string, args ...any) {
	if !ok {
		c.errs = append(c.errs, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
}

func (c *checker) between(key string, v, low, high int) {
	c.checkf(v >= low && v <= high, key, "is %d, must be %d to %d", v, low, high)
}

func (c *checker) lasts(key string, v, low, high time.Duration) {
	c.checkf(v >= low && v <= high, key, "is %v, must be %v to %v", v, low, high)
}

func (c *checker) oneOf(key, v string, values ...string) {
	c.checkf(slices.Contains(values, v), key, "is %q, must be one of %s", v, strings.Join(values, ", "))
}

func (c *checker) address(key, v string) {
	_, _, err := net.SplitHostPort(v)
	c.checkf(err == nil, key, "must be host:port")
}

func (c *checker) addresses(key string, list []string) {
	for i, v := range list {
		c.address(fmt.Sprintf("%s[%d]", key, i), v)
	}
}

func (c *checker) together(key, cert, private string) {
	c.checkf((cert == "") == (private == ""), key, "cert and key must both be set, or neither")
}

func (c *checker) httpURL(key, v string) {
	u, err := url.Parse(v)
	c.checkf(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", key, "must be an http or https URL")
}

// validate reports every invalid value to k. It checks what every server requires.
func (c *Config) validate(k *checker) {
	k.address("listen", c.Listen)
	k.address("ops_listen", c.OpsListen)
	k.between("shards", c.Shards, 1, 256)
	c.Redis.validate(k)
	c.Auth.validate(k)
	c.Limits.validate(k)
	c.Retention.validate(k)
	c.Queues.validate(k)
	c.Sessions.validate(k)
	c.Presence.validate(k)
	k.checkf(c.NATS.Replicas == 1 || c.NATS.Replicas == 3 || c.NATS.Replicas == 5, "nats.replicas",
		"is %d, must be 1, 3 or 5", c.NATS.Replicas)
	k.lasts("nats.max_age", c.NATS.MaxAge, time.Minute, 24*time.Hour)
	k.checkf(c.NATS.MaxBytes >= 16<<20 && c.NATS.MaxBytes <= 1<<40, "nats.max_bytes",
		"is %d, must be %d to %d bytes", c.NATS.MaxBytes, 16<<20, 1<<40)
	k.together("nats.tls", c.NATS.TLS.Cert, c.NATS.TLS.Key)
	for i, origin := range c.HTTP.CORSOrigins {
		k.checkf(origin == "*" || strings.HasPrefix(origin, "http://") || strings.HasPrefix(origin, "https://"),
			fmt.Sprintf("http.cors_origins[%d]", i), "must be * or an http or https origin")
	}
	if c.Telemetry.OTLPEndpoint != "" {
		k.httpURL("telemetry.otlp_endpoint", c.Telemetry.OTLPEndpoint)
	}
	k.checkf(c.Telemetry.TraceRatio >= 0 && c.Telemetry.TraceRatio <= 1, "telemetry.trace_ratio",
		"is %v, must be 0 to 1", c.Telemetry.TraceRatio)
	switch c.Log.Level {
	case "debug", "info", "warn", "error":
	default:
		k.checkf(false, "log.level", "is %q, must be debug, info, warn or error", c.Log.Level)
	}
	k.between("log.calls_per_second", c.Log.CallsPerSecond, 1, 1<<20)
	k.checkf(c.Log.Format == "json" || c.Log.Format == "text", "log.format", "is %q, must be json or text", c.Log.Format)
	k.together("tls", c.TLS.Cert, c.TLS.Key)
}

func (r *Redis) validate(k *checker) {
	k.between("redis.db", r.DB, 0, 1023)
	k.between("redis.pool_size", r.PoolSize, 1, 10_000)
	k.between("redis.min_idle_conns", r.MinIdleConns, 0, 10_000)
	k.between("redis.dial_timeout_ms", r.DialTimeoutMS, 1, 60_000)
	k.between("redis.read_timeout_ms", r.ReadTimeoutMS, 1, 60_000)
	k.between("redis.write_timeout_ms", r.WriteTimeoutMS, 1, 60_000)
	k.between("redis.message_cache_max_len", r.MessageCacheMaxLen, 1, 1000)
	k.checkf(!strings.ContainsAny(r.KeyPrefix, "{}* \t\r\n"), "redis.key_prefix", "must not contain braces, stars or white space")
	r.validateServers(k)
}

// validateServers checks the combination of keys that say where the servers are.
func (r *Redis) validateServers(k *checker) {
	sentinel, cluster := len(r.Sentinel.Addrs) > 0, len(r.Cluster.Addrs) > 0
	k.addresses("redis.sentinel.addrs", r.Sentinel.Addrs)
	k.addresses("redis.cluster.addrs", r.Cluster.Addrs)
	k.checkf(!sentinel || !cluster, "redis", "sentinel.addrs and cluster.addrs must not both be set")
	k.checkf(!sentinel && !cluster || r.Addr == "" || r.Addr == defaultRedisAddr, "redis.addr",
		"is ignored if sentinel.addrs or cluster.addrs is set: remove it")
	k.checkf(sentinel == (r.Sentinel.Master != ""), "redis.sentinel", "addrs and master must both be set, or neither")
	k.checkf(sentinel || r.Sentinel.Username == "" && r.Sentinel.Password == "", "redis.sentinel",
		"username and password require addrs: they are for the Sentinels")
	k.checkf(!cluster || r.DB == 0, "redis.db", "is %d, must be 0: a cluster has no other database", r.DB)

	t := &r.TLS
	k.together("redis.tls", t.Cert, t.Key)
	k.checkf(t.Enabled || t.CA == "" && t.Cert == "" && t.Key == "" && t.ServerName == "", "redis.tls.enabled",
		"must be true if ca, cert, key or server_name is set")
	k.checkf(!t.Enabled || sentinel || cluster || !filepath.IsAbs(r.Addr), "redis.tls.enabled",
		"must be false: redis.addr is a unix socket, which has no TLS")
}

func (l *Limits) validate(k *checker) {
	k.checkf(l.RequestsPerSecond > 0, "limits.requests_per_second", "is %v, must be above 0", l.RequestsPerSecond)
	k.between("limits.request_burst", l.RequestBurst, 1, 1<<30)
	k.between("limits.streams_per_subject", l.StreamsPerSubject, 1, 1<<30)
	k.between("limits.streams", l.Streams, 1, 1<<30)
	k.between("limits.channels_per_stream", l.ChannelsPerStream, 1, 100_000)
	k.between("limits.session_content_bytes", l.SessionContentBytes, 1<<10, 128<<10)
	// A stream's queue and a frame must hold the largest event: 128 KiB of text and its metadata.
	k.between("limits.stream_queue_bytes", l.StreamQueueBytes, 256<<10, 1<<30)
	k.between("limits.stream_queue_events", l.StreamQueueEvents, 1, 1<<20)
	k.between("limits.unread_bytes_per_subject", l.UnreadBytesPerSubject, 2<<20, 1<<40)
	k.between("limits.unread_bytes", l.UnreadBytes, l.UnreadBytesPerSubject, 1<<40)
	k.between("limits.frame_bytes", l.FrameBytes, 256<<10, 4<<20)
	// A request must hold the largest content with every byte escaped in JSON: 64 KiB, and in a
	// session 128 KiB.
	k.between("limits.send_read_bytes", l.SendReadBytes, 448<<10, 16<<20)
	k.between("limits.batch_read_bytes", l.BatchReadBytes, 1<<20, 64<<20)
	k.between("limits.other_read_bytes", l.OtherReadBytes, 4<<10, 16<<20)
	k.between("limits.header_bytes", l.HeaderBytes, 4<<10, 1<<20)
	k.between("limits.connection_streams", l.ConnectionStreams, 1, 1<<20)
	k.lasts("limits.unary_timeout", l.UnaryTimeout, time.Second, 10*time.Minute)
	k.lasts("limits.body_timeout", l.BodyTimeout, 100*time.Millisecond, 10*time.Minute)
	k.lasts("limits.header_timeout", l.HeaderTimeout, 100*time.Millisecond, 10*time.Minute)
	k.lasts("limits.idle_timeout", l.IdleTimeout, time.Second, 24*time.Hour)
	// A frame's deadline may have been set with an earlier frame, so it must be well above
	// the time between two heartbeats.
	k.lasts("limits.frame_timeout", l.FrameTimeout, 2*l.HeartbeatInterval, time.Hour)
	k.lasts("limits.heartbeat_interval", l.HeartbeatInterval, 100*time.Millisecond, 5*time.Minute)
	k.lasts("limits.drain_timeout", l.DrainTimeout, 0, 10*time.Minute)
}

// maxDuration is the largest duration of a setting: 100 years.
const maxDuration = 100 * 365 * 24 * time.Hour

func (r *Retention) validate(k *checker) {
	if r.MaxAge != 0 {
		k.lasts("retention.max_age", r.MaxAge, time.Minute, maxDuration)
	}
	k.checkf(r.MaxMessages >= 0 && r.MaxMessages < 1<<53, "retention.max_messages", "is %d, must be 0 to %d", r.MaxMessages, 1<<53-1)
	k.checkf(r.MaxBytes >= 0 && r.MaxBytes < 1<<53, "retention.max_bytes", "is %d, must be 0 to %d", r.MaxBytes, 1<<53-1)
	k.lasts("retention.idempotency_window", r.IdempotencyWindow, time.Hour, maxDuration)
}

func (q *Queues) validate(k *checker) {
	k.between("queues.consumers", q.Consumers, 1, 1<<20)
	k.between("queues.consumers_per_subject", q.ConsumersPerSubject, 1, 1<<20)
}

func (s *Sessions) validate(k *checker) {
	// The mirror of the texts keeps them for 15 minutes.
	k.lasts("sessions.open_timeout", s.OpenTimeout, 20*time.Second, 10*time.Minute)
}

func (p *Presence) validate(k *checker) {
	k.lasts("presence.ttl", p.TTL, time.Minute, 24*time.Hour)
	// The lease is renewed four times in its TTL, so the TTL must allow for a few slow answers.
	k.lasts("presence.lease_ttl", p.LeaseTTL, time.Second, 5*time.Minute)
	k.checkf(p.LeaseTTL <= p.TTL/2, "presence.lease_ttl", "is %v, must be at most half of presence.ttl", p.LeaseTTL)
	k.lasts("presence.offline_after", p.OfflineAfter, 0, 5*time.Minute)
	k.lasts("presence.flush_interval", p.FlushInterval, time.Millisecond, time.Second)
	k.between("presence.flush_users", p.FlushUsers, 1, 500)
	k.between("presence.workers", p.Workers, 1, 256)
	k.oneOf("presence.cache", p.Cache, "lru", "full")
	k.between("presence.cache_users", p.CacheUsers, 1024, 1<<30)
	k.lasts("presence.max_staleness", p.MaxStaleness, 100*time.Millisecond, time.Minute)
	k.oneOf("presence.login_policy", p.LoginPolicy, "all", "platform", "class", "single")
	k.oneOf("presence.watch", p.Watch, WatchAll, WatchSharedChannel)
	k.between("presence.connections", p.Connections, 1, 1<<30)
	k.between("presence.connections_per_subject", p.ConnectionsPerSubject, 1, 1<<30)
	// A request that watches as many as it may must be smaller than limits.batch_read_bytes.
	k.between("presence.watched_users", p.WatchedUsers, 1, 10_000)
	k.between("presence.watched_channels", p.WatchedChannels, 1, 1000)
}

// validateServe reports to k what `parleyd serve` requires in addition to validate.
func (c *Config) validateServe(k *checker) {
	u := c.Mongo.URI.Reveal()
	k.checkf(strings.HasPrefix(u, "mongodb://") || strings.HasPrefix(u, "mongodb+srv://"), "mongo.uri",
		"must be a mongodb:// or mongodb+srv:// URL")
	k.checkf(c.Mongo.Database != "" && !strings.ContainsAny(c.Mongo.Database, "/\\. \"$*<>:|?\x00"), "mongo.database",
		"must be the name of a database")
	k.checkf(c.Redis.Addr != "" || len(c.Redis.Sentinel.Addrs)+len(c.Redis.Cluster.Addrs) > 0, "redis.addr", "is empty")
	k.checkf(c.NATS.URL != "", "nats.url", "is empty")
	k.checkf(c.Auth.hasKeys(), "auth", "one of hs256_secret, hs256_secrets, public_keys, jwks_url and jwks must be set")
	k.checkf(c.DataDir == defaultDataDir, "data_dir", "has no effect, because serve stores nothing on disk: remove it")
}
