package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/store/redisqueue"
)

// crashStore fails, as of the call with a number, every call that changes topics, partitions or groups: its node is dead.
type crashStore struct {
	*redisqueue.Store

	calls, at atomic.Int64
}

var errCrash = errors.New("crashed")

func (s *crashStore) dead() bool { return s.at.Load() > 0 && s.calls.Add(1) >= s.at.Load() }

func (s *crashStore) InsertTopic(ctx context.Context, t *queue.Topic) (*queue.Topic, error) {
	if s.dead() {
		return nil, errCrash
	}
	return s.Store.InsertTopic(ctx, t)
}

func (s *crashStore) UpdateTopic(ctx context.Context, t *queue.Topic) error {
	if s.dead() {
		return errCrash
	}
	return s.Store.UpdateTopic(ctx, t)
}

func (s *crashStore) RemoveTopic(ctx context.Context, t *queue.Topic) error {
	if s.dead() {
		return errCrash
	}
	return s.Store.RemoveTopic(ctx, t)
}

func (s *crashStore) MakePartition(ctx context.Context, t *queue.Topic, p int) error {
	if s.dead() {
		return errCrash
	}
	return s.Store.MakePartition(ctx, t, p)
}

func (s *crashStore) RemovePartition(ctx context.Context, t *queue.Topic, p int) error {
	if s.dead() {
		return errCrash
	}
	return s.Store.RemovePartition(ctx, t, p)
}

func (s *crashStore) MakeGroup(ctx context.Context, ref queue.Ref, g queue.Group) error {
	if s.dead() {
		return errCrash
	}
	return s.Store.MakeGroup(ctx, ref, g)
}

func (s *crashStore) RemoveGroup(ctx context.Context, ref queue.Ref, g string) error {
	if s.dead() {
		return errCrash
	}
	return s.Store.RemoveGroup(ctx, ref, g)
}

type adminRig struct {
	*queue.Admin

	t       *testing.T
	store   *redisqueue.Store
	catalog *queue.Catalog
	service *queue.Service
}

func newAdminRig(t *testing.T) *adminRig {
	t.Helper()
	store, _ := testStore(t)
	catalog := queue.NewCatalog(store)
	return &adminRig{
		Admin: queue.NewAdmin(queue.AdminConfig{Store: store, Catalog: catalog}), t: t, store: store, catalog: catalog,
		service: queue.NewService(queue.ServiceConfig{Store: store, Catalog: catalog}),
	}
}

// crashing gives an Admin that dies at its n-th change, counted from 1.
func (r *adminRig) crashing(n int64) *queue.Admin {
	s := &crashStore{Store: r.store}
	s.at.Store(n)
	return queue.NewAdmin(queue.AdminConfig{Store: s, Catalog: queue.NewCatalog(s)})
}

func (r *adminRig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *adminRig) want(err error, reason fault.Reason) {
	r.t.Helper()
	if !fault.Is(err, reason) {
		r.t.Fatalf("got %v, want %s", err, reason)
	}
}

func (r *adminRig) create(t queue.Topic, groups ...string) *queue.Topic {
	r.t.Helper()
	made, err := r.CreateTopic(r.t.Context(), t)
	r.must(err)
	for _, g := range groups {
		r.must(r.CreateGroup(r.t.Context(), t.Name, queue.Group{Name: g}))
	}
	return made
}

// produce stores n messages, keyed so that all partitions get some.
func (r *adminRig) produce(topic string, n int) {
	r.t.Helper()
	drafts := make([]queue.Draft, n)
	for i := range drafts {
		drafts[i].Key, drafts[i].Payload = fmt.Sprint("key", i), fmt.Append(nil, i)
	}
	outcomes, err := r.service.Produce(r.t.Context(), topic, drafts)
	r.must(err)
	for _, o := range outcomes {
		r.must(o.Err)
	}
}

// settle takes everything that is unread in the partition and ends it by the verdict; with none it stays pending, and the lease held.
func (r *adminRig) settle(topic, group string, partition int, v queue.Verdict) int {
	r.t.Helper()
	t, err := r.Topic(r.t.Context(), topic)
	r.must(err)
	lease, err := r.store.Acquire(r.t.Context(), t.Ref(partition), group, "someone", time.Minute)
	r.must(err)
	page, err := r.store.Claim(r.t.Context(), lease, queue.Main, queue.EntryID{MS: 1 << 60}, 1)
	r.must(err)
	entries, _, err := r.store.Fetch(r.t.Context(), t, lease, page.Mark, 1000)
	r.must(err)
	var all []queue.Settlement
	for _, e := range entries {
		all = append(all, queue.Settlement{Entry: e, Verdict: v, Reason: "no"})
	}
	if v != 0 && len(all) > 0 {
		r.must(r.store.Settle(r.t.Context(), t, lease, all))
	}
	if v != 0 {
		r.must(r.store.Free(r.t.Context(), lease))
	}
	return len(entries)
}

// whole checks that the topic's partitions are there with exactly its groups.
func (r *adminRig) whole(name string, partitions int, groups ...string) {
	r.t.Helper()
	s, err := r.Stats(r.t.Context(), name)
	r.must(err)
	if len(s.Partitions) != partitions {
		r.t.Fatalf("%d partitions, want %d", len(s.Partitions), partitions)
	}
	for p := range s.Partitions {
		var has []string
		for _, g := range s.Partitions[p].Groups {
			has = append(has, g.Group)
		}
		if !slices.Equal(has, groups) {
			r.t.Fatalf("partition %d has groups %v, want %v", p, has, groups)
		}
	}
}
