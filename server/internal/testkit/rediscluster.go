package testkit

import (
	"context"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/internal/rig"
)

// sharedCluster starts the one cluster that all tests of the process share. It ends with the
// process.
var sharedCluster = sync.OnceValues(func() (*rig.RedisCluster, error) {
	dir, err := rig.TempDir("cluster")
	if err != nil {
		return nil, err
	}
	// Unwatched, because a goroutine that waits for its end would count as a leak of a test.
	return rig.StartRedisCluster(context.Background(), rig.RedisConfig{Dir: dir, Unwatched: true})
})

// RedisCluster returns the addresses of an in-memory cluster of three masters that all tests of the
// process share. The first call starts it. Tests share its data, so each must use keys of its own.
func RedisCluster(tb testing.TB) []string {
	tb.Helper()
	cluster, err := sharedCluster()
	if err != nil {
		tb.Fatal(err)
	}
	return cluster.Addrs()
}

// RedisClusterClient returns a client, which never retries, of the cluster that RedisCluster
// returns. It is closed when the test ends.
func RedisClusterClient(tb testing.TB) *redis.ClusterClient {
	tb.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: RedisCluster(tb), MaxRetries: -1, ContextTimeoutEnabled: true, DialerRetries: 1,
	})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}
