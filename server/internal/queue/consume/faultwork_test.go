package consume_test

import (
	"context"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// TestCutOff: a node that reaches neither the store nor the other nodes tells its consumers that their
// contact is not confirmed, before another node delivers what they have to others.
func TestCutOff(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 2, func(g *qlog.Group) { g.ResumeGrace = 3 * time.Second })
	b.put(0, 1, 0)
	s := b.open(b.nodes[0], 100)
	d := next(t, s)
	other := b.open(b.nodes[1], 1)
	waitUntil(t, func() bool { return b.nodes[1].fleet.MayTakeOver() })
	b.net.setCut("node0", "node1", true)
	b.nodes[0].store.away.Store(true)
	gone := make(chan time.Time, 1)
	go func() {
		if f := next(t, other); f.MessageID == d.MessageID {
			gone <- time.Now()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for contact := time.Now(); ; {
		f, err := s.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if f.Heartbeat == nil {
			continue
		}
		if at := time.Now().Add(-f.Heartbeat.Unconfirmed); at.After(contact) {
			contact = at
		}
		select {
		case at := <-gone:
			if given := at.Sub(contact); given < 3*time.Second {
				t.Errorf("the message was given to another consumer %v after the last confirmed contact", given)
			}
			b.net.setCut("node0", "node1", false)
			b.nodes[0].store.away.Store(false)
			return
		default:
		}
	}
}

// TestStoreAway: while the store is away for longer than beats and grace last, a consumer keeps what it
// has of another node's partition, also through a new stream, and nothing comes again.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	const grace = 2 * time.Second
	b := newBench(t, 1, 2, func(g *qlog.Group) { g.ResumeGrace = grace })
	b.open(b.nodes[0], 100) // so that the lease stays there
	s := b.open(b.nodes[1], 1)
	waitUntil(t, func() bool { return b.nodes[1].fleet.MayTakeOver() })
	b.put(0, 101, 0) // one more than the first consumer takes
	held := nextAll(t, s)
	for _, n := range b.nodes {
		n.store.away.Store(true)
	}
	outage := time.Now().Add(8 * time.Second)
	for resumes := int64(1); time.Now().Before(outage); resumes++ {
		b.nodes[1].Close(s)
		s, _ = b.resume(b.nodes[1], s.ID(), resumes, held)
		ctx, cancel := context.WithTimeout(t.Context(), grace)
		best := time.Hour
		for {
			f, err := s.Next(ctx)
			if err != nil {
				break
			}
			if f.Heartbeat == nil {
				t.Fatalf("frame %+v", f)
			}
			best = min(best, f.Heartbeat.Unconfirmed)
		}
		cancel()
		if best > grace/2 {
			t.Fatalf("stream %d: the contact was confirmed %v ago", resumes, best)
		}
	}
	for _, n := range b.nodes {
		n.store.away.Store(false)
	}
	b.settleSoon(b.nodes[1], s, held)
}

func waitUntil(t *testing.T, fn func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !fn() {
		if time.Now().After(deadline) {
			t.Fatal("not within 20 s")
		}
		<-time.After(5 * time.Millisecond)
	}
}

// TestLostState: a group whose state the store lost is served again soon, and what the holder remembers
// as acked does not come again.
func TestLostState(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 1, nil)
	s := b.open(b.nodes[0], 1)
	b.put(0, 1, 0)
	acked := next(t, s)
	b.settle(b.nodes[0], s, verdicts([]consume.Delivery{acked}, dispatch.Ack))
	if n, err := b.redis.Del(t.Context(), b.prefix+"stream:topic:{orders:0}:g:work").Result(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	b.put(0, 1, 0)
	began := time.Now()
	if d := next(t, s); d.MessageID == acked.MessageID {
		t.Errorf("%s came again", d.MessageID)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("the message came after %v", took)
	}
}

// TestDrainIsQuick: when a node stops, its partitions are served by another one at once.
func TestDrainIsQuick(t *testing.T) {
	t.Parallel()
	b := newBench(t, 4, 2, nil)
	b.open(b.nodes[0], 2)
	s := b.open(b.nodes[1], 2)
	worker, stop := context.WithCancel(t.Context())
	defer stop()
	served := make(chan int, 100)
	go func() {
		for {
			f, err := s.Next(worker)
			if err != nil {
				return
			}
			for _, d := range f.Deliveries {
				served <- d.Partition
			}
			_, _ = b.nodes[1].Settle(worker, "alice", s.ID(), verdicts(f.Deliveries, dispatch.Ack))
		}
	}()
	waitUntil(t, func() bool { // both have leases
		holders := map[string]bool{}
		for p := range 4 {
			holder, _, err := b.store.Lease(t.Context(), qlog.GroupRef{Ref: b.topic.Ref(p), Group: "work"})
			if err != nil {
				t.Fatal(err)
			}
			holders[holder] = true
		}
		return len(holders) == 2 && !holders[""]
	})
	began := time.Now()
	go b.stopNode(b.nodes[0], false)
	waitUntil(t, func() bool {
		for p := range 4 {
			holder, _, err := b.store.Lease(t.Context(), qlog.GroupRef{Ref: b.topic.Ref(p), Group: "work"})
			if err != nil || holder != "node1" {
				return false
			}
		}
		return true
	})
	took := time.Since(began)
	if t.Logf("the leases moved within %v", took); took > 1500*time.Millisecond {
		t.Error("that is too long")
	}
	for p := range 4 {
		b.put(p, 1, 0)
	}
	got := map[int]bool{}
	waitUntil(t, func() bool {
		select {
		case p := <-served:
			got[p] = true
		default:
		}
		return len(got) == 4
	})
}

// TestReadsAreRarer: while the log cannot be read, it is tried more and more rarely.
func TestReadsAreRarer(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 1, nil)
	s := b.open(b.nodes[0], 1)
	b.put(0, 1, 0)
	next(t, s) // the lease is held
	store := b.nodes[0].store
	b.put(0, 1, 0)
	store.away.Store(true)
	began := time.Now()
	waitUntil(t, func() bool { return store.reads.Load() > 7 })
	if took := time.Since(began); took < time.Second {
		t.Errorf("the log was read eight times within %v", took)
	}
	store.away.Store(false)
}

// TestReleaseAfterCut: what a consumer never got goes to another one also if the holder cannot be reached
// for longer than a call would look for it.
func TestReleaseAfterCut(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 2, func(g *qlog.Group) { g.ResumeGrace, g.AckTimeout = time.Minute, 2*time.Minute })
	s := b.open(b.nodes[0], 1)
	b.open(b.nodes[0], 100)
	far := b.open(b.nodes[1], 1)
	waitUntil(t, func() bool { return b.nodes[1].fleet.Alive("node0") })
	b.put(0, 102, 0)
	first := next(t, s)
	waitUntil(t, func() bool {
		list := b.nodes[1].HandleSessions(t.Context(), "orders", "work")
		return len(list) == 1 && len(list[0].Held) == 1
	})
	b.net.setCut("node0", "node1", true)
	b.nodes[1].Close(far) // which never read its delivery
	<-time.After(7 * time.Second)
	b.net.setCut("node0", "node1", false)
	b.settle(b.nodes[0], s, verdicts([]consume.Delivery{first}, dispatch.Ack))
	next(t, s)
}
