package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// TestPauseAndResume pauses a topic and a group, and resumes them. The other one must not change.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	ctx, admin := testContext(t), queue.NewAdmin(newClient(t, s.Addr()))
	for i, step := range []struct {
		call         func() error
		topic, group bool
	}{
		{func() error { _, err := admin.PauseTopic(ctx, "jobs"); return err }, true, false},
		{func() error { _, err := admin.PauseGroup(ctx, "jobs", "g"); return err }, true, true},
		{func() error { _, err := admin.ResumeTopic(ctx, "jobs"); return err }, false, true},
		{func() error { _, err := admin.ResumeGroup(ctx, "jobs", "g"); return err }, false, false},
	} {
		if err := step.call(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		topic, err := admin.Topic(ctx, "jobs")
		group, groupErr := admin.Group(ctx, "jobs", "g")
		if err != nil || groupErr != nil || topic.GetPaused() != step.topic || group.GetPaused() != step.group {
			t.Errorf("step %d: %v, %v, %v, %v", i, topic, err, group, groupErr)
		}
	}
	if _, err := admin.PauseGroup(ctx, "jobs", "none"); !errors.Is(err, parley.ErrGroupNotFound) {
		t.Errorf("pause no group: %v", err)
	}
}

// letters creates the topic jobs with five dead letters in each of the groups g and h. It returns
// the ids of those of g, oldest first.
func letters(t *testing.T, s *parleytest.Server, c *parley.Client) []string {
	t.Helper()
	s.AddTopic("jobs", 2, "g", "h")
	produce(t, c, "jobs", keyed("k", 0, 5)...)
	giveUp := func(context.Context, *queue.Delivery) error { return queue.DeadLetter(errors.New("no use")) }
	var ids []string
	for _, group := range []string{"g", "h"} {
		w := work(t, c, "jobs", group, giveUp)
		eventually(t, func() error {
			if n := len(s.DeadLetters("jobs", group)); n != 5 {
				return fmt.Errorf("%d dead letters", n)
			}
			return nil
		})
		if err := w.finish(); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range s.DeadLetters("jobs", "g") {
		ids = append(ids, d.GetDeadLetterId())
	}
	return ids
}

// TestDeadLetterSelection checks that replay and purge affect only selected dead letters.
func TestDeadLetterSelection(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	ctx, c := testContext(t), newClient(t, s.Addr())
	admin := queue.NewAdmin(c)
	ids := letters(t, s, c)
	want := func(what string, g, h, waiting int) {
		t.Helper()
		if got := []int{len(s.DeadLetters("jobs", "g")), len(s.DeadLetters("jobs", "h")), s.Unsettled("jobs", "g")}; !slices.Equal(got, []int{g, h, waiting}) {
			t.Errorf("%s: dead letters of g and h, and messages that wait in g: %v, want %v", what, got, []int{g, h, waiting})
		}
	}
	for name, none := range map[string]queue.Selection{"zero": {}, "no ids": queue.DeadLetterIDs()} {
		if _, _, err := admin.ReplayDeadLetters(ctx, "jobs", none); !errors.Is(err, parley.ErrInvalidField) {
			t.Errorf("replay %s: %v", name, err)
		}
		if _, err := admin.PurgeDeadLetters(ctx, "jobs", none, "jobs"); !errors.Is(err, parley.ErrInvalidField) {
			t.Errorf("purge %s: %v", name, err)
		}
	}
	if _, err := admin.PurgeDeadLetters(ctx, "jobs", queue.AllDeadLetters(), ""); !errors.Is(err, parley.ErrConfirmationRequired) {
		t.Errorf("purge without confirmation: %v", err)
	}
	if _, _, err := admin.ReplayDeadLetters(ctx, "jobs", queue.DeadLettersOf("typo")); !errors.Is(err, parley.ErrGroupNotFound) {
		t.Errorf("replay of an unknown group: %v", err)
	}
	want("after refusals", 5, 5, 0)
	if n, more, err := admin.ReplayDeadLetters(ctx, "jobs", queue.DeadLetterIDs(ids[0])); n != 1 || more || err != nil {
		t.Errorf("replay one: %d, %v, %v", n, more, err)
	}
	want("after one was replayed", 4, 5, 1)
	if n, more, err := admin.ReplayDeadLetters(ctx, "jobs", queue.DeadLetterIDs(ids[1], ids[2])); n != 2 || more || err != nil {
		t.Errorf("replay two: %d, %v, %v", n, more, err)
	}
	want("after two more were replayed", 2, 5, 3)
	if n, err := admin.PurgeDeadLetters(ctx, "jobs", queue.DeadLetterIDs(ids[4]), "jobs"); n != 1 || err != nil {
		t.Errorf("purge one: %d, %v", n, err)
	}
	want("after one was purged", 1, 5, 3)
	if n, err := admin.PurgeDeadLetters(ctx, "jobs", queue.DeadLettersOf("h"), "jobs"); n != 5 || err != nil {
		t.Errorf("purge a group: %d, %v", n, err)
	}
	want("after a group was purged", 1, 0, 3)
	if n, err := admin.PurgeDeadLetters(ctx, "jobs", queue.AllDeadLetters(), "jobs"); n != 1 || err != nil {
		t.Errorf("purge all: %d, %v", n, err)
	}
	want("after all were purged", 0, 0, 3)
	var got record
	work(t, c, "jobs", "g", got.handle)
	settledAll(t, s, "jobs", "g", 3)
	total, _, err := admin.Stats(ctx, "jobs")
	if err != nil || total.GetDeadLetters() != 0 || total.GetGroups()[0].GetReplayed() != 3 || total.GetLength() != 5 {
		t.Errorf("stats %v, %v", total, err)
	}
}

// TestGroupStartPositions creates a group at each kind of Start, and seeks another group there.
// Without a Start a new group must start at the beginning, and a seek must fail.
func TestGroupStartPositions(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1)
	ctx, c := testContext(t), newClient(t, s.Addr())
	admin := queue.NewAdmin(c)
	produce(t, c, "jobs", keyed("k", 0, 3)...)
	<-time.After(2 * time.Millisecond)
	between := time.Now()
	produce(t, c, "jobs", keyed("k", 3, 5)...)
	if err := createGroup(ctx, admin, "moved", queue.FromEnd()); err != nil {
		t.Fatal(err)
	}
	for name, one := range map[string]struct {
		start queue.Start
		want  int
	}{
		"beginning": {queue.FromBeginning(), 5}, "end": {queue.FromEnd(), 0}, "time": {queue.FromTime(between), 2},
	} {
		if err := createGroup(ctx, admin, name, one.start); err != nil || s.Unsettled("jobs", name) != one.want {
			t.Errorf("a group from %s: %v and %d messages, want %d", name, err, s.Unsettled("jobs", name), one.want)
		}
		if err := admin.SeekGroup(ctx, "jobs", "moved", one.start); err != nil || s.Unsettled("jobs", "moved") != one.want {
			t.Errorf("after a seek to %s: %v and %d messages, want %d", name, err, s.Unsettled("jobs", "moved"), one.want)
		}
	}
	if err := createGroup(ctx, admin, "zero", nil); err != nil || s.Unsettled("jobs", "zero") != 5 {
		t.Errorf("a group without a start: %v and %d messages, want those from the beginning", err, s.Unsettled("jobs", "zero"))
	}
	before := s.Unsettled("jobs", "moved")
	if err := admin.SeekGroup(ctx, "jobs", "moved", nil); !errors.Is(err, parley.ErrInvalidField) || s.Unsettled("jobs", "moved") != before {
		t.Errorf("a seek without a start: got %v", err)
	}
}

