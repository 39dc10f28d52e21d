package redislog

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// fullTopic is a topic with every setting.
func fullTopic(topic *qlog.Topic) {
	topic.Partitions, topic.Partitioner, topic.ProducePaused = 3, qlog.RoundRobin, true
	topic.Bounds = qlog.Bounds{
		MaxMessages: 1, DropOldest: true, Window: time.Hour, RetainAge: time.Minute, RetainMessages: 2,
	}
	topic.DeadLetterAge, topic.MaxDeadLetters = 24*time.Hour, 3
	topic.Groups = []qlog.Group{
		{Name: "default"},
		{
			Name: "every", Mode: qlog.Exclusive, Order: qlog.OrderStrict,
			Retry:      qlog.RetryPolicy{MaxAttempts: 3, MinBackoff: time.Second, MaxBackoff: time.Minute, NonRetryable: []string{"a", "b"}},
			AckTimeout: 30 * time.Second, Timeout: 15 * time.Minute, MaxRunTime: time.Hour, ResumeGrace: 10 * time.Second,
			Start: qlog.Start{Time: time.UnixMicro(1_700_000_000_000_001)}, Paused: true,
		},
		{Name: "new", Order: qlog.OrderNone, Start: qlog.Start{End: true}},
	}
}

func TestTopicDocuments(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, fullTopic)
	want := *r.topic
	want.State = qlog.Making
	got, err := r.s.Topic(t.Context(), "jobs")
	r.check(err)
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("stored and read (-want +got):\n%s", diff)
	}
	text, err := encodeCopy(&want)
	r.check(err)
	if got, err = decodeCopy(string(text)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("the copy (-want +got):\n%s", diff)
	}
	existing, err := r.s.InsertTopic(t.Context(), &qlog.Topic{Name: "jobs", UID: "BBBBBBBBBBBBB"})
	if !errors.Is(err, qlog.ErrTopicExists) || existing.UID != r.topic.UID {
		t.Errorf("%v, %v", existing, err)
	}
}

func TestTopicsAreComparedAndSet(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	ctx := t.Context()
	topic := *r.topic
	topic.MaxMessages = 7
	r.check(r.s.UpdateTopic(ctx, &topic))
	r.check(r.s.UpdateTopic(ctx, &topic)) // the repeat of one whose answer was lost
	other := topic
	other.MaxMessages = 8
	if err := r.s.UpdateTopic(ctx, &other); !errors.Is(err, qlog.ErrConflict) {
		t.Error(err)
	}
	group := qlog.Group{Name: "g", Paused: true}
	if err := r.s.PutGroup(ctx, &topic, group); !errors.Is(err, qlog.ErrConflict) {
		t.Error(err)
	}
	topic.Version = 2
	r.check(r.s.PutGroup(ctx, &topic, group))
	r.check(r.s.PutGroup(ctx, &topic, group))
	got, err := r.s.Topic(ctx, "jobs")
	r.check(err)
	if got.Version != 3 || got.MaxMessages != 7 || len(got.Groups) != 2 || !got.Group("g").Paused {
		t.Errorf("%+v", got)
	}
	r.check(r.s.DeleteGroup(ctx, got, "g"))
	r.check(r.s.DeleteGroup(ctx, got, "g"))
	got, err = r.s.Topic(ctx, "jobs")
	r.check(err)
	if got.Version != 4 || len(got.Groups) != 1 {
		t.Errorf("%+v", got)
	}
	other = *got
	other.UID = "BBBBBBBBBBBBB"
	if err := r.s.UpdateTopic(ctx, &other); !errors.Is(err, qlog.ErrNoTopic) {
		t.Error(err)
	}
	r.check(r.s.RemoveTopic(ctx, &other))
	if names, err := r.s.TopicNames(ctx); err != nil || !slices.Equal(names, []string{"jobs"}) {
		t.Error(names, err)
	}
	r.check(r.s.RemoveTopic(ctx, got))
	r.check(r.s.RemoveTopic(ctx, got))
	if _, err := r.s.Topic(ctx, "jobs"); !errors.Is(err, qlog.ErrNoTopic) {
		t.Error(err)
	}
	if names, err := r.s.TopicNames(ctx); err != nil || len(names) != 0 {
		t.Error(names, err)
	}
}

// Settings that were lost come back from the newest copy that a partition has (finding 14).
func TestLostSettingsAreRestored(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, fullTopic)
	ctx := t.Context()
	want := *r.topic
	want.Version, want.MaxMessages, want.State = 5, 99, qlog.Live
	r.check(r.s.MakePartition(ctx, &want, 1))
	r.lose(r.s.keys.topic("jobs"))
	if _, err := r.s.Topic(ctx, "jobs"); !errors.Is(err, qlog.ErrNoTopic) {
		t.Fatal(err)
	}
	got, err := r.s.RestoreTopic(ctx, "jobs")
	r.check(err)
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, err = r.s.RestoreTopic(ctx, "jobs"); err != nil || got.Version != 5 {
		t.Errorf("%+v, %v", got, err)
	}
	// The rest of it works again.
	r.check(r.s.UpdateTopic(ctx, got))
	// A topic that was removed does not come back.
	r.lose(r.s.keys.topic("jobs"), r.s.keys.registry())
	if _, err := r.s.RestoreTopic(ctx, "jobs"); !errors.Is(err, qlog.ErrNoTopic) {
		t.Error(err)
	}
	if _, err := r.s.RestoreTopic(ctx, "none"); !errors.Is(err, qlog.ErrNoTopic) {
		t.Error(err)
	}
}

func TestALostRegistrationComesBack(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	r.lose(r.s.keys.registry())
	if _, err := r.s.Topic(t.Context(), "jobs"); err != nil {
		t.Fatal(err)
	}
	if names, err := r.s.TopicNames(t.Context()); err != nil || !slices.Equal(names, []string{"jobs"}) {
		t.Error(names, err)
	}
}

// A call to a partition whose keys were lost succeeds after the partition was made again.
func TestEverythingLostButTheSettings(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	r.put(draft("a"))
	r.lose(r.c.Keys(t.Context(), r.s.keys.main(r.ref)+"*").Val()...)
	_, err := r.s.Put(t.Context(), r.ref, r.bounds, qlog.Put{Drafts: drafts("b")})
	if !errors.Is(err, qlog.ErrNoTopic) {
		t.Fatal(err)
	}
	topic, err := r.s.Topic(t.Context(), "jobs")
	r.check(err)
	r.check(r.s.MakePartition(t.Context(), topic, 0))
	r.wantResults(r.put(draft("b")), "new")
	if got := r.state("work")["uid"]; got != r.topic.UID {
		t.Errorf("the group's UID is %q", got)
	}
}
