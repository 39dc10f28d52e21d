package redisqueue

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/testkit"
)

func TestLayout(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]redis.UniversalClient{
		"server": testkit.Redis(t).Client(t), "cluster": testkit.RedisClusterClient(t), "in process": testkit.InProcessRedisClient(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := NewStore(client, StoreConfig{Prefix: "layout:"})
			for range 2 {
				if err := s.CheckLayout(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := client.Set(t.Context(), "layout:streaming:mq:layout", "2", 0).Err(); err != nil {
				t.Fatal(err)
			}
			if err := s.CheckLayout(t.Context()); err == nil || !strings.Contains(err.Error(), "have layout 2 and this parleyd reads layout 1") {
				t.Errorf("of another layout: %v", err)
			}
			if err := NewStore(client, StoreConfig{Prefix: "layout-other:"}).CheckLayout(t.Context()); err != nil {
				t.Errorf("beside it: %v", err)
			}
		})
	}
}
