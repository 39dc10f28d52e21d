package redisqueue

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue"
)

func keyed(key, payload, idempotencyKey string) queue.Draft {
	d := message(key, payload)
	d.IdempotencyKey = idempotencyKey
	return d
}

func TestProduceKeepsMessagesInOrder(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := newTopic(t, s, nil)
		var drafts []queue.Draft
		for i := range 1000 {
			drafts = append(drafts, queue.Draft{Message: queue.Message{
				Key: "k\x01 " + strconv.Itoa(i%3), Payload: []byte{0, 255, byte(i)}, Headers: map[string]string{"a": "1", "b": strconv.Itoa(i)},
			}})
		}
		began := time.Now().Add(-time.Second)
		ids := produce(t, s, topic, drafts...)
		got := entries(t, s, s.keys.main(topic.Ref(0)))
		if len(got) != len(drafts) || stat(t, s, topic, "", "produced") != int64(len(drafts)) {
			t.Fatalf("%d entries, produced %d", len(got), stat(t, s, topic, "", "produced"))
		}
		for i := range got {
			if d := cmp.Diff(drafts[i].Message, got[i].Message); d != "" {
				t.Fatal(d)
			}
			if got[i].MessageID != ids[i] || got[i].Attempt != 1 || got[i].ProducedAt.Before(began) ||
				ids[i] != queue.MessageID(0, got[i].ID) {
				t.Fatalf("%+v is answered as %s", got[i], ids[i])
			}
		}
	})
}

func TestProduceOfAnotherTopic(t *testing.T) {
	t.Parallel()
	s := newStore(t, oneClient(t))
	topic := newTopic(t, s, nil)
	state := dump(t, s)
	later := *topic
	later.UID = "CCCCCCCCCCCCC"
	if _, err := s.Produce(t.Context(), &later, 0, []queue.Draft{message("", "x")}); !errors.Is(err, queue.ErrNoTopic) {
		t.Error(err)
	}
	if _, err := s.Produce(t.Context(), topic, 1, []queue.Draft{message("", "x")}); !errors.Is(err, queue.ErrNoTopic) {
		t.Error(err)
	}
	if _, err := s.Schedule(t.Context(), &later, 0, []queue.Draft{message("", "x")}); !errors.Is(err, queue.ErrNoTopic) {
		t.Error(err)
	}
	if err := s.Cancel(t.Context(), later.Ref(0), "0-1-1d"); !errors.Is(err, queue.ErrNoTopic) {
		t.Error(err)
	}
	if _, err := s.Reschedule(t.Context(), later.Ref(0), "0-1-1d", 0, time.Time{}); !errors.Is(err, queue.ErrNoTopic) {
		t.Error(err)
	}
	if d := cmp.Diff(state, dump(t, s)); d != "" {
		t.Error(d)
	}
}

