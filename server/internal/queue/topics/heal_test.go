package topics

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// What the store lost comes back when somebody asks for the topic, or a partition of it.
func TestLostKeysHeal(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"streaming:mq:topic:jobs:meta", "streaming:mq:topics:registry", "stream:topic:{jobs:1}*", "stream:topic:{jobs:1}:meta", "stream:topic:{jobs:1}:g:work"} {
		t.Run(pattern, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			ctx := t.Context()
			want := f.create(qlog.Topic{Name: "jobs", Partitions: 3}, "work")
			for p := range 3 {
				f.put(want, p, 2)
			}
			f.lose(pattern)
			got, err := f.catalog.Topic(ctx, "jobs")
			f.must(err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-before +after):\n%s", diff)
			}
			for p := range 3 {
				ref := qlog.GroupRef{Ref: got.Ref(p), Group: "work"}
				_, epoch, err := f.store.Lease(ctx, ref)
				if err == nil {
					_, err = f.store.Acquire(ctx, ref, "n", epoch)
				}
				lost := strings.HasPrefix(pattern, "stream:") && p == 1
				if lost != (errors.Is(err, qlog.ErrNoTopic) || errors.Is(err, qlog.ErrNoGroup)) || !lost && err != nil {
					t.Errorf("partition %d: %v", p, err)
				}
				if lost {
					f.must(f.catalog.Heal(ctx, got, p))
				}
				if n := f.unsent(got, p, "work"); n != 2 && pattern != "stream:topic:{jobs:1}*" {
					t.Errorf("partition %d: %d of 2 messages", p, n)
				}
			}
			f.whole("jobs", 3, "work")
		})
	}
}

func TestHealing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx := t.Context()
	topic := f.create(qlog.Topic{Name: "jobs", Partitions: 2})
	f.want(f.catalog.Heal(ctx, topic, 2), fault.TopicNotFound)
	f.want(f.catalog.Heal(ctx, topic, -1), fault.TopicNotFound)
	f.want(f.catalog.Heal(ctx, &qlog.Topic{Name: "none"}, 0), fault.TopicNotFound)
	f.want(f.catalog.Heal(ctx, &qlog.Topic{Name: "jobs", UID: "AAAAAAAAAAAAA"}, 0), fault.TopicNotFound)

	// Many callers share the work.
	f.lose("stream:topic:{jobs:1}:meta")
	store := &failing{Store: f.store}
	_, catalog := f.node(store)
	started, goOn := make(chan struct{}), make(chan struct{})
	store.before = func(n int64, _ string) {
		if n == 1 {
			close(started)
			<-goOn
		}
	}
	var all sync.WaitGroup
	heal := func() {
		if err := catalog.Heal(ctx, topic, 1); err != nil {
			t.Error(err)
		}
	}
	all.Go(heal)
	<-started
	for range 50 {
		all.Go(heal)
	}
	f.eventually(func() bool { // all have read the topic and wait
		catalog.mu.Lock()
		defer catalog.mu.Unlock()
		return len(catalog.loads) == 0
	})
	close(goOn)
	all.Wait()
	if n := store.calls.Load(); n > 25 {
		t.Errorf("%d writes for 51 callers", n)
	}
	if len(catalog.heals) != 0 {
		t.Errorf("%d healings are under way", len(catalog.heals))
	}
	f.whole("jobs", 2)

	// A resume that was broken off leaves a partition paused.
	f.must(second(f.SetTopicPaused(ctx, "jobs", true)))
	admin, _ := f.node(&failing{Store: f.store, at: 2})
	if _, err := admin.SetTopicPaused(ctx, "jobs", false); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	if _, err := f.store.Put(ctx, topic.Ref(1), topic.Bounds, qlog.Put{Drafts: []qlog.Draft{{}}}); !errors.Is(err, qlog.ErrPaused) {
		t.Fatal(err)
	}
	f.must(f.catalog.Heal(ctx, topic, 1))
	f.put(topic, 1, 1)
}

func second[T any](_ T, err error) error { return err }

// Settings that the store rolled back, while the partitions have later ones, are moved forward.
func TestSettingsBehindThePartitions(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx := t.Context()
	topic := f.create(qlog.Topic{Name: "jobs", Partitions: 3}, "work")
	key := f.prefix + "streaming:mq:topic:jobs:meta"
	earlier, err := f.client.Dump(ctx, key).Result()
	f.must(err)
	for i := range 5 {
		f.must(second(f.UpdateTopic(ctx, "jobs", func(t *qlog.Topic) error { t.MaxMessages = int64(i + 1); return nil })))
	}
	f.must(f.client.RestoreReplace(ctx, key, 0, earlier).Err())
	f.must(f.catalog.Heal(ctx, topic, 1))
	if got := f.whole("jobs", 3, "work"); got.Version <= topic.Version+5 {
		t.Errorf("version %d", got.Version)
	}
	f.must(f.client.RestoreReplace(ctx, key, 0, earlier).Err())
	f.must(second(f.SetTopicPaused(ctx, "jobs", true)))
	f.whole("jobs", 3, "work")
	// Too far behind to be a loss of the latest writes.
	f.must(f.client.HSet(ctx, f.prefix+"stream:topic:{jobs:0}:meta", "version", 1_000_000).Err())
	f.want(second(f.SetTopicPaused(ctx, "jobs", false)), fault.StoreUnavailable)
}

