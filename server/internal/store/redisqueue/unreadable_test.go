package redisqueue

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// garbled is how many of damaged have nothing amiss but a record that does not decode, which no script can tell.
const garbled = 2

// damaged are the fields of entries that hold no message.
var damaged = []map[string]string{
	{"d": "\xff\xff"},
	{"x": "y"},
	{"d": "", "a": "many"},
	{"d": "", "a": strings.Repeat("9", 400)},
	{"d": "", "t": "soon"},
	{"d": "", "i": "no id"},
	{"d": "", "i": ""},
	{"d": "\x0a\x01\xff"},
	{"d": "", "i": "0-99999999999999999999-1"},
}

// foul appends damaged entries to one of the streams of partition 0, as if they had been produced, and gives how many.
func (b *workbench) foul(stream string, more map[string]string) int {
	b.t.Helper()
	ref := b.topic.Ref(0)
	for _, fields := range damaged {
		all := maps.Clone(fields)
		maps.Copy(all, more)
		if err := b.client.XAdd(b.t.Context(), &redis.XAddArgs{Stream: stream, Values: all}).Err(); err != nil {
			b.t.Fatal(err)
		}
	}
	if stream == b.keys.main(ref) || stream == b.keys.retry(ref, "g") {
		if err := b.client.HIncrBy(b.t.Context(), b.keys.meta(ref), "produced", int64(len(damaged))).Err(); err != nil {
			b.t.Fatal(err)
		}
	}
	return len(damaged)
}

// setAside ends as dead letters what can't be read, as a worker does, and gives the rest and how many those were.
func (b *workbench) setAside(entries []queue.Entry) (rest []queue.Entry, n int) {
	b.t.Helper()
	for _, e := range entries {
		if e.Unreadable == nil {
			rest = append(rest, e)
			continue
		}
		n++
		if e.MessageID == "" || e.Attempt < 1 {
			b.t.Errorf("%+v", e)
		}
		b.settle(queue.Settlement{Entry: e, Verdict: queue.Dead, Reason: "it can't be read"})
	}
	return rest, n
}

// letters gives all dead letters of partition 0.
func (b *workbench) letters() []queue.DeadLetter {
	b.t.Helper()
	letters, _, _, err := b.DeadLetters(b.t.Context(), b.topic.Ref(0), "", queue.EntryID{}, 1000)
	if err != nil {
		b.t.Fatal(err)
	}
	return letters
}

// What lies in a stream and can't be read holds up nothing: it is fetched, or claimed, and becomes a dead letter, which is
// listed and counted. What lies around it comes as ever.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*queue.Topic){"": nil, "strict": strict} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newWorkbench(t, oneClient(t), change)
			ref := b.topic.Ref(0)
			b.produce("k=a")
			// In strict order those of a key must neither take it nor wait for it.
			n := b.foul(b.keys.main(ref), map[string]string{"k": "k"})
			b.produce("l=b")
			if p, err := b.Stats(t.Context(), b.topic, 0); err != nil || p.Groups[0].Unread != int64(n+2) {
				t.Errorf("%+v, %v", p, err)
			}
			// Those whose record alone is damaged look well to Redis, and so wait for their key.
			parked := 0
			if b.topic.StrictOrder {
				parked = garbled
			}
			fetched := b.fetch(100)
			if len(fetched) != n+2-parked {
				t.Fatalf("%d were fetched: %+v", len(fetched), fetched)
			}
			b.supersede("two")
			if pending, err := b.Pending(t.Context(), ref, "g", 100); err != nil || len(pending) != len(fetched) {
				t.Errorf("pending %+v, %v", pending, err)
			}
			claimed := b.claim()
			if len(claimed) != len(fetched) {
				t.Fatalf("%d were claimed", len(claimed))
			}
			good, bad := b.setAside(claimed)
			want(t, told(good), "a#2 b#2")
			b.settle(verdict(queue.Ack, good...)...)
			for range parked {
				more, m := b.setAside(b.fetch(100))
				if bad += m; len(more) != 0 {
					t.Errorf("got %s", told(more))
				}
			}
			if g := b.stats(); bad != n || g.Dead != int64(n) || g.Pending != 0 || g.Parked != 0 || g.Unread != 0 || g.Acked != 2 {
				t.Errorf("%d were set aside: %+v", bad, g)
			}
			letters := b.letters()
			if len(letters) != n {
				t.Fatalf("%d dead letters", len(letters))
			}
			for _, l := range letters {
				if l.Reason != "it can't be read" || l.MessageID == "" || l.Group != "g" || l.Attempts < 1 {
					t.Errorf("%+v", l)
				}
			}
			if l := letters[len(letters)-1]; !b.topic.StrictOrder && string(l.Payload) != "\xff\xff" {
				t.Errorf("the record's bytes are gone: %+v", l)
			}
			b.produce("k=c")
			want(t, told(b.fetch(10)), "c#1")
		})
	}
}

