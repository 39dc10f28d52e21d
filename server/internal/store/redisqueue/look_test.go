package redisqueue

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func numbered(n int) []string {
	payloads := make([]string, n)
	for i := range payloads {
		payloads[i] = strconv.Itoa(i)
	}
	return payloads
}

func TestStats(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		b := newWorkbench(t, client, nil)
		ctx := t.Context()
		empty, err := b.Stats(ctx, b.topic, 0)
		if err != nil || empty.Length != 0 || empty.FirstID != "" || empty.LastID != "" || empty.Groups[0].OldestAge != 0 {
			t.Fatalf("%+v, %v", empty, err)
		}
		ids := b.produce("a", "b", "c")
		testkit.Eventually(t, 10*time.Second, func() error {
			p, err := b.Stats(ctx, b.topic, 0)
			if err != nil {
				return err
			}
			g := p.Groups[0]
			if p.Length != 3 || p.Produced != 3 || p.FirstID != ids[0] || p.LastID != ids[2] || g.Unread != 3 || !g.Held || g.OldestAge > time.Minute {
				t.Fatalf("%+v", p)
			}
			if g.OldestAge == 0 {
				return errors.New("it has no age yet")
			}
			return nil
		})
		if _, err := b.Stats(ctx, &queue.Topic{Name: "jobs", UID: "BBBBBBBBBBBBB"}, 0); !errors.Is(err, queue.ErrNoTopic) {
			t.Errorf("another topic of the same name: %v", err)
		}
		b.settle(verdict(queue.Ack, b.fetch(10)...)...)
		if g := b.stats(); g.OldestAge != 0 || g.Acked != 3 || g.Unread != 0 {
			t.Errorf("%+v", g)
		}
	})
}

// TestUnreadIsCounted removes messages that the group has not read, behind the store's back and by force: after the first
// Redis' own count says 4 where there are 2, and goes on being wrong as the group reads.
func TestUnreadIsCounted(t *testing.T) {
	t.Parallel()
	for name, trim := range map[string]func(b *workbench, keep int64) error{
		"behind its back": func(b *workbench, keep int64) error {
			return b.client.XTrimMaxLen(b.t.Context(), b.keys.main(b.topic.Ref(0)), keep).Err()
		},
		"by force": func(b *workbench, keep int64) error {
			_, _, err := b.Cut(b.t.Context(), b.topic, 0, queue.Cut{Messages: keep, Force: true})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newWorkbench(t, oneClient(t), nil)
			check := func(want int64) {
				t.Helper()
				p, err := b.Stats(t.Context(), b.topic, 0)
				if err != nil || p.Groups[0].Unread != want {
					t.Fatalf("%+v, want %d unread, %v", p, want, err)
				}
			}
			b.produce(numbered(6)...)
			b.settle(verdict(queue.Ack, b.fetch(2)...)...)
			check(4)
			if err := trim(b, 2); err != nil {
				t.Fatal(err)
			}
			check(2)
			b.fetch(1)
			check(1)
			b.produce(numbered(4)...)
			check(5)
			b.fetch(2)
			check(3)
			b.fetch(10)
			check(0)
		})
	}
	t.Run("many", func(t *testing.T) {
		t.Parallel()
		b := newWorkbench(t, oneClient(t), nil)
		b.produce(numbered(1000)...)
		b.fetch(10)
		if _, _, err := b.Cut(t.Context(), b.topic, 0, queue.Cut{Messages: 700, Force: true}); err != nil {
			t.Fatal(err)
		}
		for left := int64(700); left > 0; left -= 50 {
			if g := b.stats(); g.Unread != left || g.Trimmed != 300 {
				t.Fatalf("%+v, want %d unread", g, left)
			}
			b.settle(verdict(queue.Ack, b.fetch(50)...)...)
		}
	})
}

