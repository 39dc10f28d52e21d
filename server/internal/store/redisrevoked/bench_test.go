package redisrevoked_test

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/revocation"
	"github.com/parleyhq/parley/server/internal/store/redisrevoked"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// logins returns the keys of a thousand logins, as one node asks about its streams.
func logins() []string {
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = ident.SSIDKey("login-" + strconv.Itoa(i))
	}
	return keys
}

// BenchmarkFind looks for a thousand logins, none of which was revoked.
func BenchmarkFind(b *testing.B) {
	c, keys := redisrevoked.New(testkit.Redis(b).Client(b), "", "store-1"), logins()
	for b.Loop() {
		if _, _, err := c.Find(b.Context(), keys...); err != nil {
			b.Fatal(err)
		}
	}
}

// commands counts the commands of a client.
type commands struct{ n atomic.Int64 }

// DialHook implements redis.Hook.
func (*commands) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (c *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (c *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, all []redis.Cmder) error {
		c.n.Add(int64(len(all)))
		return next(ctx, all)
	}
}

// TestFindIsCheap checks that a look-up of many keys costs one command, and one for each that is
// there: while the store is away, every node looks for all of its streams twice a second.
func TestFindIsCheap(t *testing.T) {
	t.Parallel()
	client, keys := testkit.Redis(t).Client(t), logins()
	c := redisrevoked.New(client, "", "store-1")
	if err := c.Put(t.Context(), []revocation.Entry{{Key: keys[7], Until: time.Now().Add(time.Hour)}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Find(t.Context(), keys...); err != nil { // opens the connection
		t.Fatal(err)
	}
	var count commands
	client.AddHook(&count)
	found, _, err := c.Find(t.Context(), keys...)
	if err != nil || len(found) != 1 || found[keys[7]].Key != keys[7] {
		t.Fatalf("found %v, %v", found, err)
	}
	if n := count.n.Load(); n != 2 {
		t.Errorf("%d commands, want 2", n)
	}
}