// A retry of what can't be read is a dead letter too: no other verdict could be read again.
func TestUnreadableIsNotRetried(t *testing.T) {
	t.Parallel()
	b := newWorkbench(t, oneClient(t), nil)
	n := b.foul(b.keys.retry(b.topic.Ref(0), "g"), nil)
	fetched := b.fetch(100)
	b.settle(verdict(queue.Retry, fetched...)...)
	// Those whose record alone is damaged are retried; where that can be told, by the one who fetches them.
	if g := b.stats(); g.Dead != int64(n-garbled) || g.Retrying != garbled || g.Pending != 0 {
		t.Errorf("%+v", g)
	}
	b.due(garbled)
	if _, m := b.setAside(b.fetch(100)); m != garbled {
		t.Errorf("%d were set aside", m)
	}
	b.stats()
}

// What waits for its time, or for its key, and is no item is moved all the same, and can't be read then.
func TestDamagedItems(t *testing.T) {
	t.Parallel()
	b := newWorkbench(t, oneClient(t), func(topic *queue.Topic) { topic.StrictOrder, topic.Partitions = true, 2 })
	ctx, ref := t.Context(), b.topic.Ref(0)
	b.produce("k=a", "k=b", "k=c", "l=d")
	taken, err := b.Schedule(ctx, b.topic, 0, []queue.Draft{message("", "later"), message("", "later too")})
	if err != nil {
		t.Fatal(err)
	}
	first := b.fetch(100)
	want(t, told(first), "a#1 d#1")
	b.settle(verdict(queue.Retry, first[1])...)
	spoil := func(key string, items int) {
		t.Helper()
		names := b.client.HKeys(ctx, key).Val()
		if len(names) < items {
			t.Fatalf("%s has %q", key, names)
		}
		if key == b.keys.delayedData(ref) {
			names = []string{taken[0].MessageID}
		}
		for _, name := range names[:items] {
			if err := b.client.HSet(ctx, key, name, "no item").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	spoil(b.keys.delayedData(ref), 1)
	spoil(b.keys.retryingData(ref, "g"), 1)
	members := b.client.ZRange(ctx, b.keys.parked(ref, "g"), 0, -1).Val()
	if err := b.client.HSet(ctx, b.keys.parkedData(ref, "g"), members[0], "").Err(); err != nil {
		t.Fatal(err)
	}
	b.due(1)
	moved := 0
	testkit.Eventually(t, 10*time.Second, func() error {
		n, _, err := b.Due(ctx, queue.Line{Ref: ref}, 2)
		if moved += n; moved < 2 {
			return errors.Join(errors.New("not due"), err)
		}
		return err
	})
	b.settle(verdict(queue.Ack, first[0])...) // b, which is damaged, is passed over; c has the key now
	good, bad := b.setAside(b.fetch(100))
	if want(t, told(good), "c#1 later too#1"); bad != 3 {
		t.Errorf("%d were set aside", bad)
	}
	b.settle(verdict(queue.Ack, good...)...)
	if g := b.stats(); g.Acked != 3 || g.Dead != 3 || g.Pending+g.Parked+g.Retrying+g.Unread != 0 {
		t.Errorf("%+v", g)
	}
	letters := b.letters()
	if len(letters) != 3 || letters[0].MessageID != taken[0].MessageID || string(letters[0].Payload) != "no item" {
		t.Errorf("%+v", letters)
	}
	// Without a record they can't be replayed, and stay until they are purged.
	for _, to := range []int{0, 1} {
		if n, _, err := b.Replay(ctx, b.topic, 0, to, "", nil, 100); n != 0 || err != nil {
			t.Errorf("%d were replayed, %v", n, err)
		}
	}
	if n, _, err := b.Purge(ctx, ref, "", nil, 100); n != 3 || err != nil {
		t.Errorf("%d were purged, %v", n, err)
	}
}

// A damaged dead letter hides no other.
func TestUnreadableLetters(t *testing.T) {
	t.Parallel()
	b := newWorkbench(t, oneClient(t), func(topic *queue.Topic) { topic.Partitions = 2 })
	b.produce("a", "b")
	entries := b.fetch(2)
	b.settle(verdict(queue.Dead, entries[0])...)
	n := b.foul(b.keys.deadLetters(b.topic.Ref(0)), map[string]string{"g": "g", "r": "\xff"})
	n += b.foul(b.keys.deadLetters(b.topic.Ref(0)), nil)
	b.settle(verdict(queue.Dead, entries[1])...)
	letters := b.letters()
	if len(letters) != n+2 || string(letters[0].Payload) != "b" || string(letters[n+1].Payload) != "a" {
		t.Fatalf("%d dead letters: %+v", len(letters), letters)
	}
	if l := letters[n]; l.Reason != "\uFFFD" || string(l.Payload) != "\xff\xff" || l.Group != "g" {
		t.Errorf("%+v", l)
	}
	if l := letters[1]; l.Reason != unreadableLetter && l.Reason != "" {
		t.Errorf("%+v", l)
	}
	for _, to := range []int{1, 0} {
		if _, _, err := b.Replay(t.Context(), b.topic, 0, to, "", nil, 100); err != nil {
			t.Error(err)
		}
	}
	want(t, told(b.fetch(10)), "")
	if got, _, err := b.Purge(t.Context(), b.topic.Ref(0), "", nil, 100); got != int64(n) || err != nil {
		t.Errorf("%d were purged, %v", got, err)
	}
}
