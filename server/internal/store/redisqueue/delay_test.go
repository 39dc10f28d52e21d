package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// dueAll calls Due until n messages have been moved.
func dueAll(t *testing.T, s *Store, line queue.Line, n int) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, func() error {
		moved, _, err := s.Due(t.Context(), line, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if n -= moved; n != 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
}

func TestDueMovesInOrderAndNeverEarly(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := newTopic(t, s, func(t *queue.Topic) { t.MaxMessages = 6 })
		line := queue.Line{Ref: topic.Ref(0)}
		if moved, next, err := s.Due(t.Context(), line, 10); moved != 0 || next != queue.Never || err != nil {
			t.Fatal(moved, next, err)
		}
		var drafts []queue.Draft
		for _, ms := range []int{60, 20, 40, 80, 3_600_000} {
			drafts = append(drafts, queue.Draft{Message: queue.Message{Key: "k", Payload: []byte(strconv.Itoa(ms))}, Delay: time.Duration(ms) * time.Millisecond})
		}
		taken, err := s.Schedule(t.Context(), topic, 0, drafts)
		if err != nil {
			t.Fatal(err)
		}
		due := map[string]time.Time{}
		for i := range taken {
			due[taken[i].MessageID] = taken[i].Due
		}
		// A pause and a full partition stop nothing.
		topic.ProducePaused, topic.ConsumePaused, topic.MaxMessages = true, true, 1
		if err := s.MakePartition(t.Context(), topic, 0); err != nil {
			t.Fatal(err)
		}
		for left := 4; left > 0; {
			moved, next, err := s.Due(t.Context(), line, 1)
			now := time.Now() // Redis' clock, a little later
			if err != nil {
				t.Fatal(err)
			}
			left -= moved
			found := entries(t, s, s.keys.main(topic.Ref(0)))
			for i := range found {
				if due[found[i].MessageID].After(now) {
					t.Fatalf("%s was moved before %s", found[i].MessageID, due[found[i].MessageID])
				}
			}
			if next > 0 {
				<-time.After(min(next, 5*time.Millisecond))
			}
		}
		found := entries(t, s, s.keys.main(topic.Ref(0)))
		if got := texts(found); !slices.Equal(got, []string{"20", "40", "60", "80"}) {
			t.Error(got)
		}
		for i := range found {
			e := &found[i]
			if !e.ProducedAt.Equal(due[e.MessageID]) || e.Attempt != 1 || e.Key != "k" {
				t.Errorf("%+v, due at %s", e, due[e.MessageID])
			}
			if added := time.UnixMilli(int64(e.ID.MS)); added.Before(e.ProducedAt) {
				t.Errorf("%s was added at %s and due at %s", e.MessageID, added, e.ProducedAt)
			}
		}
		state := dump(t, s)
		moved, next, err := s.Due(t.Context(), line, 10)
		if moved != 0 || next <= 50*time.Minute || next > time.Hour || err != nil {
			t.Error(moved, next, err)
		}
		if d := cmp.Diff(state, dump(t, s)); d != "" {
			t.Error(d)
		}
		if n := client.HLen(t.Context(), s.keys.delayedData(topic.Ref(0))).Val(); n != 1 {
			t.Errorf("%d items are left", n)
		}
		if got := stat(t, s, topic, "", "produced"); got != 5 {
			t.Errorf("produced %d", got)
		}
	})
}

