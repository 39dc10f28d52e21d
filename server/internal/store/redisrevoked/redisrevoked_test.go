package redisrevoked_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/revocation"
	"github.com/parleyhq/parley/server/internal/store/redisrevoked"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// TestCopy checks what a copy has of what was put into it, under which keys, and when it says that
// it is complete.
func TestCopy(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(*testing.T) redis.UniversalClient{
		"server":  func(t *testing.T) redis.UniversalClient { return testkit.Redis(t).Client(t) },
		"cluster": func(t *testing.T) redis.UniversalClient { return testkit.RedisClusterClient(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testCopy(t, connect(t))
		})
	}
}

func testCopy(t *testing.T, client redis.UniversalClient) {
	const prefix = "p:"
	c := redisrevoked.New(client, prefix, "store-1")
	ctx, now := t.Context(), time.Now().UTC().Truncate(time.Millisecond)
	token := revocation.Entry{Key: ident.TokenKey("", [32]byte{1, 2, 3}), Until: now.Add(time.Hour)}
	ssid := revocation.Entry{Key: ident.SSIDKey("complete"), Until: now.Add(2 * time.Hour)}
	user := revocation.Entry{Key: revocation.UserKey("ann"), Until: now.Add(time.Hour), Before: now}
	key := revocation.Entry{Key: ident.APIKeyKey("abc"), Until: now.Add(time.Hour)}
	past := revocation.Entry{Key: ident.SSIDKey("past"), Until: now.Add(-time.Second)}
	if err := c.Put(ctx, []revocation.Entry{token, ssid, user, key, past}); err != nil {
		t.Fatal(err)
	}
	if whole, err := c.Whole(ctx); err != nil || whole {
		t.Errorf("complete before it was declared: %v, %v", whole, err)
	}
	found, whole, err := c.Find(ctx, token.Key, ssid.Key, user.Key, key.Key, past.Key, ident.SSIDKey("other"), revocation.UserKey("complete"))
	if err != nil || whole || len(found) != 4 {
		t.Fatalf("found %v, %v, %v", found, whole, err)
	}
	for _, want := range []revocation.Entry{token, ssid, user, key} {
		got := found[want.Key]
		if got.Key != want.Key || !got.Before.Equal(want.Before) || got.Until.Sub(want.Until).Abs() > 5*time.Second {
			t.Errorf("found %+v, want %+v", got, want)
		}
	}
	for _, key := range []string{"users:before:ann", "users:ssid:.AQIDAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "users:ssid:complete", "users:api-key:abc"} {
		if n, err := client.Exists(ctx, prefix+key).Result(); err != nil || n != 1 {
			t.Errorf("there is no key %s, %v", key, err)
		}
	}
	if err := c.Complete(ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, whole, err := c.Find(ctx, ident.SSIDKey("other")); err != nil || !whole {
		t.Errorf("complete after it was declared: %v, %v", whole, err)
	}
	empty := redisrevoked.New(client, "empty:", "store-1")
	if err := empty.Complete(ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	if found, _, err := empty.Find(ctx, ssid.Key); err != nil || len(found) != 0 {
		t.Errorf("the declaration counts as a revocation: %v, %v", found, err)
	}
	if whole, err := redisrevoked.New(client, prefix, "store-2").Whole(ctx); err != nil || whole {
		t.Errorf("complete for another store: %v, %v", whole, err)
	}
}
