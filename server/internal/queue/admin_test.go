package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	entries, _, err := r.store.Fetch(r.t.Context(), t, lease, 1000)
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

func TestCreateTopicSetsDefaultsAndRefuses(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t)
	made := r.create(queue.Topic{Name: "t"})
	if made.Partitions != 8 || made.Partitioner != queue.Hash || made.Retry.MaxAttempts != 16 || made.Retry.MinBackoff != time.Second ||
		made.Retry.MaxBackoff != 10*time.Minute || made.IdempotencyWindow != 10*time.Minute || len(made.UID) != 13 ||
		made.State != queue.Live || time.Since(made.CreatedAt).Abs() > time.Minute {
		t.Errorf("made %+v", made)
	}
	got, err := r.Topic(t.Context(), "t")
	r.must(err)
	if got.UID != made.UID || got.Version != made.Version {
		t.Errorf("it is %+v, and was told as %+v", got, made)
	}
	_, err = r.CreateTopic(t.Context(), queue.Topic{Name: "t"})
	r.want(err, fault.TopicExists)
	for field, bad := range map[string]queue.Topic{
		"topic":                            {Name: "__dlq"},
		"topic.name":                       {Name: "a}b"},
		"topic.partitions":                 {Name: "x", Partitions: 257},
		"topic.retry.max_backoff":          {Name: "x", Retry: queue.RetryPolicy{MinBackoff: 2, MaxBackoff: 1}},
		"topic.retry.max_attempts":         {Name: "x", Retry: queue.RetryPolicy{MaxAttempts: 1001}},
		"topic.strict_order":               {Name: "x", StrictOrder: true, Partitioner: queue.RoundRobin},
		"topic.max_messages_per_partition": {Name: "x", MaxMessages: -1},
		"topic.idempotency_window":         {Name: "x", IdempotencyWindow: time.Millisecond},
		"topic.retention.max_age":          {Name: "x", Retention: queue.Retention{MaxAge: -1}},
	} {
		if field == "topic.retry.max_backoff" {
			bad.Retry.MinBackoff, bad.Retry.MaxBackoff = 2*time.Second, time.Second
		}
		_, err := r.CreateTopic(t.Context(), bad)
		if f, ok := fault.As(err); !ok || f.Reason != fault.InvalidField || f.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

// One of several who make a topic at the same time makes it, and by the time that the others are told so it can be used.
func TestCreateTopicAtTheSameTimeSucceedsOnce(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t)
	for round := range 10 {
		name := fmt.Sprint("t", round)
		var made atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				switch _, err := r.CreateTopic(t.Context(), queue.Topic{Name: name, Partitions: 4}); {
				case err == nil:
					made.Add(1)
				case !fault.Is(err, fault.TopicExists):
					t.Error(err)
				}
				if _, err := r.Topic(t.Context(), name); err != nil {
					t.Errorf("it is said to be there: %v", err)
				}
			})
		}
		all.Wait()
		if made.Load() != 1 {
			t.Errorf("%d made it", made.Load())
		}
		r.whole(name, 4)
	}
}