func TestCut(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		b := newWorkbench(t, client, func(topic *queue.Topic) {
			topic.Groups = append(topic.Groups, queue.Group{Name: "h"})
		})
		cut := func(c queue.Cut, wantRemoved, wantLost int64) {
			t.Helper()
			removed, lost, err := b.Cut(t.Context(), b.topic, 0, c)
			if err != nil || removed != wantRemoved || lost != wantLost {
				t.Fatalf("%+v removed %d and lost %d, want %d and %d, %v", c, removed, lost, wantRemoved, wantLost, err)
			}
			b.stats()
		}
		b.produce(numbered(1200)...)
		entries := b.fetch(1100)
		b.settle(verdict(queue.Ack, entries[:1000]...)...)
		// h has read nothing.
		cut(queue.Cut{Messages: 0}, 0, 0)
		h, err := b.Acquire(t.Context(), b.topic.Ref(0), "h", "one", ttl)
		if err != nil {
			t.Fatal(err)
		}
		all, _, err := b.Fetch(t.Context(), b.topic, h, 0, 1200)
		if err != nil || len(all) != 1200 {
			t.Fatalf("%d entries, %v", len(all), err)
		}
		if err := b.Settle(t.Context(), b.topic, h, verdict(queue.Ack, all...)); err != nil {
			t.Fatal(err)
		}
		cut(queue.Cut{Messages: -1, Age: time.Hour}, 0, 0)
		cut(queue.Cut{Messages: 900}, 300, 0)
		cut(queue.Cut{Messages: 10}, 700, 0)
		cut(queue.Cut{Messages: 150, Force: true}, 50, 50)
		cut(queue.Cut{Messages: -1, Force: true}, 150, 150)
		if g := b.stats(); g.Trimmed != 200 || g.Pending != 0 || g.Unread != 0 || g.Acked != 1000 {
			t.Errorf("%+v", g)
		}
		// What is gone was taken from its holder: nothing is counted twice.
		b.settle(verdict(queue.Ack, entries[1000:]...)...)
		b.settle(verdict(queue.Retry, entries[1000:]...)...)
		if g := b.stats(); g.Trimmed != 200 || g.Acked != 1000 {
			t.Errorf("%+v", g)
		}
		b.topic.Groups = b.topic.Groups[:1]
		b.produce("x")
		if _, _, err := b.Cut(t.Context(), b.topic, 0, queue.Cut{Force: true}); !errors.Is(err, queue.ErrConflict) {
			t.Errorf("a group that was not named: %v", err)
		}
	})
}

// TestCutFreesKeys takes away, by force, the message that others of its key wait for.
func TestCutFreesKeys(t *testing.T) {
	t.Parallel()
	b := newWorkbench(t, oneClient(t), strict)
	b.produce("k=a", "k=b", "k=c")
	want(t, told(b.fetch(10)), "a#1")
	if _, lost, err := b.Cut(t.Context(), b.topic, 0, queue.Cut{Messages: 0, Force: true}); err != nil || lost != 1 {
		t.Fatalf("lost %d, %v", lost, err)
	}
	second := b.fetch(10)
	want(t, told(second), "b#1")
	b.settle(verdict(queue.Ack, second...)...)
	want(t, told(b.fetch(10)), "c#1")
	b.stats()
}

// TestTrimmedWhilePending takes entries away that the holder has: each verdict, and a claim, finds that out.
func TestTrimmedWhilePending(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*queue.Topic){"": nil, "strict": strict} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newWorkbench(t, oneClient(t), change)
			ref := b.topic.Ref(0)
			b.produce("p=a", "q=b", "r=c", "s=d", "t=e", "p=A", "q=B", "r=C", "s=D", "t=E")
			due, err := b.Schedule(t.Context(), b.topic, 0, []queue.Draft{{Message: queue.Message{Key: "u", Payload: []byte("f")}}})
			if err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, 10*time.Second, func() error {
				n, _, err := b.Due(t.Context(), queue.Line{Ref: ref}, 1)
				if n == 0 {
					return errors.New("not due")
				}
				return err
			})
			b.produce("u=F")
			entries := b.fetch(20)
			entries = slices.Clip(entries)
			if err := b.client.XTrimMaxLen(t.Context(), b.keys.main(ref), 0).Err(); err != nil {
				t.Fatal(err)
			}
			b.settle(append(append(verdict(queue.Retry, entries[0]), verdict(queue.Dead, entries[1])...), verdict(queue.Release, entries[2])...)...)
			b.settle(verdict(queue.Ack, entries[3])...)
			b.supersede("two")
			if rest := b.claim(); len(rest) != 0 {
				t.Errorf("claimed %s, and %v", told(rest), due)
			}
			if g := b.stats(); g.Acked != 1 || g.Pending != 0 || g.Trimmed != int64(len(entries)-1) {
				t.Errorf("%+v", g)
			}
			if !b.topic.StrictOrder {
				return
			}
			want(t, told(b.fetch(20)), "A#1 B#1 C#1 D#1 E#1 F#1")
		})
	}
}