func createGroup(ctx context.Context, admin *queue.Admin, name string, start queue.Start) error {
	_, err := admin.CreateGroup(ctx, "jobs", &queue.Group{Name: name, Start: start})
	return err
}

// TestDefaultPartitioner checks that a topic created without settings has 8 partitions and the
// consistent hash partitioner, which keeps the messages of one key in one partition.
func TestDefaultPartitioner(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	ctx, c := testContext(t), newClient(t, s.Addr())
	admin := queue.NewAdmin(c)
	topic, err := admin.CreateTopic(ctx, &queue.Topic{Name: "jobs"})
	if err != nil || topic.GetPartitioner() != parleyv1.Partitioner_PARTITIONER_CONSISTENT_HASH || topic.GetPartitions() != 8 {
		t.Errorf("created %v, %v", topic, err)
	}
	results, err := queue.NewProducer(c, "jobs").Produce(ctx, keyed("user-7", 0, 3)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil || r.Receipt.Partition != results[0].Receipt.Partition {
			t.Errorf("result %+v, want all of a key in one partition", r)
		}
	}
}

// TestTrimKeep checks that Trim removes settled messages only, with WithUnsettled also unsettled
// ones, and that it fails for the zero Keep.
func TestTrimKeep(t *testing.T) {
	t.Parallel()
	s := parleytest.Start(t)
	s.AddTopic("jobs", 1, "g")
	ctx, c := testContext(t), newClient(t, s.Addr())
	admin := queue.NewAdmin(c)
	produce(t, c, "jobs", keyed("k", 0, 4)...)
	w := work(t, c, "jobs", "g", (&record{}).handle)
	settledAll(t, s, "jobs", "g", 4)
	if err := w.finish(); err != nil {
		t.Fatal(err)
	}
	produce(t, c, "jobs", keyed("k", 4, 10)...)
	if _, _, err := admin.Trim(ctx, "jobs", queue.Keep{}, queue.WithUnsettled()); !errors.Is(err, parley.ErrInvalidField) {
		t.Errorf("trim without a selection: got %v", err)
	}
	for i, step := range []struct {
		keep               queue.Keep
		opts               []queue.TrimOption
		removed, unsettled int64
	}{
		{queue.KeepYoungerThan(time.Hour), []queue.TrimOption{queue.WithUnsettled()}, 0, 0},
		{queue.KeepNewest(7), nil, 3, 0},
		{queue.KeepNewest(1), nil, 1, 0},
		{queue.KeepNewest(1), []queue.TrimOption{queue.WithUnsettled()}, 5, 5},
	} {
		removed, unsettled, err := admin.Trim(ctx, "jobs", step.keep, step.opts...)
		if err != nil || removed != step.removed || unsettled != step.unsettled {
			t.Errorf("step %d: removed %d, of them unsettled %d, %v; want %d and %d", i, removed, unsettled, err, step.removed, step.unsettled)
		}
	}
	if n := s.Unsettled("jobs", "g"); n != 1 {
		t.Errorf("%d messages are left, want 1", n)
	}
}
