package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric"

	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/apikey"
	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/erasure"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/natsbus"
	"github.com/parleyhq/parley/server/internal/redisproc"
	"github.com/parleyhq/parley/server/internal/revocation"
	"github.com/parleyhq/parley/server/internal/store/embedded"
	"github.com/parleyhq/parley/server/internal/store/mongostore"
	"github.com/parleyhq/parley/server/internal/store/redisstore"
	"github.com/parleyhq/parley/server/internal/store/redistext"
)

// channelStore is a complete store of channels.
type channelStore interface {
	channel.Store
	channel.TrimStore
	channel.EraseStore
}

// backends holds the connections to the engines of a node: message store, Redis and NATS.
type backends struct {
	store    message.Store
	channels channelStore
	erasures erasure.Store
	revoked  revocation.Store
	keys     apikey.Store
	redis    redis.UniversalClient
	// inProcess says that redis is a redisproc.InProcess.
	inProcess bool
	bus       *natsbus.Bus
	// failed is closed when the store has failed permanently and the process must end. It is nil
	// for a store that never does so.
	failed <-chan struct{}
	// notes are lines for the user of `parleyd dev`: which engines run, and what a restart loses.
	notes []string
}

// openDev opens engines that require no installation: the embedded store, NATS in this process, and
// a redis-server from PATH, or an in-memory Redis if there is none. It opens the store first
// because the store's lock guards the whole data directory.
func openDev(ctx context.Context, cfg *config.Config, log *slog.Logger, done *lifecycle.Stack) (*backends, error) {
	dir := cfg.DataDir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	b := &backends{}
	store, err := embedded.Open(devStoreDir(dir), embedded.Config{Shards: cfg.Shards, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("open the store in %s: %w", dir, err)
	}
	done.Push("store", store.Close)
	b.store, b.channels, b.erasures, b.failed = store, store.Channels(), store.Erasures(), store.Failed()
	b.revoked, b.keys = store.Revocations(), store.APIKeys()
	b.notes = append(b.notes, "messages: embedded store in "+devStoreDir(dir)+", every acknowledged message is on disk")

	if err := b.openDevRedis(ctx, dir, log, done); err != nil {
		return nil, err
	}

	nats := natsbus.NewEmbedded(filepath.Join(dir, "nats"), log)
	if err := done.Start(ctx, "NATS server", nats); err != nil {
		return nil, err
	}
	return b, b.connectNATS(ctx, natsbus.Config{
		Server: nats, Shards: store.Identity().Shards, Store: store.Identity().Name(), Replicas: 1, MaxAge: cfg.NATS.MaxAge,
		MaxBytes: devStreamBytes, Logger: log,
	}, done)
}

// devStreamBytes is the size of the event stream of `parleyd dev`. JetStream reserves it on disk.
const devStreamBytes = 256 << 20

// devStoreDir returns the directory of the embedded store in a data directory.
func devStoreDir(dataDir string) string { return filepath.Join(dataDir, "store") }

func (b *backends) connectNATS(ctx context.Context, cfg natsbus.Config, done *lifecycle.Stack) error {
	bus, err := natsbus.Connect(ctx, cfg)
	if err != nil {
		return err
	}
	done.Push("NATS connection", func(context.Context) error { return bus.Close() })
	b.bus = bus
	return nil
}

// slowTimeout bounds the steps of a call to the in-process Redis.
const slowTimeout = 10 * time.Second

func (b *backends) openDevRedis(ctx context.Context, dir string, log *slog.Logger, done *lifecycle.Stack) error {
	client := redisstore.ClientConfig{DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second}
	proc, err := redisproc.New(redisproc.Config{Dir: filepath.Join(dir, "redis"), Logger: log})
	switch {
	case err == nil:
		if err := done.Start(ctx, "redis-server", proc); err != nil {
			return err
		}
		client.Addrs = []string{proc.Socket()}
		b.notes = append(b.notes, "cache, queues and presence: redis-server with an append-only file; look into it with `redis-cli -s "+proc.Socket()+"`")
	case errors.Is(err, exec.ErrNotFound):
		memory := redisproc.NewInProcess()
		if err := done.Start(ctx, "in-process Redis", memory); err != nil {
			return err
		}
		// The in-process Redis has no network or disk that could hang, but its scripts are slow and
		// run one at a time: the largest batch takes a second on a busy machine.
		client.Addrs, b.inProcess = []string{memory.Addr()}, true
		client.ReadTimeout, client.WriteTimeout, client.PoolTimeout = slowTimeout, slowTimeout, slowTimeout
		b.notes = append(b.notes, "cache, queues and presence: in-process Redis, because no redis-server is on PATH; a restart loses every topic, its messages "+
			"and its dead letters, and no chat message")
	default:
		return err
	}
	return b.connectRedis(client, done)
}

func (b *backends) connectRedis(cfg redisstore.ClientConfig, done *lifecycle.Stack) error {
	client, err := redisstore.NewClient(cfg)
	if err != nil {
		return err
	}
	done.Push("Redis client", func(context.Context) error { return client.Close() })
	b.redis = client
	return nil
}

// openServe connects to MongoDB, Redis and NATS by URL. It returns an error for a Redis that may
// lose data. Only MongoDB must be there.
func openServe(ctx context.Context, cfg *config.Config, log *slog.Logger, done *lifecycle.Stack) (*backends, error) {
	b := &backends{}
	store, err := mongostore.Open(ctx, mongostore.Config{
		URI: cfg.Mongo.URI.Reveal(), Database: cfg.Mongo.Database, Shards: cfg.Shards, Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("open the message store: %w", err)
	}
	done.Push("store", store.Close)
	b.store, b.channels, b.erasures = store, store.Channels(), store.Erasures()
	b.revoked, b.keys = store.Revocations(), store.APIKeys()

	client, err := redisConfig(&cfg.Redis, log)
	if err != nil {
		return nil, err
	}
	client.RefuseUnsafe, client.AllowVolatile = true, cfg.Redis.AllowVolatile
	if err := b.connectRedis(client, done); err != nil {
		return nil, err
	}
	if err := b.checkRedis(ctx, cfg.Redis.AllowVolatile); err != nil {
		return nil, err
	}
	bus := natsbus.Config{
		URL: cfg.NATS.URL.Reveal(), CredentialsFile: cfg.NATS.CredentialsFile, Shards: store.Identity().Shards,
		Store: store.Identity().Name(), Replicas: cfg.NATS.Replicas, MaxAge: cfg.NATS.MaxAge,
		MaxBytes: cfg.NATS.MaxBytes, Logger: log,
	}
	if err := natsTLS(&bus, &cfg.NATS.TLS, log); err != nil {
		return nil, err
	}
	return b, b.connectNATS(ctx, bus, done)
}

// checkRedis returns an error for a Redis that may lose data, and if ctx ends. One that cannot be
// reached is no error: each connection is checked when it is made.
func (b *backends) checkRedis(ctx context.Context, allowVolatile bool) error {
	call, cancel := context.WithTimeout(ctx, redisWait)
	defer cancel()
	if err := redisstore.CheckSafe(call, b.redis, allowVolatile); errors.Is(err, redisstore.ErrUnsafe) {
		return fmt.Errorf("refusing this Redis: %w", err)
	}
	return ctx.Err()
}

// redisConfig returns how to connect to the configured Redis: by Sentinels or to a cluster if their
// addresses are set, else to one server.
func redisConfig(c *config.Redis, log *slog.Logger) (redisstore.ClientConfig, error) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	client := redisstore.ClientConfig{
		Addrs: []string{c.Addr}, Username: c.Username, Password: c.Password.Reveal(), DB: c.DB,
		PoolSize: c.PoolSize, MinIdleConns: min(c.MinIdleConns, c.PoolSize), DialTimeout: ms(c.DialTimeoutMS),
		ReadTimeout: ms(c.ReadTimeoutMS), WriteTimeout: ms(c.WriteTimeoutMS),
	}
	switch {
	case len(c.Sentinel.Addrs) > 0:
		client.Addrs, client.MasterName = c.Sentinel.Addrs, c.Sentinel.Master
		client.SentinelUsername, client.SentinelPassword = c.Sentinel.Username, c.Sentinel.Password.Reveal()
	case len(c.Cluster.Addrs) > 0:
		client.Addrs, client.Cluster = c.Cluster.Addrs, true
	}
	return client, redisTLS(&client, &c.TLS, log)
}

// newCache returns the cache of the newest messages of channels and sessions. It also registers the
// metrics of the client.
func newCache(client redis.UniversalClient, c *config.Redis, meter metric.Meter, log *slog.Logger) (redisstore.Router, error) {
	if err := redisstore.Observe(client, meter); err != nil {
		return redisstore.Router{}, fmt.Errorf("make metrics of Redis: %w", err)
	}
	base := redisstore.CacheConfig{Prefix: c.KeyPrefix, Meter: meter, Logger: log}
	channels, err := redisstore.NewCache(client, base)
	if err != nil {
		return redisstore.Router{}, err
	}
	base.Keep = c.MessageCacheMaxLen
	sessions, err := redisstore.NewSessionCache(client, base)
	return redisstore.Router{Channels: channels, Sessions: sessions, OpenTexts: redistext.New(client, c.KeyPrefix)}, err
}
