package testkit

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/redisproc"
)

// InProcessRedisClient starts the in-process Redis that `parleyd dev` uses on a machine without
// redis-server, and returns a client of it that never retries. Both end with the test.
func InProcessRedisClient(tb testing.TB) *redis.Client {
	tb.Helper()
	server := redisproc.NewInProcess()
	if err := server.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, DialerRetries: 1})
	tb.Cleanup(func() {
		_ = c.Close()
		if err := server.Stop(context.WithoutCancel(tb.Context())); err != nil {
			tb.Error(err)
		}
	})
	return c
}