func TestPending(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		b := newWorkbench(t, client, nil)
		ctx, ref := t.Context(), b.topic.Ref(0)
		ids := b.produce("a", "b", "c")
		first := b.fetch(2)
		b.settle(verdict(queue.Retry, first[0])...)
		b.due(1)
		b.fetch(1)
		b.settle(verdict(queue.Release, first[1])...)
		b.fetch(1)
		pending, err := b.Pending(ctx, ref, "g", 10)
		if err != nil || len(pending) != 3 {
			t.Fatalf("%+v, %v", pending, err)
		}
		for i, want := range []queue.PendingEntry{
			{MessageID: ids[1], Attempt: 0}, {MessageID: ids[2], StreamID: "one", Attempt: 1}, {MessageID: ids[0], StreamID: "one", Attempt: 2},
		} {
			if p := pending[i]; p.MessageID != want.MessageID || p.StreamID != want.StreamID || p.Attempt != want.Attempt || p.Idle > time.Minute {
				t.Errorf("%+v, want %+v", p, want)
			}
		}
		if two, err := b.Pending(ctx, ref, "g", 2); err != nil || len(two) != 2 {
			t.Errorf("%+v, %v", two, err)
		}
		b.supersede("two")
		pending, err = b.Pending(ctx, ref, "g", 10)
		for _, p := range pending {
			if p.StreamID != "" {
				t.Errorf("%+v is of a session that is gone", p)
			}
		}
		if err != nil || len(pending) != 3 {
			t.Errorf("%+v, %v", pending, err)
		}
		if _, err := b.Pending(ctx, ref, "h", 10); !errors.Is(err, queue.ErrNoGroup) {
			t.Errorf("no group: %v", err)
		}
	})
}

// TestPendingInSteps has more pending than one call of the script looks at, in both streams.
func TestPendingInSteps(t *testing.T) {
	t.Parallel()
	b := newWorkbench(t, oneClient(t), nil)
	if _, err := b.Produce(t.Context(), b.topic, 0, make([]queue.Draft, 1000)); err != nil {
		t.Fatal(err)
	}
	entries := b.fetch(1000)
	b.settle(verdict(queue.Retry, entries[:400]...)...)
	b.due(400)
	b.fetch(400)
	seen := map[string]bool{}
	for _, n := range []int{1, 500, 600, 601, 1000, 1200} {
		clear(seen)
		pending, err := b.Pending(t.Context(), b.topic.Ref(0), "g", n)
		if err != nil || len(pending) != min(n, 1000) {
			t.Fatalf("%d of %d: %v", len(pending), n, err)
		}
		for i, p := range pending {
			seen[p.MessageID] = true
			if want := 1 + i/600; p.Attempt != want {
				t.Fatalf("entry %d is attempt %d, want %d", i, p.Attempt, want)
			}
		}
		if len(seen) != len(pending) {
			t.Fatalf("%d messages among %d", len(seen), len(pending))
		}
	}
}

// TestCountsSurviveARestart restarts a server from its append-only file: what Redis itself counts of a group's reading is wrong then.
func TestCountsSurviveARestart(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t, testkit.RedisAppendOnly())
	s := newStore(t, server.Client(t))
	topic := newTopic(t, s, func(t *queue.Topic) { t.Groups = groups("a", "b") })
	for range 3 {
		drafts := make([]queue.Draft, 200)
		if _, err := s.Produce(t.Context(), topic, 0, drafts); err != nil {
			t.Fatal(err)
		}
	}
	lease, err := s.Acquire(t.Context(), topic.Ref(0), "a", "holder", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	entries, _, err := s.Fetch(t.Context(), topic, lease, 0, 250)
	if err != nil {
		t.Fatal(err)
	}
	settlements := make([]queue.Settlement, 200)
	for i := range settlements {
		settlements[i] = queue.Settlement{Entry: entries[i], Verdict: queue.Ack}
	}
	if err := s.Settle(t.Context(), topic, lease, settlements); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	server.Start()
	if entries, _, err = s.Fetch(t.Context(), topic, lease, 250, 50); err != nil || len(entries) != 50 {
		t.Fatalf("%d entries: %v", len(entries), err)
	}
	if a, b := lag(t, s, topic, "a"), lag(t, s, topic, "b"); a != 300 || b != 600 {
		t.Errorf("%d and %d are unread, want 300 and 600", a, b)
	}
}
