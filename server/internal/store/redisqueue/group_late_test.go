package redisqueue

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// TestLateRelease has a release come to Redis after it was repeated, and after the message was delivered again: what ends that delivery
// holds all the same, and costs the attempts that there were.
func TestLateRelease(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]queue.Verdict{"retry": queue.Retry, "dead": queue.Dead, "ack": queue.Ack} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
				b := newWorkbench(t, client, nil)
				b.produce("a")
				release := verdict(queue.Release, b.fetch(1)...)
				b.settle(release...)
				again := b.claim()
				want(t, told(again), "a#1")
				b.settle(release...) // which was on its way for all the time
				b.settle(release...)
				b.settle(verdict(v, again...)...)
				s := b.stats()
				if s.Pending != 0 || s.Retrying+s.Dead+s.Acked != 1 {
					t.Fatalf("%+v", s)
				}
				if v == queue.Retry {
					b.due(1)
					want(t, told(b.fetch(1)), "a#2")
				}
			})
		})
	}
}

// TestLateFetch has a fetch come to Redis after it was given up: from then on nothing younger is fetched until what it read was claimed,
// be it a new message or a retry.
func TestLateFetch(t *testing.T) {
	t.Parallel()
	for name, strict := range map[string]bool{"plain": false, "strict order": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
				b := newWorkbench(t, client, func(topic *queue.Topic) { topic.StrictOrder = strict })
				b.produce("a")
				b.settle(verdict(queue.Retry, b.fetch(1)...)...)
				b.due(1)
				for _, pending := range []string{"a#2", "b#1"} {
					mark := markOf(t, b.Store, b.lease)
					// This is the late one. Its answer goes to nobody.
					if late, looked, err := b.Fetch(t.Context(), b.topic, b.lease, mark, 1); told(late) != pending || looked != 1 || err != nil {
						t.Fatal(told(late), looked, err)
					}
					b.produce("b")
					before := b.dump()
					if _, _, err := b.Fetch(t.Context(), b.topic, b.lease, mark, 10); !errors.Is(err, queue.ErrBehind) {
						t.Fatalf("%v, want ErrBehind", err)
					}
					if after := b.dump(); after != before {
						t.Fatalf("it changed\n%s\nto\n%s", before, after)
					}
					all := b.claim()
					want(t, told(all), pending)
					b.settle(verdict(queue.Ack, all...)...)
				}
				want(t, told(b.fetch(10)), "b#1")
			})
		})
	}
}

// TestRetriesOfOneMessage has a group get a message twice, by a seek and a replay, and retry both.
func TestRetriesOfOneMessage(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		b := newWorkbench(t, client, nil)
		b.produce("a")
		b.settle(verdict(queue.Dead, b.fetch(1)...)...)
		if err := b.Free(t.Context(), b.lease); err != nil {
			t.Fatal(err)
		}
		if err := b.SeekGroup(t.Context(), b.topic.Ref(0), queue.Group{Name: "g"}); err != nil {
			t.Fatal(err)
		}
		b.lease = b.acquire("one")
		if n, _, err := b.Replay(t.Context(), b.topic, 0, 0, "g", nil, 10); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		both := b.fetch(10)
		want(t, told(both), "a#1 a#1")
		b.settle(verdict(queue.Retry, both...)...)
		if s := b.stats(); s.Retrying != 2 {
			t.Fatalf("%+v", s)
		}
		b.due(2)
		want(t, told(b.fetch(10)), "a#2 a#2")
	})
}

// TestDueAtTheSameTime schedules more than ten messages for one moment: they appear in the order in which they were scheduled.
func TestDueAtTheSameTime(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		b := newWorkbench(t, client, nil)
		at := time.Now().Add(time.Second)
		wanted := ""
		for i := range 25 {
			draft := queue.Draft{Message: queue.Message{Key: "k", Payload: fmt.Append(nil, i)}, At: at}
			if taken, err := b.Schedule(t.Context(), b.topic, 0, []queue.Draft{draft, draft}); err != nil || taken[1].Err != nil {
				t.Fatal(taken, err)
			}
			wanted += fmt.Sprintf(" %d#1 %d#1", i, i)
		}
		moved := 0
		testkit.Eventually(t, 20*time.Second, func() error {
			n, _, err := b.Due(t.Context(), queue.Line{Ref: b.topic.Ref(0)}, 7)
			if moved += n; moved < 50 && err == nil {
				err = fmt.Errorf("%d have moved", moved)
			}
			return err
		})
		want(t, " "+told(b.fetch(100)), wanted)
	})
}

// TestLowerBound gives a topic a bound when it holds far more: no call drops more than a thousand beside as many as it adds.
func TestLowerBound(t *testing.T) {
	t.Parallel()
	b := newWorkbench(t, oneClient(t), nil)
	for range 3 {
		if _, err := b.Produce(t.Context(), b.topic, 0, make([]queue.Draft, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	b.topic.MaxMessages, b.topic.DropOldest = 10, true
	for _, left := range []int64{2000, 1000, 10, 10} {
		b.produce("a", "b")
		if n := length(t, b.Store, b.topic); n != left {
			t.Fatalf("%d are left, want %d", n, left)
		}
		b.stats()
	}
}

// TestFutureStart has groups begin at a time to come, which is the end: they get what is produced from then on, and retention keeps it.
func TestFutureStart(t *testing.T) {
	t.Parallel()
	b := newWorkbench(t, oneClient(t), nil)
	later := queue.Group{Name: "later", Start: queue.Start{Time: time.Now().Add(time.Hour)}}
	if err := b.MakeGroup(t.Context(), b.topic.Ref(0), later); err != nil {
		t.Fatal(err)
	}
	b.topic.Groups = append(b.topic.Groups, later)
	b.produce("a", "b")
	b.settle(verdict(queue.Ack, b.fetch(10)...)...)
	b.stats()
	if n := trim(t, b.Store, b.topic, 100); n != 0 || lag(t, b.Store, b.topic, "later") != 2 {
		t.Fatalf("%d were trimmed, %d are unread", n, lag(t, b.Store, b.topic, "later"))
	}
}
