package redisqueue

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue"
)

// fullTopic has something in every field.
func fullTopic() *queue.Topic {
	return &queue.Topic{
		Name: "orders", UID: "BBBBBBBBBBBBB", Version: 7, State: queue.Removing, Partitions: 3, Partitioner: queue.ConsistentHash,
		StrictOrder: true,
		Retry: queue.RetryPolicy{
			MaxAttempts: 5, MinBackoff: time.Millisecond, MaxBackoff: time.Hour, NonRetryable: []string{"a", "b"},
		},
		Retention:   queue.Retention{MaxAge: time.Hour, MaxMessages: 9, DeadLetterAge: time.Minute},
		MaxMessages: 11, DropOldest: true, IdempotencyWindow: time.Second, CreatedAt: time.UnixMilli(1_700_000_000_123),
		ProducePaused: true, ConsumePaused: true,
		Groups: []queue.Group{
			{Name: "a"}, {Name: "b", Start: queue.Start{End: true}}, {Name: "c", Start: queue.Start{Time: time.UnixMilli(1_700_000_000_001)}},
		},
	}
}

func TestTopicIsKeptWhole(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		want := fullTopic()
		if existing, err := s.InsertTopic(t.Context(), want); existing != nil || err != nil {
			t.Fatal(existing, err)
		}
		got, err := s.Topic(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		if got.State != queue.Making {
			t.Errorf("a new topic has state %d", got.State)
		}
		if want.State != queue.Removing {
			t.Error("InsertTopic changed its argument")
		}
		if err := s.UpdateTopic(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		if got, err = s.Topic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		want.Version++
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	})
}

func TestInsertTopicRepeated(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := fullTopic()
		if _, err := s.InsertTopic(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
		state := dump(t, s)
		// As if the first call had crashed before it registered the topic.
		if err := client.SRem(t.Context(), s.keys.registry(), topic.Name).Err(); err != nil {
			t.Fatal(err)
		}
		if names, err := s.TopicNames(t.Context()); err != nil || len(names) != 0 {
			t.Fatal(names, err)
		}
		other := *topic
		other.UID = "CCCCCCCCCCCCC"
		existing, err := s.InsertTopic(t.Context(), &other)
		if !errors.Is(err, queue.ErrTopicExists) || existing == nil || existing.UID != topic.UID || existing.State != queue.Making {
			t.Fatal(existing, err)
		}
		if d := cmp.Diff(state, dump(t, s)); d != "" {
			t.Error(d)
		}
	})
}

func TestUpdateTopicComparesVersions(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := newTopic(t, s, nil)
		mine, theirs := *topic, *topic
		mine.MaxMessages, theirs.MaxMessages = 1, 2
		if err := s.UpdateTopic(t.Context(), &mine); err != nil {
			t.Fatal(err)
		}
		state := dump(t, s)
		if err := s.UpdateTopic(t.Context(), &mine); err != nil {
			t.Errorf("the repeat of one's own update: %v", err)
		}
		if err := s.UpdateTopic(t.Context(), &theirs); !errors.Is(err, queue.ErrConflict) {
			t.Errorf("another's update: %v", err)
		}
		theirs.UID = "CCCCCCCCCCCCC"
		if err := s.UpdateTopic(t.Context(), &theirs); !errors.Is(err, queue.ErrNoTopic) {
			t.Errorf("the update of another topic: %v", err)
		}
		if d := cmp.Diff(state, dump(t, s)); d != "" {
			t.Error(d)
		}
	})
}

