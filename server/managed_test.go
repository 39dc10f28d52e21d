package server_test

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// TestManagedRedis checks that chat and queues work on a Redis cluster and on a Redis with
// Sentinels.
func TestManagedRedis(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*testing.T, *config.Redis){
		"cluster": func(t *testing.T, c *config.Redis) {
			t.Helper()
			c.Addr, c.KeyPrefix = "", "managed:"
			c.Cluster.Addrs = testkit.RedisCluster(t)[:1]
		},
		"Sentinel": func(t *testing.T, c *config.Redis) {
			t.Helper()
			f := testkit.NewRedisFailover(t)
			c.Addr = ""
			c.Sentinel = config.RedisSentinel{
				Addrs: []string{f.Sentinel}, Master: testkit.SentinelMaster, Username: testkit.SentinelUser, Password: testkit.SentinelPassword,
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := servertest.Serve(t, servertest.With(func(c *config.Config) { change(t, &c.Redis) }))
			client := s.Client(s.Token)
			send(t, client, "room", "hello")
			if list := listPage(t, client, &parleyv1.ListMessagesRequest{ChannelId: "room"}); len(list.GetMessages()) != 1 {
				t.Errorf("the channel has %v", list.GetMessages())
			}
			if err := callErr(s.QueueAdmin(s.Token).CreateTopic(t.Context(), &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: "jobs"}})); err != nil {
				t.Fatal(err)
			}
			if err := callErr(s.Queues(s.Token).Produce(t.Context(), &parleyv1.ProduceRequest{
				Topic: "jobs", Messages: []*parleyv1.QueueMessage{{Key: "a"}, {Key: "b"}, {Key: "c"}},
			})); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOtherLayoutIsRefused checks that a server does not start if Redis has queues in a layout that
// it would read wrongly, and that the error says what to do.
func TestOtherLayoutIsRefused(t *testing.T) {
	t.Parallel()
	redis, nats := testkit.Redis(t), testkit.NATS(t)
	if err := redis.Client(t).Set(t.Context(), "streaming:mq:layout", "0", 0).Err(); err != nil {
		t.Fatal(err)
	}
	cfg := server.DevConfig()
	cfg.Listen, cfg.OpsListen = "127.0.0.1:0", "127.0.0.1:0"
	cfg.Auth.HS256Secret = config.Secret(strings.Repeat("s", 32))
	cfg.Mongo.URI, cfg.Mongo.Database = config.SecretURL(testkit.MongoURI(t)), testkit.MongoDatabase(t)
	cfg.Redis.Addr, cfg.Redis.AllowVolatile, cfg.NATS.URL = redis.Addr(), true, config.SecretURL(nats.URL())
	s, err := server.New(t.Context(), cfg, server.WithLogOutput(io.Discard))
	if err == nil {
		_ = s.Close(t.Context())
	}
	if err == nil || !strings.Contains(err.Error(), "have layout 0 and this parleyd needs layout 2. Nothing was changed. Either ") {
		t.Errorf("it started: %v", err)
	}
}

// TestDevRefusesOtherShards checks that `parleyd dev` does not start with another number of
// shards than its store has, and that the error has both numbers and the setting to use.
func TestDevRefusesOtherShards(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := servertest.Dev(t, servertest.With(func(c *config.Config) { c.DataDir, c.Shards = dir, 2 }))
	s.Stop()
	cfg := server.DevConfig()
	cfg.DataDir, cfg.Listen, cfg.OpsListen = dir, "127.0.0.1:0", "127.0.0.1:0"
	other, err := server.New(t.Context(), cfg, server.WithDev(), server.WithLogOutput(io.Discard))
	if err == nil {
		_ = other.Close(t.Context())
	}
	if err == nil || !strings.Contains(err.Error(), "made with 2 shards and 4 are configured") || !strings.Contains(err.Error(), "PARLEY_SHARDS=2") {
		t.Errorf("it started: %v", err)
	}
}
