package consume_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// stopNode stops a node as the end of its process does: gracefully, or by its death.
func (b *bench) stopNode(n *node, dies bool) {
	b.t.Helper()
	ctx := context.WithoutCancel(b.t.Context())
	if dies {
		b.net.remove(n.name)
		stopped, cancel := context.WithCancel(ctx)
		cancel()
		ctx = stopped
	}
	if err := n.Stop(ctx); err != nil {
		b.t.Error(err)
	}
	if err := n.fleet.Stop(context.WithoutCancel(b.t.Context())); err != nil {
		b.t.Error(err)
	}
	b.net.remove(n.name)
}

// TestSurplus: workers of all nodes have work although one node holds the only partition, and their
// acknowledgements count, whatever node they come to.
func TestSurplus(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 3, nil)
	var streams []*consume.Stream
	for i := range 6 {
		streams = append(streams, b.open(b.nodes[i%3], 2))
	}
	b.put(0, 12, 0)
	seen, got := map[string]bool{}, make([][]consume.Delivery, len(streams))
	for i, s := range streams {
		for len(got[i]) < 2 {
			got[i] = append(got[i], nextAll(t, s)...)
		}
		for _, d := range got[i] {
			if seen[d.MessageID] {
				t.Fatalf("%s was delivered twice", d.MessageID)
			}
			seen[d.MessageID] = true
		}
	}
	for i, s := range streams {
		b.settle(b.nodes[(i+1)%3], s, verdicts(got[i], dispatch.Ack))
	}
	if len(seen) != 12 {
		t.Errorf("%d of 12 messages were delivered", len(seen))
	}
}

// TestSurplusRuns: a fleet works a log off, each message once, in the order of each key.
func TestSurplusRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t, 3, 3, nil)
	const each = 700
	for p := range 3 {
		b.put(p, each, 20)
	}
	var (
		mu   sync.Mutex
		last = map[string]qlog.ID{}
		got  = map[string]int{}
		done = make(chan struct{})
	)
	var workers sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range 9 {
		node := b.nodes[i%3]
		s := b.open(node, 1+i%4)
		workers.Go(func() {
			for {
				f, err := s.Next(ctx)
				if err != nil {
					return
				}
				if f.Lost != nil {
					t.Errorf("lost %v", f.Lost)
				}
				for _, d := range f.Deliveries {
					mu.Lock()
					key := fmt.Sprint(d.Partition, keyOf(d.Body))
					if d.ID < last[key] {
						t.Errorf("%s comes after %d of its key", d.MessageID, last[key])
					}
					last[key] = d.ID
					got[d.MessageID]++
					all := len(got) == 3*each
					mu.Unlock()
					b.settle(node, s, verdicts([]consume.Delivery{d}, dispatch.Ack))
					if all {
						close(done)
					}
				}
			}
		})
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
	cancel()
	workers.Wait()
	for id, n := range got {
		if n != 1 {
			t.Errorf("%s was delivered %d times", id, n)
		}
	}
	if len(got) != 3*each {
		t.Errorf("%d of %d messages were delivered", len(got), 3*each)
	}
}

// keyOf returns the key of a body that the function body made.
func keyOf(body []byte) string {
	if body[0] != 4<<3|2 {
		return ""
	}
	return string(body[2 : 2+body[1]])
}

// TestResumeElsewhere: a consumer whose node ends keeps what it has on another node, and its ack counts.
// Nothing comes again.
func TestResumeElsewhere(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprint("dies=", dies), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 2, 2, func(g *qlog.Group) { g.ResumeGrace = 8 * time.Second })
			b.put(0, 1, 0)
			b.put(1, 1, 0)
			s := b.open(b.nodes[0], 4)
			other := b.open(b.nodes[1], 1)
			held := []consume.Delivery{next(t, s)}
			b.stopNode(b.nodes[0], dies)
			resumed, started := b.resume(b.nodes[1], s.ID(), 1, held)
			if len(started.Lost) > 0 {
				t.Fatalf("lost %v", started.Lost)
			}
			b.settleSoon(b.nodes[1], resumed, held)
			// Of the two messages the other one comes, to either, and nothing else does.
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			var mu sync.Mutex
			var readers sync.WaitGroup
			count := 0
			for _, st := range []*consume.Stream{resumed, other} {
				readers.Go(func() {
					for {
						f, err := st.Next(ctx)
						if err != nil {
							return
						}
						if f.Lost != nil {
							t.Errorf("lost %v", f.Lost)
						}
						for _, d := range f.Deliveries {
							if d.MessageID == held[0].MessageID {
								t.Errorf("%s came again", d.MessageID)
							}
							mu.Lock()
							if count++; count == 1 {
								time.AfterFunc(time.Second, cancel) // nothing may follow
							}
							mu.Unlock()
						}
					}
				})
			}
			readers.Wait()
			if count != 1 {
				t.Errorf("%d other deliveries", count)
			}
		})
	}
}