// Whatever change a node dies at, the same call made again finishes the work.
func TestWhatACrashBrokeOffIsFinished(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t)
	ctx := t.Context()
	settings := queue.Topic{Name: "t", Partitions: 3}
	steps := 0
	// until runs call on nodes that die one change later each, and checks that `again` mends it, until one lives to the end.
	until := func(what string, prepare func(), call func(a *queue.Admin) error, again func() error, check func()) {
		t.Helper()
		for n := int64(1); ; n++ {
			prepare()
			err := call(r.crashing(n))
			if err == nil {
				check()
				return
			}
			if !errors.Is(err, errCrash) {
				t.Fatalf("%s, crash %d: %v", what, n, err)
			}
			steps++
			if err := again(); err != nil {
				t.Fatalf("%s, after crash %d: %v", what, n, err)
			}
			check()
		}
	}
	gone := func() {
		err := r.DeleteTopic(ctx, "t", "t")
		if err != nil && !fault.Is(err, fault.TopicNotFound) {
			t.Fatal(err)
		}
	}
	there := func(groups ...string) {
		gone()
		r.create(settings, groups...)
	}
	unless := func(err error, reason fault.Reason) error {
		if fault.Is(err, reason) {
			return nil
		}
		return err
	}
	until("create", gone,
		func(a *queue.Admin) error { _, err := a.CreateTopic(ctx, settings); return err },
		func() error { _, err := r.CreateTopic(ctx, settings); return err },
		func() { r.whole("t", 3) })
	until("delete", func() { there("a") },
		func(a *queue.Admin) error { return a.DeleteTopic(ctx, "t", "t") },
		func() error { return unless(r.DeleteTopic(ctx, "t", "t"), fault.TopicNotFound) },
		func() {
			_, err := r.Topic(ctx, "t")
			r.want(err, fault.TopicNotFound)
			r.create(settings)
			r.whole("t", 3) // nothing of the old one is left
		})
	until("create over a removal", func() {
		there("a")
		_ = r.crashing(3).DeleteTopic(ctx, "t", "t")
	},
		func(a *queue.Admin) error { _, err := a.CreateTopic(ctx, settings); return err },
		func() error { _, err := r.CreateTopic(ctx, settings); return unless(err, fault.TopicExists) },
		func() { r.whole("t", 3) })
	until("create group", func() { there("a") },
		func(a *queue.Admin) error { return a.CreateGroup(ctx, "t", queue.Group{Name: "b"}) },
		func() error { return unless(r.CreateGroup(ctx, "t", queue.Group{Name: "b"}), fault.GroupExists) },
		func() { r.whole("t", 3, "a", "b") })
	until("delete group", func() { there("a", "b") },
		func(a *queue.Admin) error { return a.DeleteGroup(ctx, "t", "b", "b") },
		func() error { return unless(r.DeleteGroup(ctx, "t", "b", "b"), fault.GroupNotFound) },
		func() { r.whole("t", 3, "a") })
	grow := func(t *queue.Topic) error { t.Partitions = 5; return nil }
	settings.Partitioner = queue.ConsistentHash // the only one that may grow
	until("grow", func() { there("a") },
		func(a *queue.Admin) error { _, err := a.UpdateTopic(ctx, "t", grow); return err },
		func() error { _, err := r.UpdateTopic(ctx, "t", grow); return err },
		func() { r.whole("t", 5, "a") })
	if steps < 30 {
		t.Errorf("only %d crashes", steps)
	}
}

func TestAnAbandonedTopicOfOtherSettingsIsReplaced(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t)
	for _, c := range []struct {
		age    time.Duration
		reason fault.Reason
	}{{time.Second, fault.TopicExists}, {time.Hour, ""}} {
		name := fmt.Sprint("t", int(c.age.Seconds()))
		making := &queue.Topic{Name: name, UID: "AAAAAAAAAAAAA", Version: 1, Partitions: 2, Partitioner: queue.Hash, CreatedAt: time.Now().Add(-c.age)}
		_, err := r.store.InsertTopic(t.Context(), making)
		r.must(err)
		r.must(r.store.MakePartition(t.Context(), making, 0))
		_, err = r.CreateTopic(t.Context(), queue.Topic{Name: name, Partitions: 3})
		if c.reason != "" {
			r.want(err, c.reason)
			continue
		}
		r.must(err)
		r.whole(name, 3)
	}
}

