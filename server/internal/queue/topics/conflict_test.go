package topics

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// Changes of different settings by two nodes at a time are all kept, and the partitions agree.
func TestTwoAdminsAtATime(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx := t.Context()
	f.create(qlog.Topic{Name: "jobs", Partitions: 2}, "old", "work")
	other, _ := f.node(f.store)
	var all sync.WaitGroup
	run := func(fn func() error) {
		all.Go(func() {
			if err := fn(); err != nil {
				t.Error(err)
			}
		})
	}
	groups := []string{}
	for i, a := range []*Admin{f.Admin, other} {
		for n := range 4 {
			name := fmt.Sprintf("g%d-%d", i, n)
			groups = append(groups, name)
			run(func() error { return second(a.CreateGroup(ctx, "jobs", qlog.Group{Name: name})) })
		}
	}
	run(func() error { return f.DeleteGroup(ctx, "jobs", "old", "old") })
	run(func() error {
		return second(f.UpdateTopic(ctx, "jobs", func(t *qlog.Topic) error { t.Partitions = 6; return nil }))
	})
	run(func() error {
		return second(other.UpdateTopic(ctx, "jobs", func(t *qlog.Topic) error { t.MaxMessages = 7; return nil }))
	})
	run(func() error {
		return second(other.UpdateGroup(ctx, "jobs", "work", func(g *qlog.Group) error { g.Retry.MaxAttempts = 2; return nil }))
	})
	run(func() error { return second(f.SetGroupPaused(ctx, "jobs", "work", true)) })
	all.Wait()
	got := f.whole("jobs", 6, append(groups, "work")...)
	if g := got.Group("work"); got.MaxMessages != 7 || g.Retry.MaxAttempts != 2 || !g.Paused {
		t.Errorf("%+v", got)
	}
}

func TestChangesGiveUp(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.create(qlog.Topic{Name: "jobs", Partitions: 1})
	store := &failing{Store: f.store}
	n := int64(0)
	store.before = func(int64, string) {
		topic := f.read("jobs")
		topic.MaxMessages, n = n+1, n+1
		if err := f.store.UpdateTopic(t.Context(), topic); err != nil {
			t.Error(err)
		}
	}
	admin, _ := f.node(store)
	calls := 0
	_, err := admin.UpdateTopic(t.Context(), "jobs", func(t *qlog.Topic) error { calls++; t.DropOldest = true; return nil })
	f.want(err, fault.StoreUnavailable)
	if calls != maxTries {
		t.Errorf("%d tries", calls)
	}
	f.want(admin.DeleteTopic(t.Context(), "jobs", "jobs"), fault.StoreUnavailable)
}

// Of several callers that create the same topic one succeeds, also if others look at it, and the
// others fail when it is complete.
func TestOneOfManyCreatesATopic(t *testing.T) {
	t.Parallel()
	for i := range 10 {
		f := newFleet(t)
		var all sync.WaitGroup
		var mu sync.Mutex
		made := 0
		for range 6 {
			all.Go(func() {
				admin, catalog := f.node(f.store)
				_, _ = catalog.Topic(t.Context(), "jobs")
				_, err := admin.CreateTopic(t.Context(), qlog.Topic{Name: "jobs", Partitions: 4})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					made++
				case !fault.Is(err, fault.TopicExists):
					t.Error(err)
				}
				if got := f.read("jobs"); got.State != qlog.Live {
					t.Errorf("after %v the topic's state is %d", err, got.State)
				}
			})
		}
		all.Wait()
		if made != 1 {
			t.Fatalf("round %d: %d callers created the topic", i, made)
		}
		f.whole("jobs", 4)
	}
}

// A topic that another caller is making with other settings is waited for; one whose maker is dead
// is completed if it is the same, and removed after a while if it is not.
func TestATopicThatIsBeingMade(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx := t.Context()
	insert := func(name string) *qlog.Topic {
		topic := &qlog.Topic{Name: name, UID: "AAAAAAAAAAAAA", Version: 1, Partitions: 3, Partitioner: qlog.Hash, CreatedAt: now()}
		complete(topic)
		f.must(second(f.store.InsertTopic(ctx, topic)))
		f.must(f.store.MakePartition(ctx, topic, 1))
		return topic
	}
	insert("young")
	f.want(second(f.CreateTopic(ctx, qlog.Topic{Name: "young", Partitions: 2})), fault.TopicExists)
	made, err := f.CreateTopic(ctx, qlog.Topic{Name: "young", Partitions: 3, Partitioner: qlog.Hash})
	f.must(err)
	if made.UID != "AAAAAAAAAAAAA" {
		t.Errorf("%+v", made)
	}
	f.whole("young", 3)

	old := insert("old")
	old.State, old.CreatedAt = qlog.Making, old.CreatedAt.Add(-abandoned)
	f.must(f.store.UpdateTopic(ctx, old))
	made, err = f.CreateTopic(ctx, qlog.Topic{Name: "old", Partitions: 2})
	f.must(err)
	if made.UID == old.UID {
		t.Errorf("%+v", made)
	}
	f.whole("old", 2)
}

// Topics that are deleted while they are changed leave nothing behind.
func TestDeletedWhileItIsChanged(t *testing.T) {
	t.Parallel()
	for at := int64(1); at <= 4; at++ {
		f := newFleet(t)
		f.create(qlog.Topic{Name: "jobs", Partitions: 2}, "work")
		store := &failing{Store: f.store}
		store.before = func(n int64, _ string) {
			if n != at {
				return
			}
			// As far as the settings are still there: see steps.align.
			topic := f.read("jobs")
			topic.State = qlog.Removing
			f.must(f.store.UpdateTopic(t.Context(), topic))
			for p := range 2 {
				f.must(f.store.RemovePartition(t.Context(), topic, p))
			}
		}
		admin, _ := f.node(store)
		_, err := admin.SetTopicPaused(t.Context(), "jobs", true)
		if err == nil && store.calls.Load() >= at {
			t.Errorf("step %d: no error", at)
		}
		if err != nil {
			f.want(err, fault.TopicNotFound)
		}
		if _, err := f.catalog.Topic(t.Context(), "jobs"); store.calls.Load() >= at && !fault.Is(err, fault.TopicNotFound) {
			t.Error(err)
		}
		if keys := f.keys(); store.calls.Load() >= at && len(keys) != 0 {
			t.Errorf("step %d: left: %q", at, keys)
		}
		if errors.Is(err, errCrash) {
			t.Error(err)
		}
	}
}
