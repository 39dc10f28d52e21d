package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/testkit"
)

const ttl = time.Minute

// dumpMu guards what dump gathers from the servers of a cluster.
var dumpMu sync.Mutex

// workbench is a topic with a group g, partition 0 of which session "one" has.
type workbench struct {
	*Store

	t     *testing.T
	topic *queue.Topic
	lease queue.Lease
}

func newWorkbench(t *testing.T, client redis.UniversalClient, change func(*queue.Topic)) *workbench {
	t.Helper()
	s := newStore(t, client)
	topic := newTopic(t, s, func(topic *queue.Topic) {
		topic.Groups = []queue.Group{{Name: "g"}}
		if change != nil {
			change(topic)
		}
	})
	b := &workbench{Store: s, t: t, topic: topic}
	b.lease = b.acquire("one")
	return b
}

func strict(topic *queue.Topic) { topic.StrictOrder = true }

func (b *workbench) acquire(holder string) queue.Lease {
	b.t.Helper()
	lease, err := b.Acquire(b.t.Context(), b.topic.Ref(0), "g", holder, ttl)
	if err != nil {
		b.t.Fatal(err)
	}
	return lease
}

// supersede gives the lease to another, as if the holder had been away for too long.
func (b *workbench) supersede(holder string) (old queue.Lease) {
	b.t.Helper()
	old = b.lease
	if err := b.Free(b.t.Context(), old); err != nil {
		b.t.Fatal(err)
	}
	b.lease = b.acquire(holder)
	return old
}

// produce takes messages, each written "key=payload", or only "payload", and gives their ids.
func (b *workbench) produce(messages ...string) []string {
	b.t.Helper()
	drafts := make([]queue.Draft, len(messages))
	for i, m := range messages {
		key, payload, ok := strings.Cut(m, "=")
		if !ok {
			key, payload = "", m
		}
		drafts[i] = queue.Draft{Message: queue.Message{Key: key, Payload: []byte(payload)}}
	}
	taken, err := b.Produce(b.t.Context(), b.topic, 0, drafts)
	if err != nil {
		b.t.Fatal(err)
	}
	ids := make([]string, len(taken))
	for i := range taken {
		if taken[i].Err != nil {
			b.t.Fatal(taken[i].Err)
		}
		ids[i] = taken[i].MessageID
	}
	return ids
}

func (b *workbench) fetch(n int) []queue.Entry {
	b.t.Helper()
	entries, _, err := b.Fetch(b.t.Context(), b.topic, b.lease, markOf(b.t, b.Store, b.lease), n)
	if err != nil {
		b.t.Fatal(err)
	}
	return entries
}

// claim gives all that is pending.
func (b *workbench) claim() []queue.Entry {
	b.t.Helper()
	var all []queue.Entry
	for _, place := range []queue.Place{queue.Main, queue.Retries} {
		for after, more := (queue.EntryID{}), true; more; {
			page, err := b.Claim(b.t.Context(), b.lease, place, after, 2)
			if err != nil {
				b.t.Fatal(err)
			}
			all = append(all, page.Entries...)
			after, more = page.Next, page.More
		}
	}
	return all
}

func (b *workbench) settle(settlements ...queue.Settlement) {
	b.t.Helper()
	if err := b.Settle(b.t.Context(), b.topic, b.lease, settlements); err != nil {
		b.t.Fatal(err)
	}
}

// due moves the group's retries once so many are due. One without a delay is due within a millisecond.
func (b *workbench) due(n int) {
	b.t.Helper()
	moved := 0
	testkit.Eventually(b.t, 10*time.Second, func() error {
		did, _, err := b.Due(b.t.Context(), queue.Line{Ref: b.topic.Ref(0), Group: "g"}, n-moved)
		if moved += did; moved < n {
			return fmt.Errorf("%d of %d were due, %w", moved, n, err)
		}
		return err
	})
}