func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := newTopic(t, s, nil)
		batch := []queue.Draft{keyed("k", "1", "one"), keyed("k", "2", "two"), keyed("k", "1", "one")}
		first, err := s.Produce(t.Context(), topic, 0, batch)
		if err != nil {
			t.Fatal(err)
		}
		if first[0].Duplicate || first[1].Duplicate || !first[2].Duplicate || first[2].MessageID != first[0].MessageID {
			t.Errorf("%+v", first)
		}
		state := dump(t, s)
		again, err := s.Produce(t.Context(), topic, 0, batch)
		if err != nil {
			t.Fatal(err)
		}
		for i := range again {
			if !again[i].Duplicate || again[i].MessageID != first[i].MessageID {
				t.Errorf("%d: %+v after %+v", i, again[i], first[i])
			}
		}
		if d := cmp.Diff(state, dump(t, s)); d != "" {
			t.Error(d)
		}
		for _, other := range []queue.Draft{
			keyed("k", "3", "one"), keyed("j", "1", "one"),
			{Message: queue.Message{Key: "k", Payload: []byte("1"), Headers: map[string]string{"a": ""}}, IdempotencyKey: "one"},
			keyed("k1", "", "one"), // the same bytes in a row
		} {
			taken, err := s.Produce(t.Context(), topic, 0, []queue.Draft{other, message("", "x")})
			if err != nil || !errors.Is(taken[0].Err, queue.ErrKeyReused) || taken[1].Err != nil {
				t.Errorf("%+v: %+v, %v", other, taken, err)
			}
		}
		if got := stat(t, s, topic, "", "produced"); got != 6 || length(t, s, topic) != 6 {
			t.Errorf("produced %d, length %d", got, length(t, s, topic))
		}
		traced := keyed("k", "1", "one")
		traced.Headers = map[string]string{"traceparent": "00-1", "tracestate": "a=b"}
		if taken, err := s.Produce(t.Context(), topic, 0, []queue.Draft{traced}); err != nil || !taken[0].Duplicate {
			t.Errorf("with another trace: %+v, %v", taken, err)
		}
		ttl := client.PTTL(t.Context(), s.keys.idempotency(topic.Ref(0), "one")).Val()
		if ttl <= 0 || ttl > topic.IdempotencyWindow {
			t.Errorf("the key lives for %s", ttl)
		}
		// A key means the same whoever uses it.
		scheduled, err := s.Schedule(t.Context(), topic, 0, []queue.Draft{keyed("k", "2", "two")})
		if err != nil || !scheduled[0].Duplicate || scheduled[0].MessageID != first[1].MessageID || !scheduled[0].Due.IsZero() {
			t.Errorf("%+v, %v", scheduled, err)
		}
	})
}

