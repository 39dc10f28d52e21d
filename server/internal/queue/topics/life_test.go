package topics

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

func TestLifeOfATopic(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx := t.Context()
	made, err := f.CreateTopic(ctx, qlog.Topic{Name: "jobs"})
	f.must(err)
	want := &qlog.Topic{
		Name: "jobs", UID: made.UID, Version: 2, Partitions: 8, Partitioner: qlog.ConsistentHash,
		Bounds: qlog.Bounds{Window: 10 * time.Minute}, MaxDeadLetters: 100_000, CreatedAt: made.CreatedAt,
	}
	if diff := cmp.Diff(want, made); diff != "" || len(made.UID) != 13 || time.Since(made.CreatedAt).Abs() > time.Minute {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(made, f.whole("jobs", 8)); diff != "" {
		t.Errorf("returned and stored (-returned +stored):\n%s", diff)
	}
	_, err = f.CreateTopic(ctx, qlog.Topic{Name: "jobs", Partitions: 3})
	f.want(err, fault.TopicExists)
	f.whole("jobs", 8)

	updated, err := f.UpdateTopic(ctx, "jobs", func(t *qlog.Topic) error {
		t.Partitions, t.Bounds = 11, qlog.Bounds{MaxMessages: 5, DropOldest: true, RetainAge: time.Hour, RetainMessages: 7}
		t.DeadLetterAge, t.MaxDeadLetters = time.Minute, 0
		t.Name, t.UID, t.Version, t.State, t.ProducePaused = "x", "x", 99, qlog.Removing, true // are not to be changed
		t.Groups, t.CreatedAt = []qlog.Group{{Name: "x"}}, time.Now()
		return nil
	})
	f.must(err)
	want.Version, want.Partitions, want.DeadLetterAge = 3, 11, time.Minute
	want.Bounds = qlog.Bounds{MaxMessages: 5, DropOldest: true, Window: 10 * time.Minute, RetainAge: time.Hour, RetainMessages: 7}
	if diff := cmp.Diff(want, updated); diff != "" {
		t.Errorf("updated (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, f.whole("jobs", 11)); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	// The same once more is no new version.
	if updated, err = f.UpdateTopic(ctx, "jobs", func(t *qlog.Topic) error { t.Partitions = 11; return nil }); err != nil || updated.Version != 3 {
		t.Errorf("%+v, %v", updated, err)
	}
	errOwn := errors.New("the caller's")
	if _, err := f.UpdateTopic(ctx, "jobs", func(*qlog.Topic) error { return errOwn }); !errors.Is(err, errOwn) {
		t.Error(err)
	}

	f.want(f.DeleteTopic(ctx, "jobs", "job"), fault.ConfirmationRequired)
	f.must(f.DeleteTopic(ctx, "jobs", "jobs"))
	if keys := f.keys(); len(keys) != 0 {
		t.Errorf("left: %q", keys)
	}
	f.want(f.DeleteTopic(ctx, "jobs", "jobs"), fault.TopicNotFound)
	_, err = f.Topic(ctx, "jobs")
	f.want(err, fault.TopicNotFound)
	_, err = f.catalog.Topic(ctx, "jobs")
	f.want(err, fault.TopicNotFound)
	if again := f.create(qlog.Topic{Name: "jobs"}); again.UID == made.UID {
		t.Error("a UID came back")
	}
}

func TestPausingATopic(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	topic := f.create(qlog.Topic{Name: "jobs", Partitions: 3})
	for _, paused := range []bool{true, true, false, false} {
		got, err := f.SetTopicPaused(t.Context(), "jobs", paused)
		f.must(err)
		if got.ProducePaused != paused {
			t.Errorf("%+v", got)
		}
		for p := range 3 {
			_, err := f.store.Put(t.Context(), topic.Ref(p), topic.Bounds, qlog.Put{Drafts: []qlog.Draft{{Body: []byte("x")}}})
			if paused != errors.Is(err, qlog.ErrPaused) || !paused && err != nil {
				t.Errorf("paused %t, partition %d: %v", paused, p, err)
			}
		}
	}
	if got := f.whole("jobs", 3); got.Version != 4 {
		t.Errorf("version %d", got.Version)
	}
}

func TestListOfTopics(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for _, name := range []string{"b", "a", "d", "c"} {
		f.create(qlog.Topic{Name: name, Partitions: 1})
	}
	// One that is not complete is completed, or left out.
	for name, state := range map[string]qlog.TopicState{"aa": qlog.Making, "bb": qlog.Removing} {
		topic := &qlog.Topic{Name: name, UID: "AAAAAAAAAAAAA", Version: 1, Partitions: 1, Partitioner: qlog.Hash}
		_, err := f.store.InsertTopic(t.Context(), topic)
		f.must(err)
		topic.State = state
		f.must(f.store.UpdateTopic(t.Context(), topic))
	}
	f.must(f.client.SAdd(t.Context(), f.prefix+"streaming:mq:topics:registry", "ghost", "__own").Err())
	for _, c := range []struct {
		after string
		n     int
		want  string
		more  bool
	}{{"", 2, "a aa", true}, {"aa", 2, "b c", true}, {"c", 2, "d", false}, {"", 5, "a aa b c d", false}, {"zz", 2, "", false}, {"", 4, "a aa b c", true}} {
		all, more, err := f.Topics(t.Context(), c.after, c.n)
		f.must(err)
		var got []string
		for _, topic := range all {
			got = append(got, topic.Name)
		}
		if strings.Join(got, " ") != c.want || more != c.more {
			t.Errorf("%d after %q: %q, more %t", c.n, c.after, got, more)
		}
	}
}

func TestLifeOfAGroup(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx := t.Context()
	topic := f.create(qlog.Topic{Name: "jobs", Partitions: 3})
	for p := range 3 {
		f.put(topic, p, 4)
	}
	_, err := f.CreateGroup(ctx, "none", qlog.Group{Name: "work"})
	f.want(err, fault.TopicNotFound)
	made, err := f.CreateGroup(ctx, "jobs", qlog.Group{Name: "work", Paused: true})
	f.must(err)
	want := &qlog.Group{
		Name: "work", Retry: qlog.RetryPolicy{MaxAttempts: 16, MinBackoff: time.Second, MaxBackoff: 10 * time.Minute},
		AckTimeout: 30 * time.Second, Timeout: 15 * time.Minute, MaxRunTime: time.Hour, ResumeGrace: 10 * time.Second,
	}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	_, err = f.CreateGroup(ctx, "jobs", qlog.Group{Name: "work"})
	f.want(err, fault.GroupExists)
	_, err = f.CreateGroup(ctx, "jobs", qlog.Group{Name: "new", Mode: qlog.Exclusive, Order: qlog.OrderStrict, Start: qlog.Start{End: true}})
	f.must(err)
	topic = f.whole("jobs", 3, "new", "work")
	for p := range 3 {
		if all, none := f.unsent(topic, p, "work"), f.unsent(topic, p, "new"); all != 4 || none != 0 {
			t.Errorf("partition %d: work has %d messages, new %d", p, all, none)
		}
	}

	updated, err := f.UpdateGroup(ctx, "jobs", "work", func(g *qlog.Group) error {
		g.Order, g.Timeout, g.MaxRunTime, g.AckTimeout = qlog.OrderNone, 2*time.Hour, 0, 0
		g.Retry = qlog.RetryPolicy{MinBackoff: time.Hour, NonRetryable: []string{"a.b", "c"}}
		g.Name, g.Mode, g.Start, g.Paused = "x", qlog.Exclusive, qlog.Start{End: true}, true // are not to be changed
		return nil
	})
	f.must(err)
	want.Order, want.Timeout, want.MaxRunTime = qlog.OrderNone, 2*time.Hour, 2*time.Hour+time.Minute
	want.Retry = qlog.RetryPolicy{MaxAttempts: 16, MinBackoff: time.Hour, MaxBackoff: time.Hour, NonRetryable: []string{"a.b", "c"}}
	if diff := cmp.Diff(want, updated); diff != "" {
		t.Errorf("updated (-want +got):\n%s", diff)
	}
	paused, err := f.SetGroupPaused(ctx, "jobs", "work", true)
	f.must(err)
	want.Paused = true
	if diff := cmp.Diff(want, paused); diff != "" {
		t.Errorf("paused (-want +got):\n%s", diff)
	}
	got, err := f.Group(ctx, "jobs", "work")
	f.must(err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}

	f.want(f.DeleteGroup(ctx, "jobs", "work", "works"), fault.ConfirmationRequired)
	f.must(f.DeleteGroup(ctx, "jobs", "work", "work"))
	f.whole("jobs", 3, "new")
	for _, key := range f.keys() {
		if strings.Contains(key, ":g:work") {
			t.Errorf("left: %s", key)
		}
	}
	f.want(f.DeleteGroup(ctx, "jobs", "work", "work"), fault.GroupNotFound)
	_, err = f.Group(ctx, "jobs", "work")
	f.want(err, fault.GroupNotFound)
	_, err = f.UpdateGroup(ctx, "jobs", "work", func(*qlog.Group) error { return nil })
	f.want(err, fault.GroupNotFound)
	_, err = f.SetGroupPaused(ctx, "jobs", "work", true)
	f.want(err, fault.GroupNotFound)
	f.want(f.SeekGroup(ctx, "jobs", "work", qlog.Start{}), fault.GroupNotFound)
}

// A partition that is added has the groups, and they read it from its start.
func TestNewPartitionsGetTheGroups(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.create(qlog.Topic{Name: "jobs", Partitions: 2}, "work")
	_, err := f.CreateGroup(t.Context(), "jobs", qlog.Group{Name: "new", Start: qlog.Start{End: true}})
	f.must(err)
	topic, err := f.UpdateTopic(t.Context(), "jobs", func(t *qlog.Topic) error { t.Partitions = 5; return nil })
	f.must(err)
	f.whole("jobs", 5, "new", "work")
	f.put(topic, 4, 3)
	for _, g := range []string{"new", "work"} {
		if n := f.unsent(topic, 4, g); n != 3 {
			t.Errorf("%s has %d messages", g, n)
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx := t.Context()
	f.create(qlog.Topic{Name: "jobs", Partitions: 1})
	topic := f.read("jobs")
	for i := range MaxGroups {
		f.must(f.store.PutGroup(ctx, topic, qlog.Group{Name: fmt.Sprint("g", i)}))
		topic.Version++
	}
	_, err := f.CreateGroup(ctx, "jobs", qlog.Group{Name: "more"})
	f.want(err, fault.LimitExceeded)
	f.must(f.DeleteGroup(ctx, "jobs", "g7", "g7"))
	_, err = f.CreateGroup(ctx, "jobs", qlog.Group{Name: "more"})
	f.must(err)
	all := names(f.read("jobs").Groups)
	if len(all) != MaxGroups || !slices.IsSorted(all) {
		t.Errorf("%d groups: %q", len(all), all)
	}
	f.whole("jobs", 1, all...)
	f.create(qlog.Topic{Name: "wide", Partitions: MaxPartitions}, "work")
	f.whole("wide", MaxPartitions, "work")
}