// TestResumeIsConfirmed: a consumer that resumes learns at once whether the holder of its delivery
// knows of it.
func TestResumeIsConfirmed(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprint("cut=", cut), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1, 2, func(g *qlog.Group) { g.ResumeGrace = time.Minute })
			b.put(0, 1, 0)
			s := b.open(b.nodes[0], 1)
			held := nextAll(t, s)
			b.open(b.nodes[0], 100) // so that the lease stays there
			b.net.setCut("node0", "node1", cut)
			resumed, started := b.resume(b.nodes[1], s.ID(), 1, held)
			ctx, cancel := context.WithTimeout(t.Context(), started.Heartbeat/4)
			defer cancel()
			least := time.Hour
			for least > time.Second {
				f, err := resumed.Next(ctx)
				if err != nil {
					break
				}
				if f.Heartbeat == nil {
					t.Fatalf("frame %+v", f)
				}
				least = min(least, f.Heartbeat.Unconfirmed)
			}
			if cut && least < time.Hour || !cut && least > time.Second {
				t.Errorf("the contact is confirmed as of %v ago", least)
			}
		})
	}
}

// resume continues a session on a node.
func (b *bench) resume(n *node, id string, resumes int64, held []consume.Delivery) (*consume.Stream, consume.Started) {
	b.t.Helper()
	r := &consume.Resume{SessionID: id, Resumes: resumes}
	for _, d := range held {
		r.Held = append(r.Held, consume.HeldDelivery{Token: d.Token, Begun: true})
	}
	s, started, err := n.Open(b.t.Context(), consume.OpenRequest{
		Subject: "alice", Topics: []string{"orders"}, Group: "work", Consumer: "c", Concurrency: 4, MaxInFlight: 4,
		MaxBytes: 1 << 20, Resume: r,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return s, started
}

// settleSoon acknowledges deliveries, and repeats that while no holder answers.
func (b *bench) settleSoon(n *node, s *consume.Stream, ds []consume.Delivery) {
	b.t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for {
		errs, err := n.Settle(b.t.Context(), "alice", s.ID(), verdicts(ds, dispatch.Ack))
		if err != nil {
			b.t.Fatal(err)
		}
		again := false
		for i, err := range errs {
			if fault.Is(err, fault.StoreUnavailable) && time.Now().Before(deadline) {
				again = true
			} else if err != nil {
				b.t.Fatalf("ack of %v: %v", ds[i].Token, err)
			}
		}
		if !again {
			return
		}
	}
}

// TestSuperseded: of two streams of a session the later one has it, on whatever node.
func TestSuperseded(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 2, nil)
	b.put(0, 1, 0)
	first := b.open(b.nodes[0], 1)
	d := next(t, first)
	second, _ := b.resume(b.nodes[1], first.ID(), 1, []consume.Delivery{d})
	if err := end(t, first); !fault.Is(err, fault.SessionLost) {
		t.Errorf("the earlier stream ended with %v", err)
	}
	b.settleSoon(b.nodes[1], second, []consume.Delivery{d})
	if _, _, err := b.nodes[1].Open(t.Context(), consume.OpenRequest{
		Subject: "alice", Topics: []string{"orders"}, Group: "work", Consumer: "c", Concurrency: 1, MaxInFlight: 1, MaxBytes: 1,
		Resume: &consume.Resume{SessionID: first.ID(), Resumes: 1},
	}); !fault.Is(err, fault.SessionLost) {
		t.Errorf("a stream with the same number: %v", err)
	}
}

// end returns how a stream ends.
func end(t *testing.T, s *consume.Stream) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		if _, err := s.Next(ctx); err != nil {
			return err
		}
	}
}

