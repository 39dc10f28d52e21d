package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// topicsStub answers Topic by a function, and counts the calls.
type topicsStub struct {
	TopicStore

	mu    sync.Mutex
	calls int
	topic func(ctx context.Context, name string) (*Topic, error)
}

func (s *topicsStub) Topic(ctx context.Context, name string) (*Topic, error) {
	s.mu.Lock()
	s.calls++
	topic := s.topic
	s.mu.Unlock()
	return topic(ctx, name)
}

func (s *topicsStub) answer(topic func(ctx context.Context, name string) (*Topic, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.topic = topic
}

func (s *topicsStub) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func hasVersion(n int64) func(context.Context, string) (*Topic, error) {
	return func(_ context.Context, name string) (*Topic, error) {
		return &Topic{Name: name, UID: "U", Version: n, Partitions: 4, Partitioner: Hash}, nil
	}
}

func wantVersion(t *testing.T, c *Catalog, version int64) {
	t.Helper()
	topic, err := c.Topic(t.Context(), "t")
	if err != nil || topic.Version != version {
		t.Fatalf("got %+v, %v; want version %d", topic, err, version)
	}
}

func wantReason(t *testing.T, err error, reason fault.Reason) {
	t.Helper()
	if !fault.Is(err, reason) {
		t.Fatalf("got %v, want %s", err, reason)
	}
}

func TestCatalogIsFreshForASecondAndNeverOlderThanTwo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &topicsStub{topic: hasVersion(1)}
		c := NewCatalog(store)
		wantVersion(t, c, 1)
		store.answer(hasVersion(2))
		time.Sleep(790 * time.Millisecond)
		wantVersion(t, c, 1)
		if n := store.count(); n != 1 {
			t.Fatalf("%d reads within the first 0.8 s", n)
		}
		time.Sleep(300 * time.Millisecond)
		wantVersion(t, c, 1) // served stale, and read anew behind it
		synctest.Wait()
		wantVersion(t, c, 2)
		if n := store.count(); n != 2 {
			t.Fatalf("%d reads", n)
		}

		// The store hangs: what is known serves until it is two seconds old, counted from when it was asked for.
		store.answer(func(ctx context.Context, _ string) (*Topic, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		time.Sleep(1990 * time.Millisecond)
		wantVersion(t, c, 2)
		time.Sleep(20 * time.Millisecond)
		_, err := c.Topic(t.Context(), "t")
		wantReason(t, err, fault.StoreUnavailable)
		store.answer(hasVersion(3))
		wantVersion(t, c, 3)
	})
}

func TestCatalogReadsATopicOnceForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &topicsStub{topic: func(ctx context.Context, name string) (*Topic, error) {
			time.Sleep(100 * time.Millisecond)
			return hasVersion(1)(ctx, name)
		}}
		c := NewCatalog(store)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { wantVersion(t, c, 1) })
		}
		// One who gives up does not end the read for the others.
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := c.Topic(ctx, "t"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		all.Wait()
		if n := store.count(); n != 1 {
			t.Fatalf("%d reads", n)
		}
	})
}

func TestCatalogForgetsAndRemembersAbsenceBriefly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &topicsStub{topic: func(context.Context, string) (*Topic, error) { return nil, ErrNoTopic }}
		c := NewCatalog(store)
		for range 3 {
			_, err := c.Topic(t.Context(), "t")
			wantReason(t, err, fault.TopicNotFound)
		}
		if n := store.count(); n != 1 {
			t.Fatalf("%d reads of an absent topic", n)
		}
		store.answer(func(context.Context, string) (*Topic, error) { return &Topic{Name: "t", State: Making}, nil })
		time.Sleep(absentFor)
		_, err := c.Topic(t.Context(), "t")
		wantReason(t, err, fault.TopicNotFound) // it is not whole

		store.answer(hasVersion(1))
		wantVersion(t, c, 1) // as soon as it is

		// A read that is under way when the topic is forgotten answers nobody who comes later.
		slow := make(chan struct{})
		store.answer(func(ctx context.Context, name string) (*Topic, error) {
			<-slow
			return hasVersion(1)(ctx, name)
		})
		c.Forget("t")
		early := make(chan int64, 1)
		go func() {
			topic, _ := c.Topic(t.Context(), "t")
			early <- topic.Version
		}()
		synctest.Wait()
		store.answer(hasVersion(2))
		c.Forget("t")
		wantVersion(t, c, 2)
		close(slow)
		if v := <-early; v != 1 {
			t.Fatalf("got version %d", v)
		}
		wantVersion(t, c, 2)
	})
}

func TestCatalogReloadReadsTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &topicsStub{topic: hasVersion(1)}
		c := NewCatalog(store)
		wantVersion(t, c, 1)
		store.answer(hasVersion(2))
		if topic, err := c.Reload(t.Context(), "t"); err != nil || topic.Version != 2 {
			t.Fatalf("got %+v, %v", topic, err)
		}
		wantVersion(t, c, 2)
	})
}

func TestCatalogIsBounded(t *testing.T) {
	t.Parallel()
	store := &topicsStub{topic: func(ctx context.Context, name string) (*Topic, error) {
		if name[0] == 'x' {
			return nil, ErrNoTopic
		}
		return hasVersion(1)(ctx, name)
	}}
	c := NewCatalog(store)
	for i := range 2*maxCatalog + 500 {
		_, _ = c.Topic(t.Context(), fmt.Sprintf("%c%d", "tx"[i%2], i))
	}
	if len(c.entries) > maxCatalog || len(c.loads) > 0 {
		t.Fatalf("%d entries, %d loads", len(c.entries), len(c.loads))
	}
}