func TestFullPartitionRefuses(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := newTopic(t, s, func(t *queue.Topic) { t.MaxMessages, t.Groups = 4, groups("a", "b") })
		if _, err := s.Schedule(t.Context(), topic, 0, []queue.Draft{{Delay: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		produce(t, s, topic, keyed("", "1", "one"))
		taken, err := s.Produce(t.Context(), topic, 0, []queue.Draft{
			message("", "2"), keyed("", "1", "one"), message("", "3"), message("", "4"), keyed("", "1", "one"), message("", "5"),
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range taken {
			got = append(got, fmt.Sprint(r.Err == nil, r.Duplicate, errors.Is(r.Err, queue.ErrFull)))
		}
		want := []string{
			"true false false", "true true false", "true false false", "false false true", "true true false", "false false true",
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		state := dump(t, s)
		for range 2 {
			scheduled, err := s.Schedule(t.Context(), topic, 0, []queue.Draft{{Delay: time.Hour}})
			if err != nil || !errors.Is(scheduled[0].Err, queue.ErrFull) {
				t.Error(scheduled, err)
			}
			if d := cmp.Diff(state, dump(t, s)); d != "" {
				t.Error(d)
			}
		}
		// What all groups have settled makes room; what one of them has not does not.
		ack(t, s, topic, "a", readGroup(t, s, topic, "a", 3)...)
		ack(t, s, topic, "b", readGroup(t, s, topic, "b", 2)...)
		taken, err = s.Produce(t.Context(), topic, 0, []queue.Draft{message("", "6"), message("", "7"), message("", "8")})
		if err != nil || taken[0].Err != nil || taken[1].Err != nil || !errors.Is(taken[2].Err, queue.ErrFull) {
			t.Error(taken, err)
		}
		if got := texts(entries(t, s, s.keys.main(topic.Ref(0)))); !slices.Equal(got, []string{"3", "6", "7"}) {
			t.Error(got)
		}
		if got := stat(t, s, topic, "", "produced"); got != 6 {
			t.Errorf("produced %d", got)
		}
		if got := stat(t, s, topic, "a", "trimmed"); got != 0 {
			t.Errorf("trimmed %d", got)
		}
	})
}

func TestFullPartitionKeepsWhatRetentionKeeps(t *testing.T) {
	t.Parallel()
	s := newStore(t, oneClient(t))
	topic := newTopic(t, s, func(t *queue.Topic) {
		t.MaxMessages, t.Groups, t.Retention.MaxAge = 2, groups("a"), time.Hour
	})
	produce(t, s, topic, message("", "1"), message("", "2"))
	ack(t, s, topic, "a", readGroup(t, s, topic, "a", 2)...)
	taken, err := s.Produce(t.Context(), topic, 0, []queue.Draft{message("", "3")})
	if err != nil || !errors.Is(taken[0].Err, queue.ErrFull) {
		t.Error(taken, err)
	}
}

// lag is what a group is yet to read.
func lag(t *testing.T, s *Store, topic *queue.Topic, group string) int64 {
	t.Helper()
	stats, err := s.Stats(t.Context(), topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range stats.Groups {
		if g.Group == group {
			return g.Unread
		}
	}
	t.Fatalf("no group %s", group)
	return 0
}

func TestDropOldestCountsWhatGroupsLose(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := newTopic(t, s, func(t *queue.Topic) {
			t.MaxMessages, t.DropOldest, t.Groups = 6, true, groups("done", "none", "pending", "some")
		})
		produce(t, s, topic, message("", "1"), message("", "2"), message("", "3"), message("", "4"), message("", "5"))
		ack(t, s, topic, "done", readGroup(t, s, topic, "done", 5)...)
		pending := readGroup(t, s, topic, "pending", 4)
		ack(t, s, topic, "pending", pending[1])
		ack(t, s, topic, "some", readGroup(t, s, topic, "some", 1)...)
		// 5 are there, 4 come, 6 fit: 1, 2 and 3 go.
		produce(t, s, topic, message("", "6"), message("", "7"), message("", "8"), message("", "9"))
		for group, want := range map[string]int64{"done": 0, "none": 3, "pending": 2, "some": 2} {
			if got := stat(t, s, topic, group, "trimmed"); got != want {
				t.Errorf("%s has lost %d, not %d", group, got, want)
			}
		}
		if n := client.XPending(t.Context(), s.keys.main(topic.Ref(0)), "pending").Val().Count; n != 1 {
			t.Errorf("%d pending", n)
		}
		if got := lag(t, s, topic, "none"); got != 6 {
			t.Errorf("a group that has read nothing is yet to read %d", got)
		}
		if got := texts(entries(t, s, s.keys.main(topic.Ref(0)))); !slices.Equal(got, []string{"4", "5", "6", "7", "8", "9"}) {
			t.Error(got)
		}
		// A batch larger than the partition, in several bites.
		var drafts []queue.Draft
		for i := range 250 {
			drafts = append(drafts, message("", strconv.Itoa(i)))
		}
		produce(t, s, topic, drafts...)
		if got := texts(entries(t, s, s.keys.main(topic.Ref(0)))); !slices.Equal(got, []string{"244", "245", "246", "247", "248", "249"}) {
			t.Error(got)
		}
		if got := stat(t, s, topic, "none", "trimmed"); got != 9+250-6 {
			t.Errorf("a group that has read nothing has lost %d", got)
		}
		if got := stat(t, s, topic, "done", "trimmed"); got != 4+250-6 {
			t.Errorf("a group that had settled 5 has lost %d", got)
		}
	})
}

func TestDropOldestKeepsScheduled(t *testing.T) {
	t.Parallel()
	s := newStore(t, oneClient(t))
	topic := newTopic(t, s, func(t *queue.Topic) { t.MaxMessages, t.DropOldest, t.Groups = 3, true, groups("a") })
	produce(t, s, topic, message("", "1"), message("", "2"), message("", "3"))
	for range 2 {
		later := queue.Draft{Delay: time.Hour}
		taken, err := s.Schedule(t.Context(), topic, 0, []queue.Draft{later, later})
		if err != nil {
			t.Fatal(err)
		}
		if taken[0].Err != nil {
			t.Error(taken[0].Err)
		}
	}
	ref := topic.Ref(0)
	if n := s.client.ZCard(t.Context(), s.keys.delayed(ref)).Val(); n != 3 || length(t, s, topic) != 0 {
		t.Errorf("%d scheduled, %d in the stream", n, length(t, s, topic))
	}
	if got := stat(t, s, topic, "a", "trimmed"); got != 3 {
		t.Errorf("trimmed %d", got)
	}
	taken, err := s.Produce(t.Context(), topic, 0, []queue.Draft{message("", "x")})
	if err != nil || !errors.Is(taken[0].Err, queue.ErrFull) {
		t.Error(taken, err)
	}
	if got := stat(t, s, topic, "", "produced"); got != 6 {
		t.Errorf("produced %d", got)
	}
}

// TestDropOldestOfAGroupThatIsNotKnownYet produces with settings that are older than a group.
func TestDropOldestOfAGroupThatIsNotKnownYet(t *testing.T) {
	t.Parallel()
	s := newStore(t, oneClient(t))
	old := newTopic(t, s, func(t *queue.Topic) { t.MaxMessages, t.DropOldest, t.Groups = 1, true, groups("a") })
	now := *old
	now.Groups = groups("a", "b")
	if err := s.UpdateTopic(t.Context(), &now); err != nil {
		t.Fatal(err)
	}
	if err := s.MakeGroup(t.Context(), old.Ref(0), queue.Group{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	if err := s.MakeGroup(t.Context(), old.Ref(0), queue.Group{Name: "orphan"}); err != nil {
		t.Fatal(err)
	}
	produce(t, s, old, message("", "1"), message("", "2"))
	if got := stat(t, s, old, "b", "trimmed"); got != 1 {
		t.Errorf("trimmed %d", got)
	}
	if length(t, s, old) != 1 {
		t.Errorf("%d entries", length(t, s, old))
	}
}

// TestDropOldestFreesTheKey removes a delivery that holds its key, while another of the key waits for it.
func TestDropOldestFreesTheKey(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := newTopic(t, s, func(t *queue.Topic) {
			t.MaxMessages, t.DropOldest, t.StrictOrder, t.Groups = 2, true, true, groups("a")
		})
		lease, err := s.Acquire(t.Context(), topic.Ref(0), "a", "holder", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		fetch := func(want ...string) {
			t.Helper()
			got, _, err := s.Fetch(t.Context(), topic, lease, markOf(t, s, lease), 10)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(texts(got), want) {
				t.Errorf("fetched %v, not %v", texts(got), want)
			}
		}
		produce(t, s, topic, message("k", "1"), message("k", "2"))
		fetch("1")
		produce(t, s, topic, message("j", "3"))
		fetch("2", "3")
		if got := stat(t, s, topic, "a", "trimmed"); got != 1 {
			t.Errorf("trimmed %d", got)
		}
	})
}

func TestStrictOrderTellsTheKey(t *testing.T) {
	t.Parallel()
	s := newStore(t, oneClient(t))
	for _, strict := range []bool{false, true} {
		topic := newTopic(t, s, func(t *queue.Topic) { t.Name, t.StrictOrder = fmt.Sprint(strict), strict })
		produce(t, s, topic, message("the key", "x"), message("", "y"))
		if _, err := s.Schedule(t.Context(), topic, 0, []queue.Draft{message("the key", "z")}); err != nil {
			t.Fatal(err)
		}
		dueAll(t, s, queue.Line{Ref: topic.Ref(0)}, 1)
		found := s.client.XRange(t.Context(), s.keys.main(topic.Ref(0)), "-", "+").Val()
		if len(found) != 3 {
			t.Fatal(found)
		}
		for i, want := range []bool{strict, false, strict} {
			if got, ok := found[i].Values["k"]; ok != want || want && got != "the key" {
				t.Errorf("strict order %t, entry %d: %v", strict, i, found[i].Values)
			}
		}
	}
}

var scheduledID = regexp.MustCompile(`^0-[0-9]{13}-[0-9]{10}d$`)

func TestScheduleTellsTheTime(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := newTopic(t, s, nil)
		before := time.Now()
		at := before.Add(time.Hour).Truncate(time.Millisecond)
		drafts := []queue.Draft{
			{Delay: time.Minute},
			{Delay: time.Minute + time.Nanosecond},
			{At: at},
			{At: at.Add(time.Nanosecond)},
			{At: time.UnixMilli(946684800000)},
			{},
			{Delay: queue.MaxDelay},
			{At: before.Add(queue.MaxDelay + time.Minute)},
			{IdempotencyKey: "key", Delay: time.Hour},
		}
		taken, err := s.Schedule(t.Context(), topic, 0, drafts)
		if err != nil {
			t.Fatal(err)
		}
		after := time.Now()
		for i, delay := range map[int]time.Duration{
			0: time.Minute, 1: time.Minute + time.Millisecond, 4: 0, 5: 0, 6: queue.MaxDelay, 8: time.Hour,
		} {
			// Redis' clock is this machine's. Never early, and rounded up to a millisecond.
			if due := taken[i].Due; due.Before(before.Add(delay)) || due.After(after.Add(delay+time.Millisecond)) {
				t.Errorf("%d is due at %s, %s after it was scheduled", i, due, due.Sub(before))
			}
		}
		if !taken[2].Due.Equal(at) || !taken[3].Due.Equal(at.Add(time.Millisecond)) {
			t.Errorf("%s: due at %s and %s", at, taken[2].Due, taken[3].Due)
		}
		if f, ok := fault.As(taken[7].Err); !ok || f.Kind != fault.InvalidArgument || f.Field != "due_time" {
			t.Errorf("%v", taken[7].Err)
		}
		seen := map[string]bool{}
		for i := range taken {
			if i != 7 && (!scheduledID.MatchString(taken[i].MessageID) || seen[taken[i].MessageID] || taken[i].Duplicate) {
				t.Errorf("%d: %+v", i, taken[i])
			}
			seen[taken[i].MessageID] = true
		}
		again, err := s.Schedule(t.Context(), topic, 0, drafts[8:])
		if err != nil || !again[0].Duplicate || again[0].MessageID != taken[8].MessageID || !again[0].Due.Equal(taken[8].Due) {
			t.Errorf("%+v, %v", again, err)
		}
		if got := stat(t, s, topic, "", "produced"); got != 8 {
			t.Errorf("produced %d", got)
		}
	})
}

func TestCancelAndReschedule(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := newTopic(t, s, nil)
		ref := topic.Ref(0)
		taken, err := s.Schedule(t.Context(), topic, 0, []queue.Draft{{Delay: time.Hour}, {Delay: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(2 * time.Hour).Truncate(time.Millisecond)
		for range 2 {
			due, err := s.Reschedule(t.Context(), ref, taken[0].MessageID, 0, at)
			if err != nil || !due.Equal(at) {
				t.Error(due, err)
			}
			if score := client.ZScore(t.Context(), s.keys.delayed(ref), taken[0].MessageID).Val(); int64(score) != at.UnixMilli() {
				t.Errorf("due at %f", score)
			}
		}
		if due, err := s.Reschedule(t.Context(), ref, taken[0].MessageID, time.Minute, time.Time{}); err != nil ||
			due.Before(time.Now().Add(50*time.Second)) || due.After(time.Now().Add(61*time.Second)) {
			t.Error(due, err)
		}
		if _, err := s.Reschedule(t.Context(), ref, taken[0].MessageID, 0, time.Now().Add(queue.MaxDelay+time.Minute)); !fault.Is(err, fault.InvalidField) {
			t.Error(err)
		}
		if err := s.Cancel(t.Context(), ref, taken[0].MessageID); err != nil {
			t.Fatal(err)
		}
		state := dump(t, s)
		if err := s.Cancel(t.Context(), ref, taken[0].MessageID); !errors.Is(err, queue.ErrNoScheduled) {
			t.Error(err)
		}
		if _, err := s.Reschedule(t.Context(), ref, taken[0].MessageID, time.Hour, time.Time{}); !errors.Is(err, queue.ErrNoScheduled) {
			t.Error(err)
		}
		if d := cmp.Diff(state, dump(t, s)); d != "" {
			t.Error(d)
		}
		if got := stat(t, s, topic, "", "cancelled"); got != 1 {
			t.Errorf("cancelled %d", got)
		}
		if n := client.HLen(t.Context(), s.keys.delayedData(ref)).Val(); n != 1 {
			t.Errorf("%d items are left", n)
		}
	})
}
