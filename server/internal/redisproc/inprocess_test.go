package redisproc_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/redisproc"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// TestInProcessScansSets tests that SSCAN skips no member while others are removed.
func TestInProcessScansSets(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), testkit.InProcessRedisClient(t)
	c.SAdd(ctx, "s", "a", "b", "c", "d")
	found := map[string]bool{}
	for cursor := uint64(0); ; {
		members, next, err := c.SScan(ctx, "s", cursor, "", 2).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range members {
			found[m] = true
		}
		c.SRem(ctx, "s", "a", "b")
		if cursor = next; cursor == 0 {
			break
		}
	}
	if !found["c"] || !found["d"] {
		t.Errorf("found %v", found)
	}
}

// TestInProcessRangesAfterSigns tests that a range begins after a member that is a sign.
func TestInProcessRangesAfterSigns(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), testkit.InProcessRedisClient(t)
	members := []string{"(", "+", "-", "[", "a"}
	for _, m := range members {
		c.ZAdd(ctx, "z", redis.Z{Member: m})
	}
	for i, m := range members {
		got, err := c.Do(ctx, "ZRANGEBYLEX", "z", "("+m, "+", "LIMIT", 0, 10).StringSlice()
		if err != nil || !slices.Equal(got, members[i+1:]) {
			t.Errorf("after %s: %q, %v", m, got, err)
		}
	}
}

// TestInProcessPendingAfter tests that a range of pending entries begins after an ID, also after
// the last ID of a millisecond.
func TestInProcessPendingAfter(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), testkit.InProcessRedisClient(t)
	for _, id := range []string{"1-0", "1-1", "2-0"} {
		c.XAdd(ctx, &redis.XAddArgs{Stream: "s", ID: id, Values: []string{"a", "b"}})
	}
	c.XGroupCreate(ctx, "s", "g", "0")
	c.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{"s", ">"}})
	for after, want := range map[string]int{
		"0-18446744073709551615": 3, "1-0": 2, "1-1": 1, "1-18446744073709551615": 1, "2-0": 0,
	} {
		got, err := c.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: "s", Group: "g", Start: "(" + after, End: "+", Count: 10}).Result()
		if err != nil || len(got) != want {
			t.Errorf("after %s: %v, %v; want %d", after, got, err, want)
		}
	}
}

// TestInProcess tests the features that the scripts of queues require beyond miniredis.
func TestInProcess(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), testkit.InProcessRedisClient(t)
	add := func() string {
		return c.XAdd(ctx, &redis.XAddArgs{Stream: "s", Values: []any{"k", "v"}}).Val()
	}
	if err := c.XGroupCreateMkStream(ctx, "s", "g", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if s := c.XInfoStream(ctx, "s").Val(); s.LastGeneratedID != "0-0" || s.EntriesAdded != 0 {
		t.Errorf("a new stream is %+v", s)
	}
	if g := c.XInfoGroups(ctx, "s").Val(); len(g) != 1 || g[0].LastDeliveredID != "0-0" {
		t.Errorf("a new group is %+v", g)
	}
	first, second := add(), add()
	if n, err := c.XTrimMinIDApprox(ctx, "s", second, 1).Result(); n > 1 || err != nil {
		t.Errorf("%d entries trimmed, %v", n, err)
	}
	c.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{"s", ">"}})
	pending := c.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: "s", Group: "g", Start: "(" + first, End: "+", Count: 10}).Val()
	if len(pending) != 1 || pending[0].ID != second {
		t.Errorf("pending after %s: %+v", first, pending)
	}
	c.XDel(ctx, "s", first)
	if s := c.XInfoStream(ctx, "s").Val(); s.EntriesAdded != 2 || s.Length != 1 || s.LastGeneratedID != second {
		t.Errorf("the stream is %+v", s)
	}
	c.Unlink(ctx, "s")
	if err := c.XInfoStream(ctx, "s").Err(); err == nil {
		t.Error("a stream that is gone has information")
	}
	add()
	if s := c.XInfoStream(ctx, "s").Val(); s.EntriesAdded != 1 {
		t.Errorf("the stream that was made again is %+v", s)
	}
	c.Set(ctx, "short", "v", 20*time.Millisecond)
	testkit.Eventually(t, 10*time.Second, func() error {
		if err := c.Get(ctx, "short").Err(); !errors.Is(err, redis.Nil) {
			return errors.New("the key has not expired")
		}
		return nil
	})
}

func TestInProcessStops(t *testing.T) {
	t.Parallel()
	lifecycletest.Stress[*redisproc.InProcess](t, func(*testing.T) *redisproc.InProcess { return redisproc.NewInProcess() })
	p := redisproc.NewInProcess()
	lifecycletest.Start(t, p)
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	lifecycletest.Stop(t, p)
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("a stopped server answers")
	}
}
