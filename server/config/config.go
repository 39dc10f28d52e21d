// Package config is the server's whole configuration: one YAML file, overridden by environment variables.
//
// Every key of the file has a variable: its path in upper case, with `_` for the dots, behind `PARLEY_`. So
// `redis.pool_size` is PARLEY_REDIS_POOL_SIZE. A list is written with commas. A key of type Secret or SecretURL has a
// second variable, with `_FILE` at its end, which names a file that holds the value. Unknown keys and unknown PARLEY_
// variables are errors, except those that Kubernetes sets for its Services. All errors are reported at once.
package config

import (
	_ "embed"
	"time"
)

// Config is everything that an operator may set. Sizes are bytes unless the name says otherwise.
type Config struct {
	// Listen is the address of the API: Connect, gRPC and gRPC-Web on one port.
	Listen string `yaml:"listen"`
	// OpsListen is the address of health, metrics and pprof. It belongs on loopback or a private network.
	OpsListen string `yaml:"ops_listen"`
	// DataDir is the directory in which `parleyd dev` keeps its stores. `parleyd serve` keeps nothing on disk and refuses
	// any other value than the default.
	DataDir string `yaml:"data_dir"`
	// Buckets is the number of message collections and change feeds. It is fixed when a store is made.
	Buckets   int       `yaml:"buckets"`
	Mongo     Mongo     `yaml:"mongo"`
	Redis     Redis     `yaml:"redis"`
	NATS      NATS      `yaml:"nats"`
	Auth      Auth      `yaml:"auth"`
	HTTP      HTTP      `yaml:"http"`
	Limits    Limits    `yaml:"limits"`
	Queues    Queues    `yaml:"queues"`
	Telemetry Telemetry `yaml:"telemetry"`
	Log       Log       `yaml:"log"`
	TLS       TLS       `yaml:"tls"`
}

// Mongo is the message store of record.
type Mongo struct {
	// URI names a replica set.
	URI SecretURL `yaml:"uri"`
	// Database holds all of Parley's collections.
	Database string `yaml:"database"`
}

// Redis holds the message cache and the work queues.
type Redis struct {
	// Addr is host:port, or the path of a unix socket. It is not used if Sentinel.Addrs or Cluster.Addrs is set.
	Addr string `yaml:"addr"`
	// Username is an ACL user; empty is the default user.
	Username string `yaml:"username"`
	Password Secret `yaml:"password"`
	// DB is the number of the database; a cluster has only 0.
	DB int `yaml:"db"`
	// PoolSize is the most connections of the command pool.
	PoolSize       int `yaml:"pool_size"`
	MinIdleConns   int `yaml:"min_idle_conns"`
	DialTimeoutMS  int `yaml:"dial_timeout_ms"`
	ReadTimeoutMS  int `yaml:"read_timeout_ms"`
	WriteTimeoutMS int `yaml:"write_timeout_ms"`
	// MessageCacheMaxLen is the most messages that a session chat's hot list holds. Session chats are not served yet.
	MessageCacheMaxLen int `yaml:"message_cache_max_len"`
	// FailOpen lets tokens in while the list of revoked ones can't be reached. There is no such list yet.
	FailOpen bool `yaml:"fail_open"`
	// KeyPrefix stands in front of every key, for a Redis that others use too.
	KeyPrefix string `yaml:"key_prefix"`
	// AllowVolatile accepts a Redis without persistence.
	AllowVolatile bool          `yaml:"allow_volatile"`
	TLS           RedisTLS      `yaml:"tls"`
	Sentinel      RedisSentinel `yaml:"sentinel"`
	Cluster       RedisCluster  `yaml:"cluster"`
}

// RedisTLS is TLS to every Redis server, Sentinels included. The files are read again when they change.
type RedisTLS struct {
	Enabled bool `yaml:"enabled"`
	// CA is a PEM file with the certificates to trust; empty trusts those of the system.
	CA string `yaml:"ca"`
	// Cert and Key are the client's certificate, in PEM files; empty for none.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	// ServerName is the name that the servers' certificates must have; empty is the host of each address.
	ServerName string `yaml:"server_name"`
}

// RedisSentinel names the Sentinels of a replicated Redis. It is used if Addrs is set.
type RedisSentinel struct {
	// Addrs are the Sentinels' host:port; one that answers is enough.
	Addrs []string `yaml:"addrs"`
	// Master is the name of the monitored server.
	Master string `yaml:"master"`
	// Username and Password are for the Sentinels themselves; Redis.Username and Redis.Password are for the servers.
	Username string `yaml:"username"`
	Password Secret `yaml:"password"`
}

