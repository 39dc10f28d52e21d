package topics

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// broken is a change that is broken off, and what must be so when it was made again.
type broken struct {
	name string
	// prepare makes what the change needs.
	prepare func(f *fleet)
	change  func(ctx context.Context, a *Admin) error
	// again are the reasons with which the repeat may fail, because the first call did it.
	again []fault.Reason
	check func(f *fleet)
}

func brokenChanges() []broken {
	two := func(f *fleet) {
		t := f.create(qlog.Topic{Name: "jobs", Partitions: 2}, "work")
		f.put(t, 0, 3)
	}
	gone := func(f *fleet) {
		if keys := f.keys(); len(keys) != 0 {
			f.t.Errorf("left: %q", keys)
		}
	}
	return []broken{
		{
			name: "CreateTopic", prepare: func(*fleet) {},
			change: func(ctx context.Context, a *Admin) error {
				_, err := a.CreateTopic(ctx, qlog.Topic{Name: "jobs", Partitions: 3})
				return err
			},
			again: []fault.Reason{fault.TopicExists}, check: func(f *fleet) { f.whole("jobs", 3) },
		},
		{
			name: "UpdateTopic", prepare: two,
			change: func(ctx context.Context, a *Admin) error {
				_, err := a.UpdateTopic(ctx, "jobs", func(t *qlog.Topic) error { t.Partitions, t.MaxMessages = 4, 9; return nil })
				return err
			},
			check: func(f *fleet) {
				if t := f.whole("jobs", 4, "work"); t.MaxMessages != 9 {
					f.t.Errorf("%+v", t)
				}
			},
		},
		{
			name: "SetTopicPaused", prepare: two,
			change: func(ctx context.Context, a *Admin) error { _, err := a.SetTopicPaused(ctx, "jobs", true); return err },
			check: func(f *fleet) {
				t := f.whole("jobs", 2, "work")
				for p := range 2 {
					if _, err := f.store.Put(f.t.Context(), t.Ref(p), t.Bounds, qlog.Put{Drafts: []qlog.Draft{{}}}); !errors.Is(err, qlog.ErrPaused) {
						f.t.Errorf("partition %d: %v", p, err)
					}
				}
			},
		},
		{
			name: "DeleteTopic", prepare: two,
			change: func(ctx context.Context, a *Admin) error { return a.DeleteTopic(ctx, "jobs", "jobs") },
			again:  []fault.Reason{fault.TopicNotFound}, check: gone,
		},
		{
			name: "CreateGroup", prepare: two,
			change: func(ctx context.Context, a *Admin) error {
				_, err := a.CreateGroup(ctx, "jobs", qlog.Group{Name: "end", Start: qlog.Start{End: true}})
				return err
			},
			again: []fault.Reason{fault.GroupExists},
			check: func(f *fleet) {
				if n := f.unsent(f.whole("jobs", 2, "end", "work"), 0, "end"); n != 0 {
					f.t.Errorf("the group has %d messages of before", n)
				}
			},
		},
		{
			name: "UpdateGroup", prepare: two,
			change: func(ctx context.Context, a *Admin) error {
				_, err := a.UpdateGroup(ctx, "jobs", "work", func(g *qlog.Group) error { g.Retry.MaxAttempts = 3; return nil })
				return err
			},
			check: func(f *fleet) {
				if t := f.whole("jobs", 2, "work"); t.Groups[0].Retry.MaxAttempts != 3 {
					f.t.Errorf("%+v", t.Groups)
				}
			},
		},
		{
			name: "DeleteGroup", prepare: two,
			change: func(ctx context.Context, a *Admin) error { return a.DeleteGroup(ctx, "jobs", "work", "work") },
			again:  []fault.Reason{fault.GroupNotFound}, check: func(f *fleet) { f.whole("jobs", 2) },
		},
		{
			name: "SeekGroup", prepare: two,
			change: func(ctx context.Context, a *Admin) error {
				return a.SeekGroup(ctx, "jobs", "work", qlog.Start{End: true})
			},
			check: func(f *fleet) {
				if n := f.unsent(f.whole("jobs", 2, "work"), 0, "work"); n != 0 {
					f.t.Errorf("the group has %d messages of before", n)
				}
			},
		},
	}
}

// A change whose node dies before any of its steps is completed by the same call on another node.
// One of whose steps has no answer completes on its own.
func TestChangesThatAreBrokenOff(t *testing.T) {
	t.Parallel()
	for _, c := range brokenChanges() {
		for _, unknown := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, unknown=%t", c.name, unknown), func(t *testing.T) {
				t.Parallel()
				for at := int64(1); ; at++ {
					f := newFleet(t)
					c.prepare(f)
					store := &failing{Store: f.store, at: at, unknown: unknown}
					admin, _ := f.node(store)
					err := c.change(t.Context(), admin)
					if store.calls.Load() < at {
						f.must(err)
						if at < 3 {
							t.Errorf("the change has %d steps", at-1)
						}
						return
					}
					if !unknown && err == nil {
						t.Fatalf("step %d failed without an error", at)
					}
					if unknown && err != nil {
						t.Fatalf("step %d without an answer: %v", at, err)
					}
					if err != nil {
						f.repeated(c)
					}
					c.check(f)
					if t.Failed() {
						t.Fatalf("after step %d failed", at)
					}
				}
			})
		}
	}
}

