package redisqueue

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue"
)

func trim(t *testing.T, s *Store, topic *queue.Topic, n int) int64 {
	t.Helper()
	removed, err := s.Trim(t.Context(), topic, 0, n)
	if err != nil {
		t.Fatal(err)
	}
	return removed
}

func TestTrimKeepsWhatAGroupNeeds(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := newTopic(t, s, func(t *queue.Topic) { t.Groups = groups("a", "b") })
		produce(t, s, topic, message("", "1"), message("", "2"), message("", "3"), message("", "4"), message("", "5"))
		left := func() []string { return texts(entries(t, s, s.keys.main(topic.Ref(0)))) }
		expect := func(what string, removed int64, want ...string) {
			t.Helper()
			if got := trim(t, s, topic, 1000); got != removed {
				t.Errorf("%s: %d removed, not %d", what, got, removed)
			}
			if got := left(); !slices.Equal(got, want) {
				t.Errorf("%s: %v are left", what, got)
			}
		}
		expect("nothing read", 0, "1", "2", "3", "4", "5")
		a, b := readGroup(t, s, topic, "a", 5), readGroup(t, s, topic, "b", 3)
		expect("nothing settled", 0, "1", "2", "3", "4", "5")
		ack(t, s, topic, "a", a[1], a[2], a[3], a[4])
		ack(t, s, topic, "b", b[0], b[1])
		expect("the first is pending", 0, "1", "2", "3", "4", "5")
		ack(t, s, topic, "a", a[0])
		expect("the third is pending", 2, "3", "4", "5")
		ack(t, s, topic, "b", b[2])
		expect("two are unread", 1, "4", "5")
		topic.Groups = groups("a", "b", "c")
		ack(t, s, topic, "b", readGroup(t, s, topic, "b", 5)...)
		expect("a group is not there yet", 0, "4", "5")
		topic.Groups = nil
		expect("no group is known", 0, "4", "5")
		topic.Groups = groups("a")
		if err := s.MakeGroup(t.Context(), topic.Ref(0), queue.Group{Name: "c"}); err != nil {
			t.Fatal(err)
		}
		expect("a group is not known yet", 0, "4", "5")
		if err := s.RemoveGroup(t.Context(), topic.Ref(0), "c"); err != nil {
			t.Fatal(err)
		}
		expect("all is settled", 2)
		topic.UID = "CCCCCCCCCCCCC"
		if _, err := s.Trim(t.Context(), topic, 0, 10); !errors.Is(err, queue.ErrNoTopic) {
			t.Error(err)
		}
	})
}

// TestTrimWithoutGroups holds a topic without any group: nothing says that its messages are done with.
func TestTrimWithoutGroups(t *testing.T) {
	t.Parallel()
	s := newStore(t, oneClient(t))
	topic := newTopic(t, s, nil)
	produce(t, s, topic, message("", "1"))
	if got := trim(t, s, topic, 10); got != 0 || length(t, s, topic) != 1 {
		t.Errorf("%d removed", got)
	}
}

func TestTrimIsBoundedAndExact(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := newTopic(t, s, func(t *queue.Topic) { t.Groups = groups("a") })
		var drafts []queue.Draft
		for i := range 1000 {
			drafts = append(drafts, message("", strconv.Itoa(i)))
		}
		produce(t, s, topic, drafts...)
		ack(t, s, topic, "a", readGroup(t, s, topic, "a", 777)...)
		gone := int64(0)
		for _, n := range []int{1, 7, 99, 100, 101, 250, 1000} {
			want := min(int64(n), 777-gone)
			if got := trim(t, s, topic, n); got != want {
				t.Errorf("%d removed of %d, not %d", got, n, want)
			}
			gone += want
			if first := entries(t, s, s.keys.main(topic.Ref(0)))[0]; string(first.Payload) != strconv.FormatInt(gone, 10) {
				t.Fatalf("after %d the first is %s", gone, first.Payload)
			}
		}
		state := dump(t, s)
		if got := trim(t, s, topic, 1000); got != 0 {
			t.Errorf("%d removed again", got)
		}
		if d := cmp.Diff(state, dump(t, s)); d != "" {
			t.Error(d)
		}
		if got := lag(t, s, topic, "a"); got != 223 {
			t.Errorf("%d are yet to be read", got)
		}
	})
}

