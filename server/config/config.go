// Package config reads the server's configuration: one YAML file, overridden by environment
// variables.
//
// Every key has a variable, named PARLEY_ and the key's path in upper case with `_` for each dot:
// `redis.pool_size` is PARLEY_REDIS_POOL_SIZE. The items of a list of strings are separated by
// commas. A list whose items have keys, such as auth.jwks, is written in YAML. A key
// of type Secret or SecretURL has a second variable, whose name ends in `_FILE`, with the path of a
// file that holds the value. Unknown keys and unknown PARLEY_ variables are errors, except for the
// variables of Parley's clients and those that Kubernetes sets for its Services. All errors are
// reported at once.
package config

import (
	_ "embed"
	"time"
)

// Config is the server's configuration. Sizes are in bytes unless the name says otherwise.
type Config struct {
	// Listen is the host:port of the API: Connect, gRPC and gRPC-Web on one port. Port 0 lets the
	// system choose.
	Listen string `yaml:"listen"`
	// OpsListen is the host:port of health, metrics and pprof. It belongs on loopback or a private
	// network.
	OpsListen string `yaml:"ops_listen"`
	// DataDir is the directory of `parleyd dev`'s stores. `parleyd serve` stores nothing on disk
	// and rejects any value except the default.
	DataDir string `yaml:"data_dir"`
	// Shards is the number of message collections and change feeds, 1 to 256. It is fixed when a
	// store is created.
	Shards    int       `yaml:"shards"`
	Mongo     Mongo     `yaml:"mongo"`
	Redis     Redis     `yaml:"redis"`
	NATS      NATS      `yaml:"nats"`
	Auth      Auth      `yaml:"auth"`
	HTTP      HTTP      `yaml:"http"`
	Limits    Limits    `yaml:"limits"`
	Channels  Channels  `yaml:"channels"`
	Retention Retention `yaml:"retention"`
	Queues    Queues    `yaml:"queues"`
	Sessions  Sessions  `yaml:"sessions"`
	Presence  Presence  `yaml:"presence"`
	Telemetry Telemetry `yaml:"telemetry"`
	Log       Log       `yaml:"log"`
	TLS       TLS       `yaml:"tls"`
}

// Mongo configures the message store of record.
type Mongo struct {
	// URI is the URL of a replica set.
	URI SecretURL `yaml:"uri"`
	// Database is the database of all of Parley's collections.
	Database string `yaml:"database"`
}

// Redis configures the Redis that holds the message cache, the work queues and presence.
type Redis struct {
	// Addr is a host:port or the path of a unix socket. It is ignored if Sentinel.Addrs or
	// Cluster.Addrs is set.
	Addr string `yaml:"addr"`
	// Username is an ACL user. Empty means the default user.
	Username string `yaml:"username"`
	Password Secret `yaml:"password"`
	// DB is the number of the database. A cluster has only 0.
	DB int `yaml:"db"`
	// PoolSize is the maximum number of connections to each server.
	PoolSize int `yaml:"pool_size"`
	// MinIdleConns is how many idle connections are kept open, at most PoolSize.
	MinIdleConns   int `yaml:"min_idle_conns"`
	DialTimeoutMS  int `yaml:"dial_timeout_ms"`
	ReadTimeoutMS  int `yaml:"read_timeout_ms"`
	WriteTimeoutMS int `yaml:"write_timeout_ms"`
	// MessageCacheMaxLen is the maximum number of messages in a session's list: 1 to 1000.
	MessageCacheMaxLen int `yaml:"message_cache_max_len"`
	// FailOpen admits tokens while neither the store nor Redis can tell whether they were revoked.
	// Otherwise calls fail with REVOCATION_UNKNOWN meanwhile.
	FailOpen bool `yaml:"fail_open"`
	// KeyPrefix is prepended to every key, for a Redis shared with other programs. Empty means none.
	KeyPrefix string `yaml:"key_prefix"`
	// AllowVolatile accepts a Redis without persistence. Otherwise the server refuses to start.
	AllowVolatile bool          `yaml:"allow_volatile"`
	TLS           RedisTLS      `yaml:"tls"`
	Sentinel      RedisSentinel `yaml:"sentinel"`
	Cluster       RedisCluster  `yaml:"cluster"`
}

