package consume_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// TestConsume: three sessions of one node get all messages of four partitions, each once, and each is
// acknowledged.
func TestConsume(t *testing.T) {
	t.Parallel()
	b := newBench(t, 4, 1, nil)
	const each = 2000
	for p := range 4 {
		b.put(p, each, 50)
	}
	ctx, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	var (
		mu      sync.Mutex
		seen    = map[string]int{}
		workers sync.WaitGroup
	)
	for range 3 {
		s := b.open(b.nodes[0], 20)
		workers.Go(func() {
			defer b.nodes[0].Close(s)
			for {
				f, err := s.Next(ctx)
				if err != nil {
					return
				}
				mu.Lock()
				for _, d := range f.Deliveries {
					seen[d.MessageID]++
				}
				all := len(seen) == 4*each
				mu.Unlock()
				if len(f.Deliveries) > 0 {
					b.settle(b.nodes[0], s, verdicts(f.Deliveries, dispatch.Ack))
				}
				if all {
					done()
				}
			}
		})
	}
	workers.Wait()
	if len(seen) != 4*each {
		t.Fatalf("%d of %d messages were delivered", len(seen), 4*each)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was delivered %d times", id, n)
		}
	}
}

// TestConsumerLost: what a consumer had when it went away goes to another one after the grace time,
// as a second attempt, and an ack of the first one does not count.
func TestConsumerLost(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 1, nil)
	n := b.nodes[0]
	b.put(0, 1, 0)
	first := b.open(n, 1)
	d := next(t, first)
	n.Close(first)
	second := b.open(n, 1)
	again := next(t, second)
	if again.MessageID != d.MessageID || again.Attempt != 2 || again.Gen != 2 {
		t.Errorf("delivered again as %+v", again)
	}
	errs, err := n.Settle(t.Context(), "alice", first.ID(), verdicts([]consume.Delivery{d}, dispatch.Ack))
	if err != nil || errs[0] == nil {
		t.Errorf("the ack of the lost session: %v, %v", errs, err)
	}
	b.settle(n, second, verdicts([]consume.Delivery{again}, dispatch.Ack))
}

// TestLeave: what a consumer that leaves holds it may still settle, and then its stream ends; the rest
// goes to others.
func TestLeave(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 1, nil)
	n := b.nodes[0]
	first := b.open(n, 1)
	b.put(0, 2, 0)
	d := next(t, first)
	if err := n.Leave(t.Context(), "alice", first.ID()); err != nil {
		t.Fatal(err)
	}
	second := b.open(n, 1)
	if other := next(t, second); other.MessageID == d.MessageID || other.Gen != 1 {
		t.Errorf("the other consumer got %+v; the first had %v", other, d.Token)
	}
	b.settle(n, first, verdicts([]consume.Delivery{d}, dispatch.Ack))
	if _, err := first.Next(t.Context()); err == nil {
		t.Error("the stream of a session that left goes on")
	}
}

// TestNodeTakesOver: when a node ends, another one gets its leases, and the messages that nobody
// settled.
func TestNodeTakesOver(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2, 1, nil)
	b.put(0, 3, 0)
	b.put(1, 3, 0)
	s := b.open(b.nodes[0], 1)
	d := next(t, s)
	b.settle(b.nodes[0], s, verdicts([]consume.Delivery{d}, dispatch.Ack))
	if err := b.nodes[0].Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := b.nodes[0].fleet.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	other := b.start("other")
	second := b.open(other, 1)
	seen := map[string]bool{d.MessageID: true}
	for len(seen) < 6 {
		f := next(t, second)
		if f.MessageID == d.MessageID {
			t.Fatal("a message that was acknowledged is delivered again")
		}
		seen[f.MessageID] = true
		b.settle(other, second, verdicts([]consume.Delivery{f}, dispatch.Ack))
	}
}

// next returns the next delivery of a stream with one handler.
func next(t *testing.T, s *consume.Stream) consume.Delivery {
	t.Helper()
	return nextAll(t, s)[0]
}

// nextAll returns the deliveries of the next frame that has any.
func nextAll(t *testing.T, s *consume.Stream) []consume.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		f, err := s.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Deliveries) > 0 {
			return f.Deliveries
		}
	}
}

// TestSeekWhileIdle: when the group is moved back, a holder that has nothing to commit finds out that
// it lost the lease, and what was settled is delivered again.
func TestSeekWhileIdle(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 1, nil)
	n := b.nodes[0]
	b.put(0, 1, 0)
	s := b.open(n, 1)
	d := next(t, s)
	b.settle(n, s, verdicts([]consume.Delivery{d}, dispatch.Ack))
	ref := qlog.GroupRef{Ref: b.topic.Ref(0), Group: "work"}
	_, epoch, err := b.store.Lease(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	state, err := b.store.Acquire(t.Context(), ref, "", epoch)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.store.SeekGroup(t.Context(), ref, state.Epoch, qlog.Start{}); err != nil {
		t.Fatal(err)
	}
	if again := next(t, s); again.MessageID != d.MessageID {
		t.Errorf("delivered %+v", again)
	}
}

// TestUnsentBytes: a consumer that does not read gets at most 4 MiB, and the rest goes to others. When it
// reads it gets more.
func TestUnsentBytes(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 1, nil)
	open := func() *consume.Stream {
		s, _, err := b.nodes[0].Open(t.Context(), consume.OpenRequest{
			Subject: "alice", Topics: []string{"orders"}, Group: "work", Consumer: "c", Concurrency: 100, MaxInFlight: 100, MaxBytes: 1 << 30,
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	slow := open()
	const size, all = 200 << 10, 60
	for range all / 4 {
		drafts := make([]qlog.Draft, 4)
		for i := range drafts {
			drafts[i].Body = body("", strings.Repeat("x", size))
		}
		if _, err := b.store.Put(t.Context(), b.topic.Ref(0), b.topic.Bounds, qlog.Put{Drafts: drafts}); err != nil {
			t.Fatal(err)
		}
	}
	held := func() int {
		for _, s := range b.nodes[0].HandleSessions(t.Context(), "orders", "work") {
			if s.Session == consume.Digest(slow.ID()) {
				return len(s.Held)
			}
		}
		return 0
	}
	const most = 4 << 20 / size
	waitUntil(t, func() bool { return held() == most })
	other := open()
	var rest []consume.Delivery
	for len(rest) < all-most {
		rest = append(rest, nextAll(t, other)...)
	}
	if n := held(); n != most {
		t.Errorf("the slow consumer holds %d messages of 200 KiB", n)
	}
	if err := b.nodes[0].Leave(t.Context(), "alice", other.ID()); err != nil {
		t.Fatal(err)
	}
	b.settle(b.nodes[0], other, verdicts(rest, dispatch.Release))
	for got := 0; got < all; {
		got += len(nextAll(t, slow))
	}
}
