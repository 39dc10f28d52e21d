package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue"
)

func TestCreateTopicSetsDefaultsAndRefuses(t *testing.T) {
	t.Parallel()
	r := newAdminRig(t)
	made := r.create(queue.Topic{Name: "t"})
	if made.Partitions != 8 || made.Partitioner != queue.ConsistentHash || made.Retry.MaxAttempts != 16 || made.Retry.MinBackoff != time.Second ||
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
	settings := queue.Topic{Name: "t", Partitions: 3, Partitioner: queue.Hash} // of others more partitions are removed
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
	settings.Partitioner = queue.ConsistentHash // a topic with Hash can't grow
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
		_, err = r.CreateTopic(t.Context(), queue.Topic{Name: name, Partitions: 3, Partitioner: queue.Hash})
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
	r.create(queue.Topic{Name: "hash", Partitions: 2, Partitioner: queue.Hash}, "g")
	r.create(queue.Topic{Name: "jump", Partitions: 2}, "g") // the default can grow
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
	r.create(queue.Topic{Name: "steps", Partitions: 2, Partitioner: queue.ConsistentHash, StrictOrder: true}, "g")
	_, err = r.UpdateTopic(ctx, "steps", func(t *queue.Topic) error { t.Partitions = 3; return nil })
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
	if f, _ := fault.As(err); f.Kind != fault.FailedPrecondition || !f.Retryable() {
		t.Errorf("a paused topic: %+v", f)
	}
	// Each step changes only what it names.
	for _, step := range []struct {
		what             string
		call             func(ctx context.Context, name string, produce, consume bool) (*queue.Topic, error)
		produce, consume bool
		want             [2]bool
	}{
		{"pause consume", r.Pause, false, true, [2]bool{true, true}},
		{"pause nothing", r.Pause, false, false, [2]bool{true, true}},
		{"resume nothing", r.Resume, false, false, [2]bool{true, true}},
		{"resume produce", r.Resume, true, false, [2]bool{false, true}},
		{"resume produce again", r.Resume, true, false, [2]bool{false, true}},
		{"pause both", r.Pause, true, true, [2]bool{true, true}},
		{"resume consume", r.Resume, false, true, [2]bool{true, false}},
		{"resume both", r.Resume, true, true, [2]bool{false, false}},
	} {
		topic, err := step.call(ctx, "t", step.produce, step.consume)
		r.must(err)
		if got := [2]bool{topic.ProducePaused, topic.ConsumePaused}; got != step.want {
			t.Errorf("%s: paused %v, want %v", step.what, got, step.want)
		}
		for p := range 3 {
			if _, err := r.store.Produce(ctx, topic, p, []queue.Draft{{}}); errors.Is(err, queue.ErrPaused) != step.want[0] {
				t.Errorf("%s: produce to partition %d: %v", step.what, p, err)
			}
		}
	}
	r.produce("t", 20)
	// Whoever is last counts, in every partition.
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			var err error
			if i%2 == 0 {
				_, err = r.Pause(ctx, "t", true, true)
			} else {
				_, err = r.Resume(ctx, "t", true, true)
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
	_, err = r.store.Beat(ctx, "t", "g", []queue.Member{{StreamID: "idle", Consumer: "c", NodeID: "n"}}, time.Minute)
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
