package testkit

import (
	"context"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/internal/rig"
)

// sharedCluster is the test process's one cluster; it ends with the process.
var sharedCluster = sync.OnceValues(func() (*rig.RedisCluster, error) {
	dir, err := rig.TempDir("cluster")
	if err != nil {
		return nil, err
	}
	// It is no leak of the test that made it.
	return rig.StartRedisCluster(context.Background(), rig.RedisConfig{Dir: dir, Unwatched: true})
})

// RedisCluster gives the addresses of a cluster of three masters that all tests of the process share, in memory only. The first call
// starts it. What it holds is of all tests: each takes keys of its own.
func RedisCluster(tb testing.TB) []string {
	tb.Helper()
	cluster, err := sharedCluster()
	if err != nil {
		tb.Fatal(err)
	}
	return cluster.Addrs()
}

// RedisClusterClient makes a client of that cluster which repeats nothing by itself. It is closed when the test ends.
func RedisClusterClient(tb testing.TB) *redis.ClusterClient {
	tb.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: RedisCluster(tb), MaxRetries: -1, ContextTimeoutEnabled: true, DialerRetries: 1,
	})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}
