package consume_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// TestMovesWithItsLease: a session moves from a node that stops to one that the new holder of its
// delivery heard from before, while the lease moves too. Its consumer keeps the delivery, although the
// new holder's next report is that of the old node.
func TestMovesWithItsLease(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 2, func(g *qlog.Group) { g.ResumeGrace = 8 * time.Second })
	s := b.open(b.nodes[0], 1)
	b.put(0, 1, 0)
	held := nextAll(t, s)
	b.open(b.nodes[1], 1)
	last := b.start("node2")
	waitUntil(t, func() bool { return b.nodes[1].fleet.Alive("node2") })
	var moved, told atomic.Bool
	b.net.setRefuse(func(from, to string, r *consume.Report) bool {
		switch {
		case to != "node1":
		case from == "node0" && moved.Load():
			told.Store(true) // it is on its way
		case from == "node0", from == "node2" && len(r.Sessions) > 0 && !told.Load():
			return true
		}
		return false
	})
	go b.stopNode(b.nodes[0], false)
	_ = end(t, s)
	resumed, _ := b.resume(last, s.ID(), 1, held)
	waitUntil(t, func() bool {
		return len(b.nodes[0].HandleSessions(context.WithoutCancel(t.Context()), "orders", "work")) == 0
	})
	moved.Store(true)
	waitUntil(t, told.Load)
	b.settleSoon(last, resumed, held)
}

// TestResumeHere: a consumer that resumes its session on the same node keeps what it has, also if that
// node does not know at the moment who holds the lease, so that its next report does not name it.
func TestResumeHere(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 2, func(g *qlog.Group) { g.ResumeGrace = time.Minute })
	b.open(b.nodes[0], 100) // so that the lease stays there
	front := b.nodes[1]
	s := b.open(front, 1)
	waitUntil(t, func() bool { return front.fleet.Alive("node0") })
	b.put(0, 101, 0) // one more than the first consumer takes
	held := nextAll(t, s)
	var reports atomic.Int64
	b.net.setRefuse(func(from, _ string, r *consume.Report) bool {
		if from == front.name && len(r.Sessions) > 0 && r.Sessions[0].Resumes > 0 {
			reports.Add(1)
		}
		return false
	})
	// A call that does not reach the holder makes the node doubt that it is the holder, and it cannot ask
	// the store.
	front.store.away.Store(true)
	b.net.setCut("node0", "node1", true)
	b.forgetHolder(front, s, held[0])
	b.net.setCut("node0", "node1", false)
	resumed, _ := b.resume(front, s.ID(), 1, held)
	for n := int64(2); reports.Load() == 0; n++ { // none follows if the answer to Take came only now
		resumed, _ = b.resume(front, s.ID(), n, held)
		<-time.After(500 * time.Millisecond)
	}
	front.store.away.Store(false)
	b.settleSoon(front, resumed, held)
}

// TestNewNode: a node of the group that was not heard of yet is not taken for one that died long ago.
func TestNewNode(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 1, nil)
	capacity := func() int {
		all, err := b.store.Capacities(t.Context(), "orders", "work")
		if err != nil {
			t.Fatal(err)
		}
		return all["stranger"]
	}
	waitUntil(t, b.nodes[0].fleet.MayTakeOver)
	if err := b.store.SetCapacity(t.Context(), "orders", "work", "stranger", 1); err != nil {
		t.Fatal(err)
	}
	s := b.open(b.nodes[0], 1)
	b.put(0, 1, 0)
	began := time.Now()
	b.settle(b.nodes[0], s, verdicts([]consume.Delivery{next(t, s)}, dispatch.Ack)) // its leases were reviewed
	if n := capacity(); n != 1 {
		t.Errorf("after %v the capacity of the new node is %d", time.Since(began), n)
	}
	waitUntil(t, func() bool { return capacity() == 0 })
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("it was removed after %v", took)
	}
}

// TestThereAndBack: a session that moves to another node and comes back is not lost for being without
// contact with that node.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 2, nil) // the grace time is a second
	b.open(b.nodes[0], 100)     // so that the lease stays there
	s := b.open(b.nodes[0], 1)
	b.put(0, 101, 0)
	held := nextAll(t, s)
	b.resume(b.nodes[1], s.ID(), 1, held)
	_ = end(t, s)
	back, _ := b.resume(b.nodes[0], s.ID(), 2, held)
	b.stopNode(b.nodes[1], true)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	for {
		f, err := back.Next(ctx)
		if err != nil {
			break
		}
		if f.Lost != nil {
			t.Fatalf("lost %v", f.Lost)
		}
	}
	b.settleSoon(b.nodes[0], back, held)
}

// forgetHolder makes a node doubt who holds a lease: a call about a delivery does not reach the holder.
func (b *bench) forgetHolder(n *node, s *consume.Stream, d consume.Delivery) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 200*time.Millisecond)
	defer cancel()
	_, _ = n.Extend(ctx, "alice", s.ID(), consume.Extension{Tokens: []consume.Token{d.Token}})
}

// TestTakeIsNoReport: a node that a session has moved to names all that its consumer has in its first report,
// also if it asked the holder for messages before.
func TestTakeIsNoReport(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 3, func(g *qlog.Group) { g.ResumeGrace = time.Minute })
	b.open(b.nodes[0], 100) // so that the lease stays there
	front := b.nodes[2]
	s, known := b.open(b.nodes[1], 1), b.open(front, 1)
	waitUntil(t, func() bool { return front.fleet.Alive("node0") && b.nodes[1].fleet.Alive("node0") })
	b.put(0, 102, 0)
	held, other := nextAll(t, s), nextAll(t, known)
	var reported atomic.Bool
	var refuse atomic.Bool
	refuse.Store(true)
	b.net.setRefuse(func(from, to string, _ *consume.Report) bool {
		if from != "node2" || to != "node0" {
			return false
		}
		reported.Store(!refuse.Load())
		return refuse.Load()
	})
	front.store.away.Store(true)
	b.net.setCut("node0", "node2", true)
	b.forgetHolder(front, known, other[0])
	b.net.setCut("node0", "node2", false)
	resumed, _ := b.resume(front, s.ID(), 1, held)
	takes := b.net.takes.Load()
	b.put(0, 1, 0)
	waitUntil(t, func() bool { return b.net.takes.Load() > takes+1 })
	refuse.Store(false)
	waitUntil(t, reported.Load)
	front.store.away.Store(false)
	b.settleSoon(front, resumed, held)
}