func TestUpdateTopic(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t)
	ctx := t.Context()
	r.create(queue.Topic{Name: "hash", Partitions: 2}, "g")
	r.create(queue.Topic{Name: "jump", Partitions: 2, Partitioner: queue.ConsistentHash}, "g")
	for name, change := range map[string]func(*queue.Topic){
		"topic.partitions":   func(t *queue.Topic) { t.Partitions = 3 },
		"topic.partitioner":  func(t *queue.Topic) { t.Partitioner = queue.RoundRobin },
		"topic.strict_order": func(t *queue.Topic) { t.StrictOrder = true },
	} {
		_, err := r.UpdateTopic(ctx, "hash", func(t *queue.Topic) error { change(t); return nil })
		if f, ok := fault.As(err); !ok || f.Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := r.UpdateTopic(ctx, "jump", func(t *queue.Topic) error { t.Partitions = 1; return nil })
	r.want(err, fault.InvalidField)
	// Many at once: no change is lost.
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			_, err := r.UpdateTopic(ctx, "jump", func(t *queue.Topic) error {
				t.Partitions = max(t.Partitions, 3+i)
				t.MaxMessages |= 1 << i // not a count: of two changes that come to the same both hold
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			if err := r.CreateGroup(ctx, "jump", queue.Group{Name: fmt.Sprint("g", i)}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	topic, err := r.Topic(ctx, "jump")
	r.must(err)
	if topic.MaxMessages != 1<<6-1 || topic.Partitions != 8 {
		t.Errorf("it is %+v", topic)
	}
	r.whole("jump", 8, "g", "g0", "g1", "g2", "g3", "g4", "g5")
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t)
	ctx := t.Context()
	r.create(queue.Topic{Name: "t", Partitions: 3}, "g")
	paused, err := r.Pause(ctx, "t", true, false)
	r.must(err)
	if !paused.ProducePaused || paused.ConsumePaused {
		t.Errorf("%+v", paused)
	}
	_, err = r.service.Produce(ctx, "t", []queue.Draft{{Message: queue.Message{Key: "a"}}, {Message: queue.Message{Key: "b"}}})
	r.want(err, fault.TopicPaused)
	paused, err = r.Pause(ctx, "t", false, true)
	r.must(err)
	if !paused.ProducePaused || !paused.ConsumePaused {
		t.Errorf("a second pause took the first away: %+v", paused)
	}
	_, err = r.Resume(ctx, "t")
	r.must(err)
	r.produce("t", 20)
	// Whoever is last counts, in every partition.
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			var err error
			if i%2 == 0 {
				_, err = r.Pause(ctx, "t", true, true)
			} else {
				_, err = r.Resume(ctx, "t")
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	topic, err := r.Topic(ctx, "t")
	r.must(err)
	for p := range 3 {
		_, err := r.store.Produce(ctx, topic, p, []queue.Draft{{}})
		if errors.Is(err, queue.ErrPaused) != topic.ProducePaused {
			t.Errorf("partition %d of a topic with pause %v: %v", p, topic.ProducePaused, err)
		}
	}
}

func TestGroups(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t)
	ctx := t.Context()
	r.create(queue.Topic{Name: "t", Partitions: 2}, "g")
	r.produce("t", 20)
	r.want(r.CreateGroup(ctx, "t", queue.Group{Name: "g"}), fault.GroupExists)
	r.want(r.CreateGroup(ctx, "none", queue.Group{Name: "g"}), fault.TopicNotFound)
	r.want(r.CreateGroup(ctx, "t", queue.Group{Name: "a:b"}), fault.InvalidField)
	r.want(r.DeleteGroup(ctx, "t", "g", "t"), fault.ConfirmationRequired)
	r.want(r.DeleteGroup(ctx, "t", "x", "x"), fault.GroupNotFound)
	r.want(r.DeleteTopic(ctx, "t", "g"), fault.ConfirmationRequired)
	r.want(r.SeekGroup(ctx, "t", queue.Group{Name: "x"}), fault.GroupNotFound)

	topic, err := r.Topic(ctx, "t")
	r.must(err)
	lease, err := r.store.Acquire(ctx, topic.Ref(1), "g", "session", time.Minute)
	r.must(err)
	seek := queue.Group{Name: "g", Start: queue.Start{End: true}}
	r.want(r.SeekGroup(ctx, "t", seek), fault.GroupInUse)
	s, err := r.Stats(ctx, "t")
	r.must(err)
	if s.Total.Groups[0].Unread != 20 {
		t.Fatalf("a refused seek moved something: %+v", s.Total)
	}
	r.must(r.store.Free(ctx, lease))
	_, err = r.store.Beat(ctx, "t", "g", []queue.Member{{SessionID: "idle", Consumer: "c", NodeID: "n"}}, time.Minute)
	r.must(err)
	r.want(r.SeekGroup(ctx, "t", seek), fault.GroupInUse) // it is connected, though it has no partition
	r.must(r.store.Leave(ctx, "t", "g", []string{"idle"}))
	r.must(r.SeekGroup(ctx, "t", seek))
	s, err = r.Stats(ctx, "t")
	r.must(err)
	if g := s.Total.Groups[0]; g.Unread != 0 || g.Skipped != 20 {
		t.Errorf("after the seek: %+v", g)
	}
}

func TestLooks(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t)
	ctx := t.Context()
	topic := r.create(queue.Topic{Name: "t", Partitions: 3}, "g", "h")
	r.produce("t", 60)
	_, err := r.store.Beat(ctx, "t", "g", []queue.Member{{SessionID: "someone", Consumer: "worker", NodeID: "node"}}, time.Minute)
	r.must(err)
	pending := r.settle("t", "g", 0, 0) + r.settle("t", "g", 1, 0)
	lease, err := r.store.Acquire(ctx, topic.Ref(2), "g", "someone", time.Minute)
	r.must(err)
	s, err := r.Stats(ctx, "t")
	r.must(err)
	g := s.Total.Groups[0]
	if s.Total.Length != 60 || s.Total.Produced != 60 || int(g.Pending) != pending || int(g.Unread) != 60-pending ||
		s.Members["g"] != 1 || s.Members["h"] != 0 || s.Total.Groups[1].Unread != 60 || s.Total.FirstID == "" || s.Total.LastID == "" {
		t.Errorf("stats %+v", s)
	}
	owners, err := r.Partitions(ctx, "t", "g")
	r.must(err)
	if o := owners[2]; len(owners) != 3 || o.Consumer != "worker" || o.NodeID != "node" || o.SessionID != "someone" || o.Epoch != lease.Epoch || o.Left <= 0 {
		t.Errorf("owners %+v", owners)
	}
	owners, err = r.Partitions(ctx, "t", "")
	r.must(err)
	if len(owners) != 3 || owners[2] != (queue.Owner{Partition: 2}) {
		t.Errorf("partitions %+v", owners)
	}
	_, err = r.Partitions(ctx, "t", "x")
	r.want(err, fault.GroupNotFound)

	seen := map[string]bool{}
	var last time.Time
	for offset := 0; ; offset += 7 {
		page, total, err := r.Pending(ctx, "t", "g", false, offset, 7)
		r.must(err)
		if total != pending {
			t.Fatalf("%d in all, want %d", total, pending)
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			if seen[e.MessageID] || e.Delivered.Before(last) || e.Consumer != "worker" {
				t.Fatalf("%+v after %s", e, last)
			}
			seen[e.MessageID], last = true, e.Delivered
		}
	}
	if len(seen) != pending {
		t.Errorf("%d of %d listed", len(seen), pending)
	}
	removed, lost, err := r.Trim(ctx, "t", queue.Cut{Messages: 0})
	r.must(err)
	if removed != 0 || lost != 0 {
		t.Errorf("trimmed %d that are unread, %d lost", removed, lost)
	}
	removed, _, err = r.Trim(ctx, "t", queue.Cut{Messages: 5, Force: true})
	r.must(err)
	if removed != 45 {
		t.Errorf("%d removed by force, want 45", removed)
	}
}

func TestTopicsAreListedInPages(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t)
	var names, got []string
	for i := range 7 {
		names = append(names, fmt.Sprint("t", i))
		r.create(queue.Topic{Name: names[i], Partitions: 1})
	}
	_, err := r.store.InsertTopic(t.Context(), &queue.Topic{Name: "t3half", UID: "AAAAAAAAAAAAA", Version: 1, Partitions: 1, CreatedAt: time.Now()})
	r.must(err)
	for after, pages := "", 0; ; pages++ {
		page, more, err := r.Topics(t.Context(), after, 3)
		r.must(err)
		for _, topic := range page {
			got = append(got, topic.Name)
			after = topic.Name
		}
		if !more {
			break
		}
		if len(page) != 3 || pages > 5 {
			t.Fatalf("%d topics, and more", len(page))
		}
	}
	if !slices.Equal(got, names) {
		t.Errorf("listed %v", got)
	}
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t)
	ctx := t.Context()
	r.create(queue.Topic{Name: "t", Partitions: 4}, "g", "h")
	for range 6 { // so that the partitions' letters lie between each other's
		r.produce("t", 20)
		for p := range 4 {
			r.settle("t", "g", p, queue.Dead)
		}
	}
	for p := range 4 {
		r.settle("t", "h", p, queue.Dead)
	}
	list := func(group string, n int) (ids []string) {
		cursor, last := "", ""
		for {
			page, next, err := r.DeadLetters(ctx, "t", group, cursor, n)
			r.must(err)
			for _, l := range page {
				if group != "" && l.Group != group {
					t.Fatalf("%+v in the list of %s", l, group)
				}
				if at := l.DeadAt.UTC().Format("15:04:05.000"); last != "" && at > last {
					t.Fatalf("%s comes after %s", at, last)
				} else {
					last = at
				}
				ids = append(ids, l.ID)
			}
			if next == "" {
				return ids
			}
			cursor = next
		}
	}
	all := list("", 1000)
	if n := len(all); n != 240 {
		t.Fatalf("%d dead letters", n)
	}
	for _, n := range []int{1, 7, 100} {
		if got := list("", n); !slices.Equal(got, all) {
			t.Errorf("pages of %d list %d, and not the same", n, len(got))
		}
	}
	if got := list("g", 9); len(got) != 120 {
		t.Errorf("%d of g", len(got))
	}
	behind, _, err := r.DeadLetters(ctx, "t", "", all[120], 3) // a letter's id goes on behind it
	r.must(err)
	if len(behind) != 3 || behind[0].ID != all[121] || behind[2].ID != all[123] {
		t.Errorf("behind %s come %+v", all[120], behind)
	}
	_, _, err = r.DeadLetters(ctx, "t", "", "x", 5)
	r.want(err, fault.PageTokenInvalid)

	// By ids, twice: each goes once.
	some := []string{all[0], all[50], all[200], all[0]}
	n, more, err := r.Replay(ctx, "t", "", some, 0, nil)
	r.must(err)
	if n != 3 || more {
		t.Errorf("replayed %d, more %v", n, more)
	}
	n, _, err = r.Replay(ctx, "t", "", some, 0, nil)
	r.must(err)
	if n != 0 {
		t.Errorf("replayed %d again", n)
	}
	for _, bad := range []string{"4-1-1", "x", "0-0", "0-0-0", "0-1-99999999999999999999", ">"} {
		_, _, err := r.Replay(ctx, "t", "", []string{bad}, 0, nil)
		r.want(err, fault.InvalidField)
		_, err = r.Purge(ctx, "t", "", []string{bad}, "t")
		r.want(err, fault.InvalidField)
	}
	// With a limit, until there is no more, to another partition.
	var replayed int64
	to := 3
	for calls := 0; ; calls++ {
		n, more, err := r.Replay(ctx, "t", "g", nil, 25, &to)
		r.must(err)
		if n > 25 || calls > 20 {
			t.Fatalf("call %d replayed %d", calls, n)
		}
		if replayed += n; !more {
			break
		}
	}
	if left := list("g", 1000); replayed+3 < 120 || len(left) != 0 {
		t.Errorf("replayed %d, %d are left", replayed, len(left))
	}
	five := 5
	_, _, err = r.Replay(ctx, "t", "", nil, 0, &five)
	r.want(err, fault.InvalidField)

	_, err = r.Purge(ctx, "t", "", nil, "")
	r.want(err, fault.ConfirmationRequired)
	rest := list("", 1000)
	n, err = r.Purge(ctx, "t", "", rest[:2], "t")
	r.must(err)
	if n != 2 {
		t.Errorf("purged %d", n)
	}
	n, err = r.Purge(ctx, "t", "h", nil, "t")
	r.must(err)
	if int(n) != len(rest)-2 || len(list("", 10)) != 0 {
		t.Errorf("purged %d of %d", n, len(rest)-2)
	}
}

func TestPagesOfDeadLettersAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t)
	r.create(queue.Topic{Name: "t", Partitions: 1}, "g")
	drafts := make([]queue.Draft, 12)
	for i := range drafts {
		drafts[i].Payload = []byte(strings.Repeat("x", queue.MaxPayload))
	}
	_, err := r.service.Produce(t.Context(), "t", drafts)
	r.must(err)
	r.settle("t", "g", 0, queue.Dead)
	total := 0
	for cursor, pages := "", 0; ; pages++ {
		page, next, err := r.DeadLetters(t.Context(), "t", "", cursor, 1000)
		r.must(err)
		if len(page) > 4 || pages > 5 {
			t.Fatalf("page %d has %d letters of 256 KiB", pages, len(page))
		}
		total += len(page)
		if cursor = next; next == "" {
			break
		}
	}
	if total != 12 {
		t.Errorf("%d listed", total)
	}
}