func TestRepair(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx := t.Context()
	_, _, err := f.RepairTopic(ctx, "jobs")
	f.want(err, fault.TopicNotFound)
	before := f.create(qlog.Topic{Name: "jobs", Partitions: 4}, "old", "work")
	repair := func(want ...string) {
		t.Helper()
		topic, got, err := f.RepairTopic(ctx, "jobs")
		f.must(err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if topic.UID != before.UID {
			t.Errorf("%+v", topic)
		}
		f.whole("jobs", 4, names(topic.Groups)...)
	}
	repair()
	f.lose("streaming:mq:topic:jobs:meta")
	f.lose("stream:topic:{jobs:1}:meta")
	f.lose("stream:topic:{jobs:2}:g:work")
	repair("the settings of the topic were lost", "partition 1 was missing", "partition 2 had lost the state of the group work")
	repair()
	f.lose("streaming:mq:topics:registry")
	repair("the registry of topics lacked the topic")

	admin, _ := f.node(&failing{Store: f.store, at: 6})
	if err := admin.DeleteGroup(ctx, "jobs", "old", "old"); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	found := []string{}
	for _, p := range []string{"0", "1", "2", "3"} {
		found = append(found, "partition "+p+" had earlier settings (version 4) than the topic (version 5)", "partition "+p+" had the group old, which was deleted")
	}
	repair(found...)

	// A partition of an earlier topic is replaced, one of a later topic is not touched.
	other := clone(before)
	other.UID, other.CreatedAt = "AAAAAAAAAAAAA", before.CreatedAt.Add(-1e9)
	f.lose("stream:topic:{jobs:3}*")
	f.must(f.store.MakePartition(ctx, other, 3))
	repair("partition 3 was that of an earlier topic of the name")
	f.lose("stream:topic:{jobs:3}*")
	other.CreatedAt = before.CreatedAt.Add(1e9)
	f.must(f.store.MakePartition(ctx, other, 3))
	_, _, err = f.RepairTopic(ctx, "jobs")
	f.want(err, fault.StoreUnavailable)
	if there, err := f.store.Partition(ctx, "jobs", 3); err != nil || there.UID != other.UID {
		t.Errorf("%+v, %v", there, err)
	}

	// A creation that was broken off.
	admin, _ = f.node(&failing{Store: f.store, at: 3})
	if _, err := admin.CreateTopic(ctx, qlog.Topic{Name: "half", Partitions: 2}); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	if _, got, err := f.RepairTopic(ctx, "half"); err != nil || !slices.Equal(got, []string{"the creation of the topic was not complete"}) {
		t.Errorf("%q, %v", got, err)
	}
	f.whole("half", 2)
}

// A topic whose settings were lost is still there for those who create or delete it.
func TestLostSettingsStayInTheWay(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx := t.Context()
	topic := f.create(qlog.Topic{Name: "jobs", Partitions: 2}, "work")
	f.put(topic, 0, 3)
	f.lose("streaming:mq:topic:jobs:meta")
	f.want(second(f.CreateTopic(ctx, qlog.Topic{Name: "jobs", Partitions: 2})), fault.TopicExists)
	if n := f.unsent(f.whole("jobs", 2, "work"), 0, "work"); n != 3 {
		t.Errorf("%d messages of 3", n)
	}
	f.lose("streaming:mq:topic:jobs:meta")
	f.must(f.DeleteTopic(ctx, "jobs", "jobs"))
	if keys := f.keys(); len(keys) != 0 {
		t.Errorf("left: %q", keys)
	}
	// A partition that lost its settings is removed too, and its group.
	topic = f.create(qlog.Topic{Name: "jobs", Partitions: 2}, "old", "work")
	f.put(topic, 0, 3)
	f.lose("stream:topic:{jobs:0}:meta")
	f.must(f.DeleteGroup(ctx, "jobs", "old", "old"))
	if keys := f.keys(); slices.Contains(keys, "stream:topic:{jobs:0}:g:old") {
		t.Errorf("left: %q", keys)
	}
	f.lose("stream:topic:{jobs:0}:meta")
	f.must(f.DeleteTopic(ctx, "jobs", "jobs"))
	if keys := f.keys(); len(keys) != 0 {
		t.Errorf("left: %q", keys)
	}

	// A name in the registry is all that is left.
	f.must(f.client.SAdd(ctx, f.prefix+"streaming:mq:topics:registry", "jobs").Err())
	f.want(second(f.catalog.Topic(ctx, "jobs")), fault.TopicNotFound)
	f.want(f.DeleteTopic(ctx, "jobs", "jobs"), fault.TopicNotFound)
	if keys := f.keys(); len(keys) != 0 {
		t.Errorf("left: %q", keys)
	}
}
