// Package redisstore keeps in Redis data that may be lost without harm: the cache of each channel's
// newest messages.
//
// Writes use Lua scripts that are safe to repeat, because a client can't know whether a command
// without an answer was executed. By default go-redis silently repeats such a command. NewClient
// turns that off, so that callers decide about repeats.
package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// ClientConfig configures a client of one server, of Sentinel or of Cluster.
type ClientConfig struct {
	// Addrs holds one server's host:port or unix socket path, several nodes of a cluster, or the
	// Sentinels.
	Addrs []string
	// Cluster is set if Addrs are nodes of a cluster, even if there is only one.
	Cluster bool
	// MasterName is the name by which the Sentinels know the server. Empty means no Sentinel.
	MasterName string
	// SentinelUsername and SentinelPassword are sent to the Sentinels, Username and Password to the
	// servers. Empty means none.
	SentinelUsername, SentinelPassword string
	Username, Password                 string
	// TLS returns the configuration of the next connection to a server or a Sentinel. Nil means no
	// TLS. Without a ServerName the host of the address is used. TLS may be called concurrently.
	TLS func() *tls.Config
	// DB is the number of the database. A cluster has only 0.
	DB int
	// PoolSize bounds the connections to each server. 0 means go-redis's default, 10 for each CPU.
	PoolSize int
	// MinIdleConns is how many idle connections are kept open; 0 keeps none.
	MinIdleConns int
	// DialTimeout, ReadTimeout and WriteTimeout default to 5 s, 3 s and 3 s, go-redis's defaults.
	DialTimeout, ReadTimeout, WriteTimeout time.Duration
	// PoolTimeout bounds a command's wait for a free connection of the pool. It defaults to 250 ms: a
	// longer wait would only hide that Redis is too slow.
	PoolTimeout time.Duration
	// RefuseUnsafe makes every connection fail with ErrUnsafe to a server for which CheckSafe returns
	// it, also to one that was safe when the client was created. AllowVolatile is as in CheckSafe.
	RefuseUnsafe, AllowVolatile bool
}

// NewClient creates a client that never repeats a command on its own, and whose commands end at
// their context's deadline. It connects on first use. The caller closes it.
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
		return nil, errors.New("redis: an address is required")
	}
	if config.RefuseUnsafe {
		options.OnConnect = func(ctx context.Context, conn *redis.Conn) error {
			m, err := modeOf(ctx, conn)
			if err != nil {
				return err
			}
			return m.check(config.AllowVolatile)
		}
	}
	options.MaxRetries = -1
	options.DialerRetries = 1 // a refusing server is down; the default of five attempts takes half a second
	options.ContextTimeoutEnabled = true
	options.PoolTimeout = cmp.Or(config.PoolTimeout, 250*time.Millisecond)
	options.PoolSize = config.PoolSize
	options.MinIdleConns = config.MinIdleConns
	options.DialTimeout = config.DialTimeout
	options.ReadTimeout = config.ReadTimeout
	options.WriteTimeout = config.WriteTimeout
	return redis.NewUniversalClient(&options), nil
}

// dialTLS connects to a server or a Sentinel with the current TLS configuration.
func (c *ClientConfig) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	d := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: cmp.Or(c.DialTimeout, 5*time.Second)}, // includes the handshake
		Config:    c.TLS(),
	}
	return d.DialContext(ctx, network, addr)
}

// eachServer calls fn for the server, or concurrently for each master of a cluster.
func eachServer(
	ctx context.Context, client redis.UniversalClient, fn func(context.Context, redis.Cmdable) error,
) error {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return fn(ctx, c) })
	}
	return fn(ctx, client)
}

// field returns the value of a field in an answer to INFO, or "" if there is none.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// The log of go-redis goes to standard error in its own format. Every command that fails because of
// a connection reports the same as an error.
//
//nolint:gochecknoinits // the client's logger is one global, to be set before anything can use it
func init() { logging.Disable() }
