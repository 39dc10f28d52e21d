package redisqueue

import (
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue"
)

// letterIDs gives the ids of all dead letters of partition 0, within their stream.
func (b *workbench) letterIDs() (ids []queue.EntryID) {
	b.t.Helper()
	for _, l := range b.letters() {
		id, err := queue.ParseEntryID(l.ID[len("0-"):])
		if err != nil {
			b.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// A dead letter that a call names more than once goes back once, and is counted once.
func TestLettersNamedTwice(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		b := newWorkbench(t, client, func(topic *queue.Topic) { topic.Partitions = 2 })
		b.produce("a", "b", "c")
		b.settle(verdict(queue.Dead, b.fetch(3)...)...)
		ids := b.letterIDs()
		twice := func(id queue.EntryID) []queue.EntryID { return slices.Repeat([]queue.EntryID{id}, 2) }
		if n, more, err := b.Replay(t.Context(), b.topic, 0, 0, "", twice(ids[2]), 2); n != 1 || more || err != nil {
			t.Errorf("%d went back, more: %t, %v", n, more, err)
		}
		want(t, told(b.fetch(10)), "a#1")
		if n, _, err := b.Replay(t.Context(), b.topic, 0, 1, "", twice(ids[1]), 2); n != 1 || err != nil {
			t.Errorf("%d went to the other partition, %v", n, err)
		}
		if n := client.XLen(t.Context(), b.keys.retry(b.topic.Ref(1), "g")).Val(); n != 1 {
			t.Errorf("%d have arrived there", n)
		}
		if n, _, err := b.Purge(t.Context(), b.topic.Ref(0), "", twice(ids[0]), 2); n != 1 || err != nil {
			t.Errorf("%d were purged, %v", n, err)
		}
		if g, err := b.Stats(t.Context(), b.topic, 0); err != nil || g.Groups[0].Replayed != 2 || g.DeadLetters != 0 {
			t.Errorf("%+v, %v", g, err)
		}
	})
}

// Who asks for none, or for fewer, gets none.
func TestNoLettersWanted(t *testing.T) {
	t.Parallel()
	b := newWorkbench(t, oneClient(t), func(topic *queue.Topic) { topic.Partitions = 2 })
	b.produce("a")
	b.settle(verdict(queue.Dead, b.fetch(1)...)...)
	before := b.dump()
	for _, n := range []int{0, -1, -1 << 31} {
		for _, to := range []int{0, 1} {
			if did, more, err := b.Replay(t.Context(), b.topic, 0, to, "", nil, n); did != 0 || more || err != nil {
				t.Errorf("replay of %d: %d, %t, %v", n, did, more, err)
			}
		}
		if did, more, err := b.Purge(t.Context(), b.topic.Ref(0), "", nil, n); did != 0 || more || err != nil {
			t.Errorf("purge of %d: %d, %t, %v", n, did, more, err)
		}
	}
	if b.dump() != before {
		t.Error("something has changed")
	}
}