// RedisTLS configures TLS for connections to Redis servers and Sentinels. The files are read again
// when they change.
type RedisTLS struct {
	Enabled bool `yaml:"enabled"`
	// CA is the path of a PEM file with trusted certificates. Empty means those of the system.
	CA string `yaml:"ca"`
	// Cert and Key are the paths of PEM files with the certificate and key that this server shows to
	// Redis. Empty means none.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	// ServerName is the name that the servers' certificates must have. Empty means the host of each
	// address.
	ServerName string `yaml:"server_name"`
}

// RedisSentinel names the Sentinels of a replicated Redis. It is used if Addrs is set.
type RedisSentinel struct {
	// Addrs are the host:port of the Sentinels. One that answers is enough.
	Addrs []string `yaml:"addrs"`
	// Master is the name of the monitored server.
	Master string `yaml:"master"`
	// Username and Password are for the Sentinels. Redis.Username and Redis.Password are for the
	// servers.
	Username string `yaml:"username"`
	Password Secret `yaml:"password"`
}

// RedisCluster names nodes of a Redis cluster. It is used if Addrs is set.
type RedisCluster struct {
	// Addrs are the host:port of some nodes, or of the cluster's configuration endpoint. The other
	// nodes are discovered.
	Addrs []string `yaml:"addrs"`
}

// NATS configures the transport of change events.
type NATS struct {
	// URL is the URL of a server, or several URLs separated by commas.
	URL SecretURL `yaml:"url"`
	// CredentialsFile is the path of a NATS credentials file. Empty means none.
	CredentialsFile string `yaml:"credentials_file"`
	// Replicas is the number of NATS servers that store each event: 1, 3 or 5.
	Replicas int `yaml:"replicas"`
	// MaxAge is how long the event stream keeps an event: 1 minute to 24 h. The limit makes sure
	// that recalled text is gone after that.
	MaxAge time.Duration `yaml:"max_age"`
	// MaxBytes is the size of the event stream in bytes: 16 MiB to 1 TiB. Beyond it the oldest events
	// are removed. JetStream reserves it on each replica.
	MaxBytes int64   `yaml:"max_bytes"`
	TLS      NATSTLS `yaml:"tls"`
}