func TestDueOfAGroup(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := newTopic(t, s, func(t *queue.Topic) { t.Groups = groups("a", "b") })
		ref := topic.Ref(0)
		record, err := encodeRecord(&queue.Message{Key: "k 1", Payload: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		for i, item := range []string{
			encodeItem(2, "0-1700000000000-3", 0, "k 1", record), encodeItem(3, "0-1700000000000-4d", 1_700_000_000_999, "", record),
		} {
			id := "m" + strconv.Itoa(i)
			client.HSet(t.Context(), s.keys.retryingData(ref, "a"), id, item)
			client.ZAdd(t.Context(), s.keys.retrying(ref, "a"), redis.Z{Score: float64(i), Member: id})
		}
		client.ZAdd(t.Context(), s.keys.retrying(ref, "a"), redis.Z{Score: 0.5, Member: "without an item"})
		moved, next, err := s.Due(t.Context(), queue.Line{Ref: ref, Group: "a"}, 10)
		if moved != 2 || next != queue.Never || err != nil {
			t.Fatal(moved, next, err)
		}
		found := entries(t, s, s.keys.retry(ref, "a"))
		if len(found) != 2 {
			t.Fatal(found)
		}
		for i := range found {
			found[i].ID = queue.EntryID{}
		}
		want := []queue.Entry{
			{
				Message: queue.Message{Key: "k 1", Payload: []byte("x")}, MessageID: "0-1700000000000-3", Attempt: 3,
				ProducedAt: time.UnixMilli(1_700_000_000_000),
			},
			{
				Message: queue.Message{Key: "k 1", Payload: []byte("x")}, MessageID: "0-1700000000000-4d", Attempt: 4,
				ProducedAt: time.UnixMilli(1_700_000_000_999),
			},
		}
		if d := cmp.Diff(want, found); d != "" {
			t.Error(d)
		}
		if length(t, s, topic) != 0 || client.XLen(t.Context(), s.keys.retry(ref, "b")).Val() != 0 {
			t.Error("a retry is seen by others")
		}
		if n := client.Exists(t.Context(), s.keys.retrying(ref, "a"), s.keys.retryingData(ref, "a")).Val(); n != 0 {
			t.Error("something is left")
		}
		// Of a group or a topic that is gone nothing is made.
		client.HSet(t.Context(), s.keys.retryingData(ref, "x"), "m", encodeItem(1, "0-1-1", 0, "", record))
		client.ZAdd(t.Context(), s.keys.retrying(ref, "x"), redis.Z{Member: "m"})
		state := dump(t, s)
		if _, _, err := s.Due(t.Context(), queue.Line{Ref: ref, Group: "x"}, 10); !errors.Is(err, queue.ErrNoGroup) {
			t.Error(err)
		}
		ref.UID = "CCCCCCCCCCCCC"
		if _, _, err := s.Due(t.Context(), queue.Line{Ref: ref, Group: "x"}, 10); !errors.Is(err, queue.ErrNoTopic) {
			t.Error(err)
		}
		if d := cmp.Diff(state, dump(t, s)); d != "" {
			t.Error(d)
		}
	})
}

func TestDueIsBounded(t *testing.T) {
	t.Parallel()
	s := newStore(t, oneClient(t))
	topic := newTopic(t, s, nil)
	line := queue.Line{Ref: topic.Ref(0)}
	if _, err := s.Schedule(t.Context(), topic, 0, make([]queue.Draft, 1000)); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 5*time.Second, func() error {
		next, err := s.Next(t.Context(), []queue.Line{line})
		if err != nil || next[0] > 0 {
			return fmt.Errorf("%v, %w", next, err)
		}
		return nil
	})
	for _, want := range []struct {
		n, moved int
		next     time.Duration
	}{{1, 1, 0}, {500, 500, 0}, {500, 499, queue.Never}} {
		moved, next, err := s.Due(t.Context(), line, want.n)
		if moved != want.moved || next != want.next || err != nil {
			t.Errorf("%d moved, next %s, %v", moved, next, err)
		}
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := newTopic(t, s, func(t *queue.Topic) { t.Partitions = 12 })
		var lines []queue.Line
		for p := range 12 {
			lines = append(lines, queue.Line{Ref: topic.Ref(p)}, queue.Line{Ref: topic.Ref(p), Group: "a"})
			if _, err := s.Schedule(t.Context(), topic, p, []queue.Draft{{Delay: time.Duration(p) * time.Hour}}); err != nil {
				t.Fatal(err)
			}
		}
		next, err := s.Next(t.Context(), lines)
		if err != nil || len(next) != len(lines) {
			t.Fatal(next, err)
		}
		for p := range 12 {
			hours := time.Duration(p) * time.Hour
			if got := next[2*p]; got > hours+time.Millisecond || got < max(hours-time.Minute, 0) || next[2*p+1] != queue.Never {
				t.Errorf("partition %d: %s, %s", p, got, next[2*p+1])
			}
		}
		if next, err := s.Next(t.Context(), nil); len(next) != 0 || err != nil {
			t.Error(next, err)
		}
	})
}

// listen gives what is published on the channel of wake-ups. It returns once the subscription stands.
func listen(t *testing.T, s *Store) <-chan string {
	t.Helper()
	sub := s.client.Subscribe(t.Context(), s.keys.wakeups())
	t.Cleanup(func() { _ = sub.Close() })
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 100)
	go func() {
		for m := range sub.Channel() {
			heard <- m.Payload
		}
	}()
	return heard
}

