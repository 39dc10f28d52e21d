package rig_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/parleyhq/parley/internal/rig"
)

// TestMovableClock checks that the clock of a Redis follows SetClock while it runs and after a
// restart, and that a Redis without MovableClock refuses.
func TestMovableClock(t *testing.T) {
	t.Parallel()
	start := func(movable bool) *rig.Redis {
		dir := t.TempDir()
		r, err := rig.StartRedis(t.Context(), rig.RedisConfig{Dir: dir, Addr: filepath.Join(dir, "redis.sock"), MovableClock: movable})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Kill)
		return r
	}
	if start(false).SetClock(time.Second) == nil {
		t.Error("the clock of any Redis can be moved")
	}
	r := start(true)
	expect := func(offset time.Duration) {
		t.Helper()
		c := r.Client()
		defer c.Close()
		before := time.Now()
		now, err := c.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		if now.Before(before.Add(offset-time.Millisecond)) || now.After(time.Now().Add(offset+time.Millisecond)) {
			t.Errorf("the clock is %s ahead, not %s", time.Until(now), offset)
		}
	}
	expect(0)
	for _, offset := range []time.Duration{10 * time.Second, -10 * time.Second} {
		if err := r.SetClock(offset); err != nil {
			t.Fatal(err)
		}
		expect(offset)
	}
	r.Kill()
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(-10 * time.Second)
}