// RedisCluster names nodes of a Redis cluster. It is used if Addrs is set.
type RedisCluster struct {
	// Addrs are the host:port of some nodes, or of the cluster's configuration endpoint; the rest is discovered.
	Addrs []string `yaml:"addrs"`
}

// NATS carries the change events.
type NATS struct {
	// URL is one server or several, with commas between them.
	URL SecretURL `yaml:"url"`
	// CredentialsFile is a NATS credentials file; empty for none.
	CredentialsFile string `yaml:"credentials_file"`
	// Replicas is how many servers keep each event: 1, 3 or 5.
	Replicas int `yaml:"replicas"`
	// MaxAge is how long the event stream keeps an event; at most 24 h, so that recalled text is gone after that.
	MaxAge time.Duration `yaml:"max_age"`
	TLS    NATSTLS       `yaml:"tls"`
}

// NATSTLS is TLS to the NATS servers. It is used if CA or Cert is set, if the URL says tls://, and if a server requires
// it. The files are read again when they change.
type NATSTLS struct {
	// CA is a PEM file with the certificates to trust; empty trusts those of the system.
	CA string `yaml:"ca"`
	// Cert and Key are the client's certificate, in PEM files; empty for none.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// Auth says which tokens hold. One source of keys at least must be set to serve.
type Auth struct {
	// HS256Secret signs and checks HS256 tokens; at least 32 bytes.
	HS256Secret Secret `yaml:"hs256_secret"`
	// PublicKeys are PEM files with RSA, P-256 or Ed25519 public keys.
	PublicKeys []string `yaml:"public_keys"`
	// JWKSURL serves public keys that rotate.
	JWKSURL string `yaml:"jwks_url"`
	// Issuer is what `iss` must be; empty accepts any.
	Issuer string `yaml:"issuer"`
	// Audience is what `aud` must hold; empty accepts any.
	Audience string `yaml:"audience"`
}

// HTTP is about what the API's address serves besides the calls, and about browsers.
type HTTP struct {
	// Page serves the chat page at `/` of the API's address, to anybody.
	Page bool `yaml:"page"`
	// Reflection serves gRPC server reflection, to anybody. Tools such as grpcurl read the schema with it.
	Reflection bool `yaml:"reflection"`
	// CORSOrigins are the origins that may call from a browser, `*` for all; none by default.
	CORSOrigins []string `yaml:"cors_origins"`
}

// Limits are about abuse. `parleyd dev` raises the rates.
type Limits struct {
	// RequestsPerSecond and RequestBurst bound the calls of one subject on one node; a message of a batch costs as much
	// as a call.
	RequestsPerSecond float64 `yaml:"requests_per_second"`
	RequestBurst      int     `yaml:"request_burst"`
	// StreamsPerSubject and Streams bound the live Subscribe streams of one subject, and of the node.
	StreamsPerSubject int `yaml:"streams_per_subject"`
	Streams           int `yaml:"streams"`
	// ChannelsPerStream bounds the channels of one Subscribe stream.
	ChannelsPerStream int `yaml:"channels_per_stream"`
	// StreamQueueBytes and StreamQueueEvents bound the events that wait for one Subscribe stream, which ends beyond them.
	StreamQueueBytes  int `yaml:"stream_queue_bytes"`
	StreamQueueEvents int `yaml:"stream_queue_events"`
	// FrameBytes is where a frame of events is cut.
	FrameBytes int `yaml:"frame_bytes"`
	// SendReadBytes, BatchReadBytes and OtherReadBytes bound a request's size after decompression: SendMessage and
	// EditMessage; batches, subscriptions and lists of members or deliveries; all others.
	SendReadBytes  int `yaml:"send_read_bytes"`
	BatchReadBytes int `yaml:"batch_read_bytes"`
	OtherReadBytes int `yaml:"other_read_bytes"`
	HeaderBytes    int `yaml:"header_bytes"`
	// ConnectionStreams bounds the concurrent calls of one HTTP/2 connection.
	ConnectionStreams int `yaml:"connection_streams"`
	// UnaryTimeout bounds a call whatever deadline it asks for; BodyTimeout the reading of its body; FrameTimeout the
	// writing of one frame to a subscriber.
	UnaryTimeout time.Duration `yaml:"unary_timeout"`
	BodyTimeout  time.Duration `yaml:"body_timeout"`
	FrameTimeout time.Duration `yaml:"frame_timeout"`
	// HeaderTimeout bounds the reading of a request's header, IdleTimeout the time that a connection is kept without a
	// call.
	HeaderTimeout time.Duration `yaml:"header_timeout"`
	IdleTimeout   time.Duration `yaml:"idle_timeout"`
	// HeartbeatInterval is how often a stream says that it lives when it has nothing else to say.
	HeartbeatInterval time.Duration `yaml:"heartbeat_interval"`
	// DrainTimeout bounds a graceful shutdown.
	DrainTimeout time.Duration `yaml:"drain_timeout"`
}

// Queues is about the consumers of work queues. What is about abuse is per node.
type Queues struct {
	// LeaseTTL is how long a partition stays with a consumer whose node has died.
	LeaseTTL time.Duration `yaml:"lease_ttl"`
	// Consumers and ConsumersPerSubject bound the live consumer streams of the node, and of one subject.
	Consumers           int `yaml:"consumers"`
	ConsumersPerSubject int `yaml:"consumers_per_subject"`
}

// Telemetry is where traces go. Metrics are always served on the ops address.
type Telemetry struct {
	// OTLPEndpoint is a collector's base URL for OTLP over HTTP; empty sends nothing.
	OTLPEndpoint string `yaml:"otlp_endpoint"`
	// TraceRatio is the share of requests that are traced, 0 to 1.
	TraceRatio float64 `yaml:"trace_ratio"`
}

// Log is the server's own log, on standard error.
type Log struct {
	// Level is debug, info, warn or error.
	Level string `yaml:"level"`
	// Format is json or text.
	Format string `yaml:"format"`
}

// TLS serves the API over TLS where both files are set; else in the clear, for a proxy that ends TLS. The files are read
// again when they change.
type TLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

//go:embed config.example.yaml
var example []byte

// Example gives a commented configuration file that holds every key with its default.
func Example() []byte { return append([]byte(nil), example...) }

const (
	defaultDataDir   = "parley-data"
	defaultRedisAddr = "127.0.0.1:6379"
)

// Default returns the configuration of an empty file. It lacks a key for tokens, without which `parleyd serve` does not
// start.
func Default() Config {
	return Config{
		Listen:    "127.0.0.1:8080",
		OpsListen: "127.0.0.1:8081",
		DataDir:   defaultDataDir,
		Buckets:   4,
		Mongo:     Mongo{URI: "mongodb://127.0.0.1:27017/?replicaSet=rs0", Database: "parley"},
		Redis: Redis{
			Addr: defaultRedisAddr, PoolSize: 50, MinIdleConns: 10, DialTimeoutMS: 3000, ReadTimeoutMS: 3000,
			WriteTimeoutMS: 3000, MessageCacheMaxLen: 200,
			Sentinel: RedisSentinel{Addrs: []string{}}, Cluster: RedisCluster{Addrs: []string{}},
		},
		NATS: NATS{URL: "nats://127.0.0.1:4222", Replicas: 1, MaxAge: 24 * time.Hour},
		Auth: Auth{PublicKeys: []string{}},
		HTTP: HTTP{Page: true, Reflection: true, CORSOrigins: []string{}},
		Limits: Limits{
			RequestsPerSecond: 20_000, RequestBurst: 40_000,
			StreamsPerSubject: 100, Streams: 10_000, ChannelsPerStream: 500,
			StreamQueueBytes: 1 << 20, StreamQueueEvents: 4096, FrameBytes: 1 << 20,
			SendReadBytes: 512 << 10, BatchReadBytes: 2 << 20, OtherReadBytes: 64 << 10,
			HeaderBytes: 16 << 10, ConnectionStreams: 250,
			UnaryTimeout: 30 * time.Second, BodyTimeout: 10 * time.Second, FrameTimeout: 60 * time.Second,
			HeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute,
			HeartbeatInterval: 15 * time.Second, DrainTimeout: 10 * time.Second,
		},
		Queues:    Queues{LeaseTTL: 10 * time.Second, Consumers: 1000, ConsumersPerSubject: 1000},
		Telemetry: Telemetry{TraceRatio: 0.01},
		Log:       Log{Level: "info", Format: "json"},
	}
}