func TestRemoveTopic(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := newTopic(t, s, func(t *queue.Topic) { t.Partitions, t.Groups = 2, groups("a", "b") })
		produce(t, s, topic, message("k", "x"))
		if err := s.MakeGroup(t.Context(), topic.Ref(0), queue.Group{Name: "unknown"}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Schedule(t.Context(), topic, 1, []queue.Draft{message("k", "x")}); err != nil {
			t.Fatal(err)
		}
		later := *topic
		later.UID = "CCCCCCCCCCCCC"
		state := dump(t, s)
		for p := range 2 {
			if err := s.RemovePartition(t.Context(), &later, p); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.RemoveTopic(t.Context(), &later); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(state, dump(t, s)); d != "" {
			t.Fatalf("another topic of the name removed something: %s", d)
		}
		for range 2 {
			for p := range 2 {
				if err := s.RemovePartition(t.Context(), topic, p); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.RemoveTopic(t.Context(), topic); err != nil {
				t.Fatal(err)
			}
			if left := slices.Collect(maps.Keys(dump(t, s))); len(left) > 0 {
				t.Fatalf("left: %v", left)
			}
		}
		if _, err := s.Topic(t.Context(), topic.Name); !errors.Is(err, queue.ErrNoTopic) {
			t.Error(err)
		}
		if _, err := s.Produce(t.Context(), topic, 0, []queue.Draft{message("k", "x")}); !errors.Is(err, queue.ErrNoTopic) {
			t.Errorf("produce to a removed partition: %v", err)
		}
		if left := dump(t, s); len(left) > 0 {
			t.Errorf("produce to a removed partition made %v", left)
		}
	})
}

func TestTopicNamesInOrder(t *testing.T) {
	t.Parallel()
	s := newStore(t, oneClient(t))
	for _, n := range []string{"b", "c", "a"} {
		topic := fullTopic()
		topic.Name = n
		if _, err := s.InsertTopic(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := s.TopicNames(t.Context()); err != nil || !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Error(names, err)
	}
}

func TestMakePartitionRepeated(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := newTopic(t, s, func(t *queue.Topic) { t.Groups = groups("a") })
		produce(t, s, topic, message("", "1"), message("", "2"))
		readGroup(t, s, topic, "a", 1)
		state := dump(t, s)
		if err := s.MakePartition(t.Context(), topic, 0); err != nil {
			t.Fatal(err)
		}
		if err := s.MakeGroup(t.Context(), topic.Ref(0), topic.Groups[0]); err != nil {
			t.Fatal(err)
		}
		later := *topic
		later.UID = "CCCCCCCCCCCCC"
		if err := s.MakePartition(t.Context(), &later, 0); !errors.Is(err, queue.ErrNoTopic) {
			t.Error(err)
		}
		if err := s.MakeGroup(t.Context(), later.Ref(0), queue.Group{Name: "b"}); !errors.Is(err, queue.ErrNoTopic) {
			t.Error(err)
		}
		if d := cmp.Diff(state, dump(t, s)); d != "" {
			t.Error(d)
		}
	})
}

func TestPausesAreApplied(t *testing.T) {
	t.Parallel()
	s := newStore(t, oneClient(t))
	topic := newTopic(t, s, func(t *queue.Topic) { t.ProducePaused, t.ConsumePaused = true, true })
	if _, err := s.Produce(t.Context(), topic, 0, []queue.Draft{message("", "x")}); !errors.Is(err, queue.ErrPaused) {
		t.Error(err)
	}
	if _, err := s.Schedule(t.Context(), topic, 0, []queue.Draft{message("", "x")}); !errors.Is(err, queue.ErrPaused) {
		t.Error(err)
	}
	resumed := *topic
	resumed.ProducePaused, resumed.ConsumePaused = false, false
	if err := s.MakePartition(t.Context(), &resumed, 0); err != nil {
		t.Fatal(err)
	}
	produce(t, s, topic, message("", "x"))
	fields := s.client.HGetAll(t.Context(), s.keys.meta(topic.Ref(0))).Val()
	if want := map[string]string{"uid": topic.UID, "produced": "1"}; !maps.Equal(fields, want) {
		t.Error(fields)
	}
}

func TestGroupsBegin(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := newTopic(t, s, nil)
		ref := topic.Ref(0)
		// Entries of one and the same millisecond, and of others, at times that the test knows.
		var ids []string
		for i, id := range []string{"1000-1", "1000-2", "2000-0", "2000-1", "3000-0"} {
			record, err := encodeRecord(&queue.Message{Payload: []byte(strconv.Itoa(i))})
			if err != nil {
				t.Fatal(err)
			}
			args := &redis.XAddArgs{Stream: s.keys.main(ref), ID: id, Values: []any{"d", record}}
			ids = append(ids, client.XAdd(t.Context(), args).Val())
		}
		client.HSet(t.Context(), s.keys.meta(ref), "produced", 7, "cancelled", 1) // one was trimmed away
		at := func(ms int64) queue.Start { return queue.Start{Time: time.UnixMilli(ms)} }
		for name, c := range map[string]struct {
			start   queue.Start
			reads   []string
			skipped int64
		}{
			"beginning": {queue.Start{}, ids, 1},
			"end":       {queue.Start{End: true}, nil, 6},
			"at1000":    {at(1000), ids, 1},
			"at1001":    {at(1001), ids[2:], 3},
			"at2000":    {at(2000), ids[2:], 3},
			"at2001":    {at(2001), ids[4:], 5},
			"at3001":    {at(3001), nil, 6},
		} {
			g := queue.Group{Name: name, Start: c.start}
			if err := s.MakeGroup(t.Context(), ref, g); err != nil {
				t.Fatal(err)
			}
			if got := readGroup(t, s, topic, name, 100); !slices.Equal(got, c.reads) {
				t.Errorf("%s reads %v", name, got)
			}
			if got := stat(t, s, topic, name, "skipped"); got != c.skipped {
				t.Errorf("%s has skipped %d", name, got)
			}
			// And moved there, whatever it has read.
			if err := s.SeekGroup(t.Context(), ref, g); err != nil {
				t.Fatal(err)
			}
			if got := readGroup(t, s, topic, name, 100); !slices.Equal(got, c.reads) {
				t.Errorf("%s, moved, reads %v", name, got)
			}
			if got := stat(t, s, topic, name, "skipped"); got != c.skipped {
				t.Errorf("%s, moved, has skipped %d", name, got)
			}
		}
	})
}

