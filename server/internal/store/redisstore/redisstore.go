// Package redisstore keeps in Redis what may be lost without harm: the cache of each channel's newest entries.
//
// Writes go through Lua scripts that may be run twice with the same effect as once. That matters because a client can't
// know whether a command whose answer was lost has run, and go-redis by default runs it again without telling; NewClient
// turns that off, and whoever wants a repeat does it knowingly.
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ClientConfig says where Redis is: one server, Sentinel or Cluster.
type ClientConfig struct {
	// URL is redis://, rediss:// or unix://. If it is set, Addrs, Username, Password and DB are not used.
	URL string
	// Addrs is one server's host:port or unix socket path, or several nodes of a cluster, or the Sentinels.
	Addrs []string
	// MasterName is what the Sentinels call the server; empty without Sentinel.
	MasterName         string
	Username, Password string
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
		DB: config.DB,
	}
	if config.URL != "" {
		parsed, err := redis.ParseURL(config.URL)
		if err != nil {
			return nil, errors.New("redis: the URL can't be read") // the driver's text would show the password
		}
		options = redis.UniversalOptions{
			Addrs: []string{parsed.Addr}, Username: parsed.Username, Password: parsed.Password, DB: parsed.DB,
			TLSConfig: parsed.TLSConfig,
		}
	}
	if len(options.Addrs) == 0 {
		return nil, errors.New("redis: neither a URL nor an address is given")
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
