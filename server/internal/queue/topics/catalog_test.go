package topics

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// stub answers Topic by a function, and counts the calls. There is nothing to restore.
type stub struct {
	qlog.TopicStore

	mu    sync.Mutex
	calls int
	topic func(ctx context.Context, name string) (*qlog.Topic, error)
}

func (s *stub) Topic(ctx context.Context, name string) (*qlog.Topic, error) {
	s.mu.Lock()
	s.calls++
	topic := s.topic
	s.mu.Unlock()
	return topic(ctx, name)
}

func (s *stub) RestoreTopic(context.Context, string) (*qlog.Topic, error) {
	return nil, qlog.ErrNoTopic
}

func (s *stub) answer(topic func(ctx context.Context, name string) (*qlog.Topic, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.topic = topic
}

func (s *stub) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func version(n int64) func(context.Context, string) (*qlog.Topic, error) {
	return func(_ context.Context, name string) (*qlog.Topic, error) {
		return &qlog.Topic{Name: name, UID: "U", Version: n, Partitions: 4, Partitioner: qlog.Hash}, nil
	}
}

func absent(context.Context, string) (*qlog.Topic, error) { return nil, qlog.ErrNoTopic }

func newStub(topic func(ctx context.Context, name string) (*qlog.Topic, error)) (*stub, *Catalog) {
	s := &stub{topic: topic}
	return s, NewCatalog(CatalogConfig{Store: s, Logger: quiet})
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

func TestATopicIsFreshForASecondAndNeverOlderThanTwo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, c := newStub(version(1))
		wantVersion(t, c, 1)
		store.answer(version(2))
		time.Sleep(790 * time.Millisecond)
		wantVersion(t, c, 1)
		if n := store.count(); n != 1 {
			t.Fatalf("%d reads within the first 0.8 s", n)
		}
		time.Sleep(300 * time.Millisecond)
		wantVersion(t, c, 1) // and it is read anew meanwhile
		synctest.Wait()
		wantVersion(t, c, 2)
		if n := store.count(); n != 2 {
			t.Fatalf("%d reads", n)
		}

		// The store does not answer. What is known is used until it is two seconds old, counted
		// from when the store was asked for it.
		store.answer(func(ctx context.Context, _ string) (*qlog.Topic, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		time.Sleep(1990 * time.Millisecond)
		wantVersion(t, c, 2)
		time.Sleep(20 * time.Millisecond)
		_, err := c.Topic(t.Context(), "t")
		wantReason(t, err, fault.StoreUnavailable)
		store.answer(version(3))
		wantVersion(t, c, 3)
	})
}

func TestATopicIsReadOnceForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, c := newStub(func(ctx context.Context, name string) (*qlog.Topic, error) {
			time.Sleep(100 * time.Millisecond)
			return version(1)(ctx, name)
		})
		// A caller whose deadline passes does not end the read for the others, also if it began it.
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := c.Topic(ctx, "t"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		for range 100 {
			all.Go(func() { wantVersion(t, c, 1) })
		}
		all.Wait()
		if n := store.count(); n != 1 {
			t.Fatalf("%d reads", n)
		}
	})
}

func TestAbsenceIsRememberedBriefly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, c := newStub(absent)
		for range 3 {
			_, err := c.Topic(t.Context(), "t")
			wantReason(t, err, fault.TopicNotFound)
		}
		if n := store.count(); n != 1 {
			t.Fatalf("%d reads of an absent topic", n)
		}
		store.answer(version(1))
		time.Sleep(absentFor)
		wantVersion(t, c, 1)

		// A read that is under way when the topic is forgotten answers nobody who comes later.
		slow := make(chan struct{})
		store.answer(func(ctx context.Context, name string) (*qlog.Topic, error) {
			<-slow
			return version(1)(ctx, name)
		})
		c.Forget("t")
		early := make(chan int64, 1)
		go func() {
			topic, _ := c.Topic(t.Context(), "t")
			early <- topic.Version
		}()
		synctest.Wait()
		store.answer(version(2))
		c.Forget("t")
		wantVersion(t, c, 2)
		close(slow)
		if v := <-early; v != 1 {
			t.Fatalf("got version %d", v)
		}
		wantVersion(t, c, 2)
	})
}

func TestReloadReadsTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, c := newStub(version(1))
		wantVersion(t, c, 1)
		store.answer(version(2))
		if topic, err := c.Reload(t.Context(), "t"); err != nil || topic.Version != 2 {
			t.Fatalf("got %+v, %v", topic, err)
		}
		wantVersion(t, c, 2)
	})
}

// TestKnownOutlivesTheStore: what was read once is known while the store is away, until the store says
// that the topic is gone.
func TestKnownOutlivesTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := newStub(version(1))
		if c.Known("jobs") != nil {
			t.Error("a topic is known that was never read")
		}
		if _, err := c.Topic(t.Context(), "jobs"); err != nil {
			t.Fatal(err)
		}
		s.answer(func(context.Context, string) (*qlog.Topic, error) {
			return nil, fault.New(fault.Unavailable, fault.StoreUnavailable, "away")
		})
		time.Sleep(time.Minute)
		if _, err := c.Topic(t.Context(), "jobs"); !fault.Is(err, fault.StoreUnavailable) {
			t.Errorf("Topic: %v", err)
		}
		if known := c.Known("jobs"); known == nil || known.Version != 1 {
			t.Errorf("Known: %v", known)
		}
		s.answer(absent)
		if _, err := c.Topic(t.Context(), "jobs"); !fault.Is(err, fault.TopicNotFound) || c.Known("jobs") != nil {
			t.Errorf("a topic that is gone: %v, known %v", err, c.Known("jobs"))
		}
	})
}

func TestTheCatalogIsBounded(t *testing.T) {
	t.Parallel()
	_, c := newStub(func(ctx context.Context, name string) (*qlog.Topic, error) {
		if name[0] == 'x' {
			return absent(ctx, name)
		}
		return version(1)(ctx, name)
	})
	for i := range 2*maxCatalog + 500 {
		_, _ = c.Topic(t.Context(), fmt.Sprintf("%c%d", "tx"[i%2], i))
	}
	if len(c.entries) > maxCatalog || len(c.loads) > 0 {
		t.Fatalf("%d entries, %d loads", len(c.entries), len(c.loads))
	}
}

// On a real store: a change that this node makes is seen at once, one of another node within two
// seconds.
func TestChangesAreSeen(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx := t.Context()
	_, other := f.node(f.store)
	f.create(qlog.Topic{Name: "jobs", Partitions: 1})
	for i := range int64(3) {
		f.must(second(other.Topic(ctx, "jobs")))
		begun := time.Now()
		f.must(second(f.UpdateTopic(ctx, "jobs", func(t *qlog.Topic) error { t.MaxMessages = i + 1; return nil })))
		mine, err := f.catalog.Topic(ctx, "jobs")
		f.must(err)
		if mine.MaxMessages != i+1 {
			t.Errorf("this node has %+v", mine)
		}
		f.eventually(func() bool {
			topic, err := other.Topic(ctx, "jobs")
			f.must(err)
			return topic.MaxMessages == i+1
		})
		if d := time.Since(begun); d > staleAfter+500*time.Millisecond {
			t.Errorf("the other node saw it after %s", d)
		}
	}
}