// repeated makes the change again.
func (f *fleet) repeated(c broken) {
	f.t.Helper()
	err := c.change(f.t.Context(), f.Admin)
	for _, reason := range c.again {
		if fault.Is(err, reason) {
			return
		}
	}
	f.must(err)
}

// A creation or deletion that was broken off is completed when somebody asks for the topic.
func TestTheCatalogCompletesTopics(t *testing.T) {
	t.Parallel()
	for at := int64(2); at <= 5; at++ {
		f := newFleet(t)
		admin, _ := f.node(&failing{Store: f.store, at: at + 1}) // looking for lost settings is its first step
		if _, err := admin.CreateTopic(t.Context(), qlog.Topic{Name: "jobs", Partitions: 3}); !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		topic, err := f.catalog.Topic(t.Context(), "jobs")
		f.must(err)
		f.whole("jobs", 3)
		admin, _ = f.node(&failing{Store: f.store, at: at})
		if err := admin.DeleteTopic(t.Context(), "jobs", "jobs"); !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		f.catalog.Forget("jobs")
		_, err = f.catalog.Topic(t.Context(), "jobs")
		f.want(err, fault.TopicNotFound)
		if keys := f.keys(); len(keys) != 0 {
			t.Errorf("of %s is left: %q", topic.UID, keys)
		}
	}
}

// A deletion that was broken off does not let a new group of the name continue where the old one
// was.
func TestAGroupIsNewAfterADeletionThatWasBrokenOff(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	topic := f.create(qlog.Topic{Name: "jobs", Partitions: 2}, "work")
	f.put(topic, 0, 3)
	f.must(f.SeekGroup(t.Context(), "jobs", "work", qlog.Start{End: true}))
	admin, _ := f.node(&failing{Store: f.store, at: 4})
	if err := admin.DeleteGroup(t.Context(), "jobs", "work", "work"); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	_, err := f.CreateGroup(t.Context(), "jobs", qlog.Group{Name: "work"})
	f.must(err)
	if n := f.unsent(f.whole("jobs", 2, "work"), 0, "work"); n != 3 {
		t.Errorf("the new group has %d messages of 3", n)
	}
}

// A partition that a call made after its topic had been deleted is not in the way of the next
// topic.
func TestAPartitionOfADeletedTopicIsRemoved(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	old := f.create(qlog.Topic{Name: "jobs", Partitions: 2})
	f.must(f.DeleteTopic(t.Context(), "jobs", "jobs"))
	late := clone(old)
	late.Version = 99
	for _, p := range []int{0, 3} {
		f.must(f.store.MakePartition(t.Context(), late, p))
	}
	f.create(qlog.Topic{Name: "jobs", Partitions: 2}, "work")
	_, err := f.UpdateTopic(t.Context(), "jobs", func(t *qlog.Topic) error { t.Partitions = 5; return nil })
	f.must(err)
	f.whole("jobs", 5, "work")
	// A later topic's partition is not removed by a caller that still has the earlier topic's
	// settings.
	if err := f.steps.clear(t.Context(), late, 0); !errors.Is(err, qlog.ErrNoTopic) {
		t.Error(err)
	}
	f.whole("jobs", 5, "work")
}

// Nobody is told of a partition before it is there.
func TestPartitionsAreThereBeforeTheSettingsSaySo(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	store := &failing{Store: f.store}
	want, updates := 3, 0
	store.before = func(_ int64, what string) {
		if what != "UpdateTopic" {
			return
		}
		updates++
		for p := range want {
			if there, err := f.store.Partition(t.Context(), "jobs", p); err != nil || there.UID == "" {
				t.Errorf("the settings are written before partition %d is there: %v", p, err)
			}
		}
	}
	admin, _ := f.node(store)
	f.must(second(admin.CreateTopic(t.Context(), qlog.Topic{Name: "jobs", Partitions: 3})))
	want = 5
	f.must(second(admin.UpdateTopic(t.Context(), "jobs", func(t *qlog.Topic) error { t.Partitions = 5; return nil })))
	if updates != 2 {
		t.Errorf("%d updates", updates)
	}
}

// The partitions of a growth that was broken off before the settings knew of them go with the
// topic.
func TestAGrowthThatWasBrokenOffGoesWithTheTopic(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.create(qlog.Topic{Name: "jobs", Partitions: 1}, "work")
	admin, _ := f.node(&failing{Store: f.store, at: 4})
	if _, err := admin.UpdateTopic(t.Context(), "jobs", func(t *qlog.Topic) error { t.Partitions = 4; return nil }); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	if there, err := f.store.Partition(t.Context(), "jobs", 3); err != nil || there.UID == "" || f.read("jobs").Partitions != 1 {
		t.Fatalf("%+v, %v", there, err)
	}
	f.must(f.DeleteTopic(t.Context(), "jobs", "jobs"))
	if keys := f.keys(); len(keys) != 0 {
		t.Errorf("left: %q", keys)
	}
}