// NATSTLS configures TLS for connections to NATS servers. TLS is used if CA or Cert is set, if the
// URL begins with tls://, or if a server requires it. The files are read again when they change.
type NATSTLS struct {
	// CA is the path of a PEM file with trusted certificates. Empty means those of the system.
	CA string `yaml:"ca"`
	// Cert and Key are the paths of PEM files with the certificate and key that this server shows to
	// NATS. Empty means none.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// HTTP configures what the API's address serves besides calls, and which browsers may call.
type HTTP struct {
	// Page serves the chat page at `/` of the API's address, the assistant page at `/assistant`,
	// the queue page at `/queues` and `/parley.js`. They require no token.
	Page bool `yaml:"page"`
	// Reflection serves gRPC server reflection, with which tools such as grpcurl read the schema.
	// It requires no token.
	Reflection bool `yaml:"reflection"`
	// CORSOrigins are the origins that may call from a browser. `*` allows all; empty allows none.
	CORSOrigins []string `yaml:"cors_origins"`
}

// Limits protect a node against abuse. They apply per node. `parleyd dev` raises the rates and the
// numbers of streams.
type Limits struct {
	// RequestsPerSecond and RequestBurst limit the calls of one subject. Each message of a batch
	// counts as a call, and each user of a call that Presence.Watch restricts.
	RequestsPerSecond float64 `yaml:"requests_per_second"`
	RequestBurst      int     `yaml:"request_burst"`
	// StreamsPerSubject and Streams limit the live Subscribe streams of one subject and of the
	// node.
	StreamsPerSubject int `yaml:"streams_per_subject"`
	Streams           int `yaml:"streams"`
	// ChannelsPerStream limits the channels of one Subscribe stream.
	ChannelsPerStream int `yaml:"channels_per_stream"`
	// SessionContentBytes limits the content of a message of a session: at most 128 KiB, the default.
	SessionContentBytes int `yaml:"session_content_bytes"`
	// StreamQueueBytes and StreamQueueEvents limit the live events that wait for one Subscribe
	// stream. A stream that exceeds either ends.
	StreamQueueBytes  int `yaml:"stream_queue_bytes"`
	StreamQueueEvents int `yaml:"stream_queue_events"`
	// UnreadBytesPerSubject and UnreadBytes limit the bytes that the clients of one subject, and all
	// clients of the node, do not take from their connections. A unary response counts with its size
	// and 32 KiB for its call, and a Subscribe stream with what waits for it beyond its first 64 KiB.
	// Above either, a response is dropped and a stream ends, so that it is read again later. The last
	// eighth is for unary responses below 16 KiB. The memory that they occupy is up to three times as
	// much.
	UnreadBytesPerSubject int `yaml:"unread_bytes_per_subject"`
	UnreadBytes           int `yaml:"unread_bytes"`
	// FrameBytes limits the size of a frame into which events are joined.
	FrameBytes int `yaml:"frame_bytes"`
	// SendReadBytes, BatchReadBytes and OtherReadBytes limit a request after decompression.
	// SendReadBytes is for SendMessage and EditMessage, BatchReadBytes for batches, subscriptions
	// and lists of members or deliveries, OtherReadBytes for all other calls.
	SendReadBytes  int `yaml:"send_read_bytes"`
	BatchReadBytes int `yaml:"batch_read_bytes"`
	OtherReadBytes int `yaml:"other_read_bytes"`
	HeaderBytes    int `yaml:"header_bytes"`
	// ConnectionStreams limits the concurrent calls of one HTTP/2 connection.
	ConnectionStreams int `yaml:"connection_streams"`
	// UnaryTimeout limits a call, regardless of its own deadline. BodyTimeout limits the time to
	// read a request's body. FrameTimeout limits the time to write one frame to a subscriber; it is
	// at least twice HeartbeatInterval.
	UnaryTimeout time.Duration `yaml:"unary_timeout"`
	BodyTimeout  time.Duration `yaml:"body_timeout"`
	FrameTimeout time.Duration `yaml:"frame_timeout"`
	// HeaderTimeout limits the time to read a request's header. IdleTimeout is how long a
	// connection without a call stays open.
	HeaderTimeout time.Duration `yaml:"header_timeout"`
	IdleTimeout   time.Duration `yaml:"idle_timeout"`
	// HeartbeatInterval is the longest time without a frame on a stream. A stream with nothing to
	// send sends a heartbeat.
	HeartbeatInterval time.Duration `yaml:"heartbeat_interval"`
	// DrainTimeout limits a graceful shutdown.
	DrainTimeout time.Duration `yaml:"drain_timeout"`
}

// Channels configures which channels there are.
type Channels struct {
	// CreateOnSend lets the first send create an open channel. Without it, every use of a channel
	// that was not created fails with CHANNEL_NOT_FOUND. So does the use of a members-only channel
	// by others than its members.
	CreateOnSend bool `yaml:"create_on_send"`
}

// Retention configures how long messages are kept. MaxAge, MaxMessages and MaxBytes are the policy
// of the channels without one of their own. 0 means no limit.
type Retention struct {
	// MaxAge is the age at which messages expire: 1 minute or more.
	MaxAge time.Duration `yaml:"max_age"`
	// MaxMessages is how many messages of a channel are kept.
	MaxMessages int64 `yaml:"max_messages"`
	// MaxBytes limits the size of the messages and edits that are kept of a channel, which count 256
	// bytes each besides their text and metadata.
	MaxBytes int64 `yaml:"max_bytes"`
	// IdempotencyWindow is how long the client_msg_id of an expired message is remembered at least,
	// from its send on: 1 hour or more.
	IdempotencyWindow time.Duration `yaml:"idempotency_window"`
}

// Queues configures the consumers of work queues.
type Queues struct {
	// Consumers and ConsumersPerSubject limit the live consumer streams of the node and of one
	// subject on it.
	Consumers           int `yaml:"consumers"`
	ConsumersPerSubject int `yaml:"consumers_per_subject"`
}

// Sessions configures the conversations of users with assistants.
type Sessions struct {
	// OpenTimeout is how long an open message may be without a delta before it is closed as failed: 20
	// s to 10 min. The SDKs send one every 15 s.
	OpenTimeout time.Duration `yaml:"open_timeout"`
}

// Presence configures who is online, and who may know.
type Presence struct {
	// TTL is how long Redis keeps that a user is online if no node confirms it: 1 min to 24 h.
	TTL time.Duration `yaml:"ttl"`
	// LeaseTTL is how long a node may be silent before its users are offline: 1 s to 5 min.
	LeaseTTL time.Duration `yaml:"lease_ttl"`
	// OfflineAfter is how long a platform stays online after its last connection was lost: up to 5
	// min. 0 means none.
	OfflineAfter time.Duration `yaml:"offline_after"`
	// FlushInterval and FlushUsers bound how long a change waits while others are written: it is
	// written after this time, or when this many users are waiting.
	FlushInterval time.Duration `yaml:"flush_interval"`
	FlushUsers    int           `yaml:"flush_users"`
	// Workers is the number of concurrent writers, 1 to 256.
	Workers int `yaml:"workers"`
	// Cache is lru, which keeps the states of users that were asked for, or full, which keeps all
	// users that are online. CacheUsers bounds the users that lru keeps.
	Cache      string `yaml:"cache"`
	CacheUsers int    `yaml:"cache_users"`
	// MaxStaleness is the maximum age of an answer: 100 ms to 1 min.
	MaxStaleness time.Duration `yaml:"max_staleness"`
	// LoginPolicy is how many logins of a user are valid at a time: all, platform (one per platform),
	// class (one per class of platforms) or single.
	LoginPolicy string `yaml:"login_policy"`
	// Watch is whose presence a user may read and watch: all, or shared_channel, which is those with
	// whom the user shares a members-only channel. Of the reader's channels, the first 2,000 by id
	// count. Holders of the action `list` may read everyone.
	//
	// The limit is checked in GetPresence, and in Connect, Subscribe and UpdateWatch for the users
	// that are added. It is not checked again: a watch stays until the client removes it or the stream
	// ends, even if the two users no longer share a channel. WatchChannel is not limited further. It
	// requires to be a member of the channel or to hold `manage`, and ends with the membership.
	Watch string `yaml:"watch"`
	// Connections and ConnectionsPerSubject limit the live streams with presence of the node and of
	// one subject on it.
	Connections           int `yaml:"connections"`
	ConnectionsPerSubject int `yaml:"connections_per_subject"`
	// WatchedUsers and WatchedChannels limit what one stream watches.
	WatchedUsers    int `yaml:"watched_users"`
	WatchedChannels int `yaml:"watched_channels"`
}

// The values of Presence.Watch.
const (
	WatchAll           = "all"
	WatchSharedChannel = "shared_channel"
)

// Telemetry configures tracing. Metrics are always served on the ops address.
type Telemetry struct {
	// OTLPEndpoint is a collector's base URL for OTLP over HTTP. Empty disables the export.
	OTLPEndpoint string `yaml:"otlp_endpoint"`
	// TraceRatio is the share of requests that are traced, from 0 to 1.
	TraceRatio float64 `yaml:"trace_ratio"`
}

// Log configures the server's log, which goes to standard error.
type Log struct {
	// Level is debug, info, warn or error.
	Level string `yaml:"level"`
	// Format is json or text.
	Format string `yaml:"format"`
	// CallsPerSecond limits the records about failed calls and broken connections, which clients can
	// cause at any rate: on average; ten times as many at once. Internal errors are always logged.
	CallsPerSecond int `yaml:"calls_per_second"`
}

// TLS holds the paths of PEM files with the API's certificate and its key. Both or none must be
// set. Without them the API is served in plain text, for a proxy that terminates TLS. The files are
// read again when they change.
type TLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

//go:embed config.example.yaml
var example []byte

// Example returns a commented configuration file with every key at its default.
func Example() []byte { return append([]byte(nil), example...) }

const (
	defaultDataDir   = "parley-data"
	defaultRedisAddr = "127.0.0.1:6379"
)

// Default returns the configuration of an empty file. It has no key for tokens, which `parleyd
// serve` requires.
func Default() Config {
	return Config{
		Listen:    "127.0.0.1:8080",
		OpsListen: "127.0.0.1:8081",
		DataDir:   defaultDataDir,
		Shards:    4,
		Mongo:     Mongo{URI: "mongodb://127.0.0.1:27017/?replicaSet=rs0", Database: "parley"},
		Redis: Redis{
			Addr: defaultRedisAddr, PoolSize: 50, MinIdleConns: 10, DialTimeoutMS: 3000, ReadTimeoutMS: 3000,
			WriteTimeoutMS: 3000, MessageCacheMaxLen: 200,
			Sentinel: RedisSentinel{Addrs: []string{}}, Cluster: RedisCluster{Addrs: []string{}},
		},
		NATS: NATS{URL: "nats://127.0.0.1:4222", Replicas: 1, MaxAge: 24 * time.Hour, MaxBytes: 1 << 30},
		Auth: Auth{HS256Secrets: []HS256Secret{}, PublicKeys: []string{}, JWKS: []JWKS{}, MaxTokenLife: 24 * time.Hour},
		HTTP: HTTP{Page: true, Reflection: true, CORSOrigins: []string{}},
		Limits: Limits{
			RequestsPerSecond: 20_000, RequestBurst: 40_000,
			StreamsPerSubject: 100, Streams: 10_000, ChannelsPerStream: 500, SessionContentBytes: 128 << 10,
			StreamQueueBytes: 1 << 20, StreamQueueEvents: 4096, FrameBytes: 1 << 20,
			UnreadBytesPerSubject: 64 << 20, UnreadBytes: 512 << 20,
			SendReadBytes: 512 << 10, BatchReadBytes: 2 << 20, OtherReadBytes: 64 << 10,
			HeaderBytes: 16 << 10, ConnectionStreams: 250,
			UnaryTimeout: 30 * time.Second, BodyTimeout: 10 * time.Second, FrameTimeout: 60 * time.Second,
			HeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute,
			HeartbeatInterval: 15 * time.Second, DrainTimeout: 10 * time.Second,
		},
		Channels:  Channels{CreateOnSend: true},
		Retention: Retention{IdempotencyWindow: 7 * 24 * time.Hour},
		Queues:    Queues{Consumers: 1000, ConsumersPerSubject: 1000},
		Sessions:  Sessions{OpenTimeout: time.Minute},
		Presence: Presence{
			TTL: 30 * time.Minute, LeaseTTL: 4 * time.Second, OfflineAfter: time.Second,
			FlushInterval: 10 * time.Millisecond, FlushUsers: 100, Workers: 8,
			Cache: "lru", CacheUsers: 2 << 20, MaxStaleness: 2 * time.Second, LoginPolicy: "all", Watch: WatchAll,
			Connections: 100_000, ConnectionsPerSubject: 64, WatchedUsers: 1000, WatchedChannels: 20,
		},
		Telemetry: Telemetry{TraceRatio: 0.01},
		Log:       Log{Level: "info", Format: "json", CallsPerSecond: 100},
	}
}
