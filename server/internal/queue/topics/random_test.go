package topics

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

var _ consume.Topics = (*Catalog)(nil)

// TestRandomChanges makes random changes of a topic, many of which are broken off or lose an
// answer, and loses keys. Whatever happened, a repair brings the partitions in line with the
// settings, these are what some changes made them, and a deletion leaves nothing.
func TestRandomChanges(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			f, r := newFleet(t), rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test that can be repeated
			for range 40 {
				f.randomChange(t, r)
				if r.IntN(4) == 0 {
					f.settled(t)
				}
			}
			for range 2 {
				if err := f.DeleteTopic(t.Context(), "jobs", "jobs"); err != nil && !fault.Is(err, fault.TopicNotFound) {
					t.Fatal(err)
				}
			}
			if keys := f.keys(); len(keys) != 0 {
				t.Errorf("left: %q", keys)
			}
		})
	}
}

// settled repairs the topic, if there is one, and fails the test unless it is whole.
func (f *fleet) settled(t *testing.T) {
	t.Helper()
	topic, _, err := f.RepairTopic(t.Context(), "jobs")
	if fault.Is(err, fault.TopicNotFound) {
		return
	}
	f.must(err)
	for p := range topic.Partitions {
		there, err := f.store.Partition(t.Context(), "jobs", p)
		f.must(err)
		if there.UID != topic.UID || there.Version != topic.Version || len(there.Lost) > 0 || !slices.Equal(there.Groups, names(topic.Groups)) {
			t.Fatalf("partition %d is %+v, the topic is %+v", p, there, topic)
		}
	}
}

// randomChange makes a change on a node that may die in it, or loses a key.
func (f *fleet) randomChange(t *testing.T, r *rand.Rand) {
	t.Helper()
	store := &failing{Store: f.store, at: int64(r.IntN(12)), unknown: r.IntN(2) == 0}
	a, catalog := f.node(store)
	group, paused, ctx := fmt.Sprint("g", r.IntN(4)), r.IntN(2) == 0, t.Context()
	changes := []func(ctx context.Context) error{
		func(ctx context.Context) error {
			return second(a.CreateTopic(ctx, qlog.Topic{Name: "jobs", Partitions: 1 + r.IntN(3)}))
		},
		func(ctx context.Context) error { return a.DeleteTopic(ctx, "jobs", "jobs") },
		func(ctx context.Context) error { return second(a.SetTopicPaused(ctx, "jobs", paused)) },
		func(ctx context.Context) error {
			return second(a.UpdateTopic(ctx, "jobs", func(t *qlog.Topic) error { t.Partitions++; return nil }))
		},
		func(ctx context.Context) error { return second(a.CreateGroup(ctx, "jobs", qlog.Group{Name: group})) },
		func(ctx context.Context) error { return second(a.SetGroupPaused(ctx, "jobs", group, paused)) },
		func(ctx context.Context) error { return a.DeleteGroup(ctx, "jobs", group, group) },
		func(ctx context.Context) error { return a.SeekGroup(ctx, "jobs", group, qlog.Start{End: paused}) },
		func(ctx context.Context) error { return second(catalog.Topic(ctx, "jobs")) },
		func(context.Context) error { f.loseOne(r); return nil },
	}
	// Deletions and losses are rare.
	n := []int{0, 0, 2, 3, 3, 4, 4, 4, 4, 5, 5, 6, 6, 7, 8, 9, 9, 1}[r.IntN(18)]
	err := changes[n](ctx)
	expected := err == nil || errors.Is(err, errCrash)
	for _, reason := range []fault.Reason{fault.TopicNotFound, fault.TopicExists, fault.GroupNotFound, fault.GroupExists} {
		expected = expected || fault.Is(err, reason)
	}
	if !expected {
		t.Fatalf("change %d, step %d (unknown: %t): %v", n, store.at, store.unknown, err)
	}
}

// loseOne loses a random key that has a copy elsewhere.
func (f *fleet) loseOne(r *rand.Rand) {
	f.t.Helper()
	// While the settings are lost the registration must stay, and the other way round.
	topic, err := f.Topic(f.t.Context(), "jobs")
	if err != nil {
		return
	}
	keys := slices.DeleteFunc(f.keys(), func(k string) bool {
		var p int
		// One copy of the settings must stay, and nobody looks for what a growth that was broken off left.
		_, err := fmt.Sscanf(k, "stream:topic:{jobs:%d}", &p)
		return k == "stream:topic:{jobs:0}:meta" || err == nil && p >= topic.Partitions
	})
	if len(keys) > 0 {
		f.must(f.client.Del(f.t.Context(), f.prefix+keys[r.IntN(len(keys))]).Err())
	}
}