// stats gives the counts of g, and fails the test if they don't add up.
func (b *workbench) stats() queue.GroupStats {
	b.t.Helper()
	p, err := b.Stats(b.t.Context(), b.topic, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, g := range p.Groups {
		if err := balance(p, g); err != nil {
			b.t.Fatal(err)
		}
	}
	return p.Groups[0]
}

// balance checks that every message is somewhere, once.
func balance(p queue.PartitionStats, g queue.GroupStats) error {
	in := p.Produced - p.Cancelled + g.Replayed
	out := p.Delayed + g.Unread + g.Pending + g.Retrying + g.Parked + g.Acked + g.Dead + g.Trimmed + g.Skipped
	if in != out {
		return fmt.Errorf("%d came and %d are somewhere: %+v", in, out, p)
	}
	return nil
}

// told writes entries as "payload#attempt".
func told(entries []queue.Entry) string {
	texts := make([]string, len(entries))
	for i := range entries {
		texts[i] = fmt.Sprintf("%s#%d", entries[i].Payload, entries[i].Attempt)
	}
	return strings.Join(texts, " ")
}

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

// verdict ends entries alike.
func verdict(v queue.Verdict, entries ...queue.Entry) []queue.Settlement {
	settlements := make([]queue.Settlement, len(entries))
	for i := range entries {
		settlements[i] = queue.Settlement{Entry: entries[i], Verdict: v, Reason: "it failed", Code: "E1"}
	}
	return settlements
}

// dump gives all keys of the store as they are, but for how long they still live.
func (b *workbench) dump() string {
	b.t.Helper()
	var lines []string
	ctx := b.t.Context()
	prefix := b.keys.prefix
	each := func(ctx context.Context, c *redis.Client) error {
		names, err := c.Keys(ctx, prefix+"*").Result()
		for _, name := range names {
			value, dumpErr := stateOf(ctx, c, name)
			err = errors.Join(err, dumpErr)
			lines = append(lines, fmt.Sprintf("%s %x", name, value))
		}
		return err
	}
	var err error
	if cluster, ok := b.client.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
			dumpMu.Lock()
			defer dumpMu.Unlock()
			return each(ctx, c)
		})
	} else {
		err = each(ctx, b.client.(*redis.Client))
	}
	if err != nil {
		b.t.Fatal(err)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestWork(t *testing.T) {
	t.Parallel()
	eachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		b := newWorkbench(t, client, nil)
		ids := b.produce("a", "b", "c", "d", "e")
		entries := b.fetch(4)
		want(t, told(entries), "a#1 b#1 c#1 d#1")
		for i, e := range entries {
			if e.MessageID != ids[i] || e.Place != queue.Main || queue.MessageID(0, e.ID) != e.MessageID {
				t.Errorf("entry %d is %+v, want id %s", i, e, ids[i])
			}
		}
		b.settle(slices.Concat(
			verdict(queue.Ack, entries[0]), verdict(queue.Retry, entries[1]), verdict(queue.Dead, entries[2]), verdict(queue.Release, entries[3]),
		)...)
		want(t, told(b.claim()), "d#1")
		b.due(1)
		again := b.fetch(10)
		want(t, told(again), "b#2 e#1")
		if again[0].MessageID != ids[1] || again[0].Place != queue.Retries || !again[0].ProducedAt.Equal(entries[1].ProducedAt) {
			t.Errorf("the retry is %+v, it was %+v", again[0], entries[1])
		}
		b.settle(verdict(queue.Retry, again[0])...)
		b.due(1)
		third := b.fetch(10)
		want(t, told(third), "b#3")
		b.settle(verdict(queue.Dead, third...)...)
		letters, _, more, err := b.DeadLetters(t.Context(), b.topic.Ref(0), "", queue.EntryID{}, 10)
		if err != nil || more || len(letters) != 2 {
			t.Fatalf("%d dead letters, more: %t, %v", len(letters), more, err)
		}
		if l := letters[0]; l.MessageID != ids[1] || l.Attempts != 3 || l.Reason != "it failed" || l.Code != "E1" || l.Group != "g" ||
			string(l.Payload) != "b" || !l.ProducedAt.Equal(entries[1].ProducedAt) || time.Since(l.DeadAt).Abs() > time.Minute {
			t.Errorf("dead letter %+v", l)
		}
		if s := b.stats(); s.Acked != 1 || s.Dead != 2 || s.Retried != 2 || s.Pending != 2 || !s.Held {
			t.Errorf("stats %+v", s)
		}
	})
}

// TestTraceparent has the trace of the call that produced a message come with it, as a header.
func TestTraceparent(t *testing.T) {
	t.Parallel()
	b := newWorkbench(t, oneClient(t), nil)
	drafts := []queue.Draft{{Message: queue.Message{Traceparent: "00-x"}}, {Message: queue.Message{Headers: map[string]string{"a": "b"}}}, {}}
	if _, err := b.Produce(t.Context(), b.topic, 0, drafts); err != nil {
		t.Fatal(err)
	}
	for i, e := range b.fetch(3) {
		if want := []map[string]string{{"traceparent": "00-x"}, {"a": "b"}, nil}[i]; !maps.Equal(e.Headers, want) {
			t.Errorf("headers %v, want %v", e.Headers, want)
		}
	}
}
