package redislog

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// A fresh Redis gets the version, and so does one that has only topics of this layout. Queues of
// the first layout, with its version or from before it was recorded, are refused and left alone.
func TestLayout(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]redis.UniversalClient{
		"server": testkit.Redis(t).Client(t), "cluster": testkit.RedisClusterClient(t), "in process": testkit.InProcessRedisClient(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, config := t.Context(), StoreConfig{InProcess: name == "in process"}
			check := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			store := func(prefix string) *Store {
				config := config
				config.Prefix = prefix
				return NewStore(client, config)
			}
			refused := func(s *Store) {
				t.Helper()
				before := client.Exists(ctx, s.keys.layout()).Val()
				err := s.CheckLayout(ctx)
				if !errors.Is(err, ErrOtherLayout) || !strings.Contains(err.Error(), "have layout 1 and this parleyd needs layout 2") ||
					!strings.Contains(err.Error(), "redis.key_prefix") {
					t.Errorf("queues of layout 1: %v", err)
				}
				if client.Exists(ctx, s.keys.layout()).Val() != before {
					t.Error("the layout was recorded")
				}
			}

			s := store("fresh:")
			check(s.CheckLayout(ctx))
			if got := client.Get(ctx, s.keys.layout()).Val(); got != layoutVersion {
				t.Errorf("a fresh store has layout %q", got)
			}
			check(s.CheckLayout(ctx))

			s = store("lost:")
			topic := &qlog.Topic{Name: "jobs", UID: "AAAAAAAAAAAAA", Version: 1, Partitions: 1}
			_, err := s.InsertTopic(ctx, topic)
			check(err)
			check(s.MakePartition(ctx, topic, 0))
			check(s.CheckLayout(ctx))

			s = store("recorded:")
			check(client.Set(ctx, s.keys.layout(), "1", 0).Err())
			refused(s)

			s = store("settings:")
			check(client.SAdd(ctx, s.keys.registry(), "jobs").Err())
			check(client.HSet(ctx, s.keys.topic("jobs"), "uid", "AAAAAAAAAAAAA", "version", 1, "doc", "\x0a\x04jobs").Err())
			refused(s)

			s = store("partition:")
			check(client.SAdd(ctx, s.keys.registry(), "jobs").Err())
			check(client.HSet(ctx, s.keys.meta(qlog.Ref{Topic: "jobs"}), "uid", "AAAAAAAAAAAAA", "produced", 3).Err())
			refused(s)
		})
	}
}