// TestReceive: messages can be received in one call and settled on another node; what is not settled
// comes again after the ack timeout.
func TestReceive(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2, 2, nil)
	b.put(0, 3, 0)
	b.put(1, 3, 0)
	got := map[string]int{}
	unsettled, again := "", false
	deadline := time.Now().Add(30 * time.Second)
	for i := 0; (len(got) < 6 || !again) && time.Now().Before(deadline); i++ {
		r, err := b.nodes[i%2].Receive(t.Context(), consume.ReceiveRequest{
			Subject: "alice", Topic: "orders", Group: "work", Consumer: "curl", Max: 2, Wait: 5 * time.Second, AckTimeout: time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range r.Deliveries {
			if got[d.MessageID]++; unsettled == "" {
				unsettled = d.MessageID
				continue
			}
			again = again || d.MessageID == unsettled && d.Attempt == 2
			errs, err := b.nodes[(i+1)%2].Settle(t.Context(), "alice", r.SessionID, verdicts([]consume.Delivery{d}, dispatch.Ack))
			if err != nil || errs[0] != nil {
				t.Errorf("ack: %v %v", errs, err)
			}
		}
	}
	if len(got) != 6 || !again {
		t.Errorf("received %v; the one that was not settled came again: %v", got, again)
	}
	for id, n := range got {
		if n != 1 && id != unsettled || n > 2 {
			t.Errorf("%s was received %d times", id, n)
		}
	}
}

// TestCut: while two nodes that live cannot reach each other, nothing is given to others, and the consumer
// learns that its contact is not confirmed.
func TestCut(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 2, nil)
	var streams []*consume.Stream
	for _, n := range b.nodes {
		streams = append(streams, b.open(n, 1))
	}
	b.put(0, 2, 0)
	held := [][]consume.Delivery{{next(t, streams[0])}, {next(t, streams[1])}}
	b.net.setCut("node0", "node1", true)
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	var worst time.Duration
	for _, s := range streams {
		for ctx.Err() == nil && worst < 4*time.Second {
			f, err := s.Next(ctx)
			switch {
			case err != nil:
			case f.Heartbeat != nil:
				worst = max(worst, f.Heartbeat.Unconfirmed)
			default:
				t.Errorf("frame %+v", f)
			}
			if worst == 0 && f.Heartbeat != nil && s == streams[0] && time.Until(deadlineOf(ctx)) < 3*time.Second {
				break // this one is with the holder
			}
		}
	}
	if worst < 2*time.Second {
		t.Errorf("the contact was confirmed %v ago, as the consumers were told", worst)
	}
	b.net.setCut("node0", "node1", false)
	for i, s := range streams {
		b.settleSoon(b.nodes[i], s, held[i])
	}
}

func deadlineOf(ctx context.Context) time.Time {
	at, _ := ctx.Deadline()
	return at
}

// TestExclusive: each partition goes to one session, the partitions are spread evenly, and every
// session is told what it has.
func TestExclusive(t *testing.T) {
	t.Parallel()
	b := newBench(t, 4, 1, func(g *qlog.Group) { g.Mode = qlog.Exclusive })
	first := b.open(b.nodes[0], 1)
	if got := assignment(t, first, 4); got != 4 {
		t.Fatalf("a single session has %d partitions", got)
	}
	second := b.open(b.nodes[0], 1)
	if a, c := assignment(t, first, 2), assignment(t, second, 2); a != 2 || c != 2 {
		t.Errorf("two sessions have %d and %d partitions", a, c)
	}
	for p := range 4 {
		b.put(p, 1, 0)
	}
	for _, s := range []*consume.Stream{first, second, first, second} {
		b.settle(b.nodes[0], s, verdicts([]consume.Delivery{next(t, s)}, dispatch.Ack))
	}
}

// assignment reads a stream until its session has so many partitions.
func assignment(t *testing.T, s *consume.Stream, want int) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		f, err := s.Next(ctx)
		if err != nil {
			return n
		}
		if f.Assignment != nil {
			if n = len(f.Assignment.Partitions); n == want {
				return n
			}
		}
	}
}

// TestCancel: a message that no handler began is cancelled, wherever its lease is; one that runs is
// not.
func TestCancel(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 2, nil)
	b.put(0, 2, 0)
	s := b.open(b.nodes[0], 1)
	d := next(t, s)
	entries, err := b.store.Read(t.Context(), b.topic.Ref(0), 0, 10)
	if err != nil || len(entries) != 2 {
		t.Fatal(entries, err)
	}
	ids := []qlog.ID{entries[0].ID, entries[1].ID, 7}
	errs, err := b.nodes[1].Cancel(t.Context(), b.topic, 0, ids)
	if err != nil || !fault.Is(errs[0], fault.MessageRunning) || errs[1] != nil || !fault.Is(errs[2], fault.MessageNotFound) {
		t.Fatalf("cancelled with %v, %v", errs, err)
	}
	b.settle(b.nodes[0], s, verdicts([]consume.Delivery{d}, dispatch.Ack))
	errs, err = b.nodes[1].Cancel(t.Context(), b.topic, 0, ids[:1])
	if err != nil || !fault.Is(errs[0], fault.MessageNotFound) {
		t.Errorf("a settled message: %v, %v", errs, err)
	}
}