func TestWakeupsArePublishedSparingly(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := newTopic(t, s, nil)
		ref := topic.Ref(0)
		heard := listen(t, s)
		// On a cluster a message may take its time: one that is published afterwards tells that all have come.
		expect := func(what string, want int) {
			t.Helper()
			for range want {
				select {
				case got := <-heard:
					if got != "jobs:0" {
						t.Fatalf("%s: heard %q", what, got)
					}
				case <-time.After(10 * time.Second):
					t.Fatalf("%s: nothing heard", what)
				}
			}
			// Published by the same server, so that it comes last.
			publish := redis.NewScript(`redis.call('PUBLISH', ARGV[1], 'end') return KEYS[1]`)
			if err := publish.Run(t.Context(), client, []string{s.keys.main(ref)}, s.keys.wakeups()).Err(); err != nil {
				t.Fatal(err)
			}
			select {
			case got := <-heard:
				if got != "end" {
					t.Fatalf("%s: heard %q, once too often", what, got)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%s: nothing heard", what)
			}
		}
		schedule := func(delays ...time.Duration) []queue.Taken {
			t.Helper()
			var drafts []queue.Draft
			for _, d := range delays {
				drafts = append(drafts, queue.Draft{Delay: d})
			}
			taken, err := s.Schedule(t.Context(), topic, 0, drafts)
			if err != nil {
				t.Fatal(err)
			}
			return taken
		}
		schedule(3*time.Hour, 2*time.Hour, 4*time.Hour)
		expect("the first", 1)
		last := schedule(5*time.Hour, 6*time.Hour)
		expect("later ones", 0)
		schedule(time.Hour)
		expect("an earlier one", 1)
		if _, err := s.Reschedule(t.Context(), ref, last[0].MessageID, 4*time.Hour, time.Time{}); err != nil {
			t.Fatal(err)
		}
		expect("rescheduled to later than the first", 0)
		if _, err := s.Reschedule(t.Context(), ref, last[1].MessageID, 30*time.Minute, time.Time{}); err != nil {
			t.Fatal(err)
		}
		expect("rescheduled to the first place", 1)
		if err := s.Cancel(t.Context(), ref, last[1].MessageID); err != nil {
			t.Fatal(err)
		}
		expect("cancelled", 0)
		schedule(0)
		expect("one that is due", 1)
		schedule(time.Hour)
		expect("while one is overdue", 1)
		dueAll(t, s, queue.Line{Ref: ref}, 1)
		expect("moved", 0)
		schedule(time.Hour)
		expect("with nothing overdue", 0)
		produce(t, s, topic, message("", "x"))
		expect("produced", 0)
	})
}

func TestWakeupsAreHeard(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := newStore(t, client)
		topic := newTopic(t, s, func(t *queue.Topic) { t.Partitions = 8 })
		ctx, cancel := context.WithCancel(t.Context())
		heard, ended := make(chan string, 100), make(chan error, 1)
		go func() {
			ended <- s.Wakeups(ctx, func(topic string, partition int) { heard <- topic + "/" + strconv.Itoa(partition) })
		}()
		if got := <-heard; got != "/0" {
			t.Fatalf("first heard %q", got)
		}
		if err := client.Publish(ctx, s.keys.wakeups(), "nonsense").Err(); err != nil {
			t.Fatal(err)
		}
		for p := range 8 {
			if _, err := s.Schedule(ctx, topic, p, []queue.Draft{{Delay: time.Hour}}); err != nil {
				t.Fatal(err)
			}
			if got := <-heard; got != "jobs/"+strconv.Itoa(p) {
				t.Fatalf("heard %q", got)
			}
		}
		cancel()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("Wakeups goes on after its context has ended")
		}
	})
}

func TestWakeupsSurviveRestarts(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	s := newStore(t, server.Client(t))
	heard := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Wakeups(ctx, func(topic string, _ int) { heard <- topic })
	}()
	if got := <-heard; got != "" {
		t.Fatalf("heard %q", got)
	}
	for range 2 {
		server.Kill()
		server.Start()
		select {
		case got := <-heard:
			if got != "" {
				t.Fatalf("heard %q", got)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("no reconnection was told")
		}
		topic := newTopic(t, s, nil)
		if _, err := s.Schedule(ctx, topic, 0, []queue.Draft{{Delay: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		if got := <-heard; got != "jobs" {
			t.Fatalf("heard %q", got)
		}
	}
	cancel()
	<-ended
}