func TestRetention(t *testing.T) {
	t.Parallel()
	s := newStore(t, oneClient(t))
	topic := newTopic(t, s, func(t *queue.Topic) { t.Groups = groups("a") })
	ref := topic.Ref(0)
	now := time.Now().UnixMilli()
	for i, age := range []int64{7200_000, 3700_000, 3500_000, 60_000, 30_000} {
		record, err := encodeRecord(&queue.Message{Payload: []byte(strconv.Itoa(i))})
		if err != nil {
			t.Fatal(err)
		}
		id := strconv.FormatInt(now-age, 10) + "-0"
		if err := s.client.XAdd(t.Context(), &redis.XAddArgs{Stream: s.keys.main(ref), ID: id, Values: []any{"d", record}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, r queue.Retention, want ...string) {
		t.Helper()
		topic.Retention = r
		trim(t, s, topic, 1000)
		if got := texts(entries(t, s, s.keys.main(ref))); !slices.Equal(got, want) {
			t.Errorf("%s: %v are left", what, got)
		}
	}
	expect("an age that all exceed, nothing settled", queue.Retention{MaxAge: time.Second}, "0", "1", "2", "3", "4")
	ack(t, s, topic, "a", readGroup(t, s, topic, "a", 4)...)
	expect("a large age", queue.Retention{MaxAge: 24 * time.Hour}, "0", "1", "2", "3", "4")
	expect("a large number", queue.Retention{MaxAge: 24 * time.Hour, MaxMessages: 5}, "0", "1", "2", "3", "4")
	expect("an age", queue.Retention{MaxAge: time.Hour, MaxMessages: 4}, "2", "3", "4")
	expect("a number", queue.Retention{MaxAge: time.Hour, MaxMessages: 2}, "3", "4")
	expect("a number below what is settled", queue.Retention{MaxAge: time.Hour, MaxMessages: 1}, "4")
	expect("what is not settled stays", queue.Retention{}, "4")
	ack(t, s, topic, "a", readGroup(t, s, topic, "a", 4)...)
	expect("a number without an age", queue.Retention{MaxMessages: 9})
}

func TestDeadLettersGrowOld(t *testing.T) {
	t.Parallel()
	s := newStore(t, oneClient(t))
	topic := newTopic(t, s, func(t *queue.Topic) { t.Groups = groups("a") })
	ref := topic.Ref(0)
	now := time.Now().UnixMilli()
	var ids []string
	for _, age := range []int64{5000_000, 4000_000, 3700_000, 1000} {
		id := strconv.FormatInt(now-age, 10) + "-3"
		ids = append(ids, id)
		if err := s.client.XAdd(t.Context(), &redis.XAddArgs{Stream: s.keys.deadLetters(ref), ID: id, Values: []any{"d", ""}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, want ...string) {
		t.Helper()
		if removed := trim(t, s, topic, 100); removed != 0 {
			t.Errorf("%s: dead letters count as %d messages", what, removed)
		}
		var got []string
		for _, e := range s.client.XRange(t.Context(), s.keys.deadLetters(ref), "-", "+").Val() {
			got = append(got, e.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v are left", what, got)
		}
	}
	expect("for ever", ids...)
	topic.Retention.DeadLetterAge = time.Hour
	s.client.HSet(t.Context(), s.keys.moving(ref), ids[1], 3)
	expect("one is on its way", ids[1:]...)
	s.client.Del(t.Context(), s.keys.moving(ref))
	expect("an age", ids[3])
	topic.Groups = nil
	topic.Retention.DeadLetterAge = time.Millisecond
	expect("without groups")
}
