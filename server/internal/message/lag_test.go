package message

import (
	"context"
	"testing"
	"time"
)

// A replay waits for a cache that is only behind. A cache that stays behind costs the wait once;
// then reads do not wait for a while.
func TestReplayWaitsForLaggingCache(t *testing.T) {
	t.Parallel()
	b := setupRead(t)
	b.sends(t, 4)
	log := b.store.read("c")
	b.store.mu.Lock()
	b.store.visible = func(*Entry) bool { return false } // every read of the store fails
	b.store.mu.Unlock()
	cache := &lateCache{fakeCache: b.cache, asked: make(chan struct{}, 100)}
	b.reader = NewReader(b.store, cache, testEpoch, ReaderConfig{CacheLagTimeout: 20 * time.Second, StoreTimeout: time.Millisecond})
	b.cache.set(testEpoch, log[:3])
	go func() {
		<-cache.asked
		<-cache.asked
		b.cache.set(testEpoch, log)
	}()
	events, err := b.reader.Replay(t.Context(), "c", 2, 4, 100, 1<<20, true)
	if err != nil || len(events) != 2 || events[1].Seq != 4 {
		t.Fatalf("a cache that becomes level: %+v, %v", events, err)
	}

	b.store.mu.Lock()
	b.store.visible = nil
	b.store.mu.Unlock()
	b.cache.set(testEpoch, log[:3])
	cache = &lateCache{fakeCache: b.cache, asked: make(chan struct{}, 100)}
	b.reader = NewReader(b.store, cache, testEpoch, ReaderConfig{CacheLagTimeout: 20 * time.Millisecond})
	for i := range 2 {
		before := len(cache.asked)
		events, err := b.reader.Replay(t.Context(), "c", 2, 4, 100, 1<<20, true)
		if err != nil || len(events) != 2 {
			t.Fatalf("a cache that stays behind: %+v, %v", events, err)
		}
		if n := len(cache.asked) - before; (n == 1) != (i == 1) {
			t.Errorf("replay %d looked %d times", i, n)
		}
	}
	other := "d" // a channel of another shard, for which replays still wait
	for Shard(other, lagStripes) == Shard("c", lagStripes) {
		other += "d"
	}
	before := len(cache.asked)
	if _, err := b.reader.Replay(t.Context(), other, 2, 4, 100, 1<<20, true); err == nil {
		t.Fatal("it is empty")
	}
	if n := len(cache.asked) - before; n < 2 {
		t.Errorf("another channel's replay looked %d times", n)
	}
	b.reader = NewReader(b.store, cache, testEpoch, ReaderConfig{CacheLagTimeout: 20 * time.Second})
	before = len(cache.asked)
	if events, err := b.reader.Replay(t.Context(), "c", 2, 4, 100, 1<<20, false); err != nil || len(events) != 2 {
		t.Fatalf("an impatient replay: %+v, %v", events, err)
	}
	if n := len(cache.asked) - before; n != 1 {
		t.Errorf("an impatient replay looked %d times", n)
	}
}

// lateCache sends to asked after every read.
type lateCache struct {
	*fakeCache

	asked chan struct{}
}

func (c *lateCache) Page(ctx context.Context, channelID string, r Range) (CachedPage, error) {
	p, err := c.fakeCache.Page(ctx, channelID, r)
	c.asked <- struct{}{}
	return p, err
}
