// Package redisstore keeps in Redis what may be lost without harm: the cache of each channel's newest entries.
//
// Writes go through Lua scripts that may be run twice with the same effect as once. That matters because a client can't
// know whether a command whose answer was lost has run, and go-redis by default runs it again without telling; NewClient
// turns that off, and whoever wants a repeat does it knowingly.
package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ClientConfig says where Redis is: one server, Sentinel or Cluster.
type ClientConfig struct {
	// Addrs is one server's host:port or unix socket path, or several nodes of a cluster, or the Sentinels.
	Addrs []string
	// Cluster is set if Addrs are nodes of a cluster, although there may be only one.
	Cluster bool
	// MasterName is what the Sentinels call the server; empty without Sentinel.
	MasterName string
	// SentinelUsername and SentinelPassword are for the Sentinels, Username and Password for the servers.
	SentinelUsername, SentinelPassword string
	Username, Password                 string
	// TLS returns the configuration of the next connection, to a server or a Sentinel; nil means no TLS. Without a
	// ServerName the host of the address is used. It may be called concurrently.
	TLS func() *tls.Config
	// DB is the database's number; a cluster has only 0.
	DB int
	// PoolSize is the most connections to each server; 0 is go-redis's default, 10 for each CPU.
	PoolSize int
	// MinIdleConns are kept open; 0 keeps none.
	MinIdleConns int
	// The timeouts are go-redis's defaults if 0: 5 s, 3 s and 3 s.
	DialTimeout, ReadTimeout, WriteTimeout time.Duration
}

// poolTimeout is how long a command waits for a free connection. Waiting longer only hides that Redis is too slow.
const poolTimeout = 250 * time.Millisecond

// NewClient makes a client that never repeats a command by itself, and whose commands end with their context's deadline.
// It connects when it is first used. The caller closes it.
func NewClient(config ClientConfig) (redis.UniversalClient, error) {
	options := redis.UniversalOptions{
		Addrs: config.Addrs, MasterName: config.MasterName, Username: config.Username, Password: config.Password,
		DB: config.DB, IsClusterMode: config.Cluster,
		SentinelUsername: config.SentinelUsername, SentinelPassword: config.SentinelPassword,
	}
	if config.TLS != nil {
		options.Dialer = config.dialTLS
	}
	if len(options.Addrs) == 0 {
		return nil, errors.New("redis: no address is given")
	}
	options.MaxRetries = -1
	options.DialerRetries = 1 // a server that refuses connections is away; five tries, the default, take half a second
	options.ContextTimeoutEnabled = true
	options.PoolTimeout = poolTimeout
	options.PoolSize = config.PoolSize
	options.MinIdleConns = config.MinIdleConns
	options.DialTimeout = config.DialTimeout
	options.ReadTimeout = config.ReadTimeout
	options.WriteTimeout = config.WriteTimeout
	return redis.NewUniversalClient(&options), nil
}

// dialTLS connects to a server or a Sentinel with the TLS configuration of this moment.
func (c *ClientConfig) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	d := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: cmp.Or(c.DialTimeout, 5*time.Second)}, // of the handshake too
		Config:    c.TLS(),
	}
	return d.DialContext(ctx, network, addr)
}

// Ping asks Redis, each server of a cluster, for an answer.
func Ping(ctx context.Context, client redis.UniversalClient) error {
	err := eachServer(ctx, client, func(ctx context.Context, c redis.Cmdable) error { return c.Ping(ctx).Err() })
	if err != nil {
		return fmt.Errorf("ping redis: %w", err)
	}
	return nil
}

// eachServer calls fn for the server, or for each master of a cluster, several at a time.
func eachServer(
	ctx context.Context, client redis.UniversalClient, fn func(context.Context, redis.Cmdable) error,
) error {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return fn(ctx, c) })
	}
	return fn(ctx, client)
}

// field finds a field's value in what INFO answers; empty if it is not there.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// quiet drops what the client says of its connections on standard error, in a form of its own: every command that fails
// for it says the same as an error.
type quiet struct{}

// Printf implements the client's logger.
func (quiet) Printf(context.Context, string, ...any) {}

//nolint:gochecknoinits // the client's logger is one global, to be set before anything can use it
func init() { redis.SetLogger(quiet{}) }