// TestGroupCountsFromTheMiddle has more entries on both sides than are looked at at once.
func TestGroupCountsFromTheMiddle(t *testing.T) {
	t.Parallel()
	s := newStore(t, oneClient(t))
	topic := newTopic(t, s, nil)
	ref := topic.Ref(0)
	const n = 1000
	_, err := s.client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range n {
			p.XAdd(t.Context(), &redis.XAddArgs{Stream: s.keys.main(ref), ID: strconv.Itoa(1000+i) + "-0", Values: []any{"d", ""}})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.client.HSet(t.Context(), s.keys.meta(ref), "produced", n)
	for _, at := range []int64{1, 99, 100, 101, 250, 499, 500, 501, 750, 899, 900, 999} {
		g := queue.Group{Name: "g" + strconv.FormatInt(at, 10), Start: queue.Start{Time: time.UnixMilli(1000 + at)}}
		if err := s.MakeGroup(t.Context(), ref, g); err != nil {
			t.Fatal(err)
		}
		if got := stat(t, s, topic, g.Name, "skipped"); got != at {
			t.Errorf("a group at %d has skipped %d", at, got)
		}
	}
}

func TestSeekDropsAndRefuses(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := newTopic(t, s, func(t *queue.Topic) { t.Groups = groups("a", "b") })
		ref, g := topic.Ref(0), queue.Group{Name: "a"}
		produce(t, s, topic, message("", "1"), message("", "2"))
		if _, err := s.Schedule(t.Context(), topic, 0, []queue.Draft{{Delay: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		readGroup(t, s, topic, "a", 2)
		for _, key := range s.groupWork(ref, "a") {
			client.Set(t.Context(), key, "something", 0)
		}
		client.HSet(t.Context(), s.keys.stats(ref, "a"), "acked", 9)
		client.XAdd(t.Context(), &redis.XAddArgs{Stream: s.keys.retry(ref, "a"), Values: []any{"d", ""}})
		client.Set(t.Context(), s.keys.lease(ref, "a"), "holder 1", 0)
		state := dump(t, s)
		if err := s.SeekGroup(t.Context(), ref, g); !errors.Is(err, queue.ErrInUse) {
			t.Error(err)
		}
		if err := s.SeekGroup(t.Context(), ref, queue.Group{Name: "x"}); !errors.Is(err, queue.ErrNoGroup) {
			t.Error(err)
		}
		if d := cmp.Diff(state, dump(t, s)); d != "" {
			t.Error(d)
		}
		client.Del(t.Context(), s.keys.lease(ref, "a"))
		client.Set(t.Context(), s.keys.epoch(ref, "a"), 5, 0)
		if err := s.SeekGroup(t.Context(), ref, g); err != nil {
			t.Fatal(err)
		}
		after := dump(t, s)
		if err := s.SeekGroup(t.Context(), ref, g); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(after, dump(t, s)); d != "" {
			t.Error(d)
		}
		for _, key := range s.groupWork(ref, "a") {
			if client.Exists(t.Context(), key).Val() != 0 {
				t.Errorf("%s is left", key)
			}
		}
		if got := client.HGetAll(t.Context(), s.keys.stats(ref, "a")).Val(); len(got) != 0 {
			t.Errorf("counters of a group at the beginning of everything: %v", got)
		}
		if client.XLen(t.Context(), s.keys.retry(ref, "a")).Val() != 0 || client.Get(t.Context(), s.keys.epoch(ref, "a")).Val() != "5" {
			t.Error("the retries are left, or the epoch is not")
		}
		if got := readGroup(t, s, topic, "a", 9); len(got) != 2 {
			t.Errorf("reads %v", got)
		}
	})
}

func TestRemoveGroupRemovesItsKeysOnly(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := newTopic(t, s, func(t *queue.Topic) { t.Groups = groups("b") })
		ref := topic.Ref(0)
		produce(t, s, topic, message("", "1"))
		client.XAdd(t.Context(), &redis.XAddArgs{Stream: s.keys.deadLetters(ref), Values: []any{"d", ""}})
		state := dump(t, s)
		if err := s.MakeGroup(t.Context(), ref, queue.Group{Name: "a"}); err != nil {
			t.Fatal(err)
		}
		for _, key := range s.groupKeys(ref, "a") {
			if key != s.keys.retry(ref, "a") {
				client.Set(t.Context(), key, "something", 0)
			}
		}
		for range 2 {
			if err := s.RemoveGroup(t.Context(), ref, "a"); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(state, dump(t, s)); d != "" {
				t.Error(d)
			}
		}
		if err := s.RemoveGroup(t.Context(), queue.Ref{Topic: "jobs", UID: "CCCCCCCCCCCCC"}, "b"); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(state, dump(t, s)); d != "" {
			t.Error(d)
		}
	})
}
