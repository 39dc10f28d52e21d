package dispatch

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// desk drives a dispatcher whose commits are answered at once.
type desk struct {
	t    *testing.T
	d    *Dispatcher
	now  time.Time
	last qlog.Pos
	// dead and acked are how messages ended.
	dead  map[qlog.ID]qlog.DeadLetter
	acked int64
}

func newDesk(t *testing.T, cfg Config) *desk {
	t.Helper()
	d, err := New(cfg, qlog.State{Epoch: 1}, nil, nil, at(0))
	if err != nil {
		t.Fatal(err)
	}
	return &desk{t: t, d: d, now: at(0), dead: map[qlog.ID]qlog.DeadLetter{}}
}

// put appends messages without keys.
func (k *desk) put(n int) {
	k.t.Helper()
	var page []qlog.Entry
	for range n {
		k.last = qlog.Pos{ID: k.last.ID + 1, Ord: k.last.Ord + 1}
		page = append(page, qlog.Entry{Pos: k.last, MessageID: fmt.Sprint("0-", k.last.ID), Body: []byte("x"), ProducedAt: k.now})
	}
	k.d.Seen(k.last)
	k.step()
	if err := k.d.Entries(k.now, page); err != nil {
		k.t.Fatal(err)
	}
}

// step lets the dispatcher work until it has nothing to write, and returns what it sends.
func (k *desk) step() (sent []Delivery) {
	k.t.Helper()
	for {
		out := k.d.Step(k.now)
		sent = append(sent, out.Deliveries...)
		if len(out.Reread) > 0 {
			var again []qlog.Entry
			for _, p := range out.Reread {
				again = append(again, qlog.Entry{Pos: p, MessageID: fmt.Sprint("0-", p.ID), Body: []byte("x"), ProducedAt: k.now})
			}
			k.d.Reread(again)
		}
		if out.Commit == nil {
			if len(out.Reread) == 0 {
				return sent
			}
			continue
		}
		for _, l := range out.Commit.Dead {
			k.dead[l.ID] = l
		}
		k.acked += out.Commit.Add.Acked
		k.d.Committed(k.now, qlog.Committed{Last: k.last})
	}
}

// TestPoison: one message makes every worker exit that begins it, while the worker handles 16 others.
// Only that message becomes a dead letter, after its attempts, and every other one is handled.
func TestPoison(t *testing.T) {
	t.Parallel()
	const poison, messages, handlers = 5, 64, 16
	k := newDesk(t, Config{
		Group: "g", Order: OrderNone, MaxAttempts: 2, MinBackoff: time.Second, MaxBackoff: time.Second,
		AckTimeout: time.Minute, MaxRunTime: time.Hour, Random: func(n int64) int64 { return n - 1 },
	})
	k.put(messages)
	for life := range 40 {
		id := fmt.Sprint("worker-", life)
		k.d.Attach(Session{ID: id, Concurrency: handlers, MaxInFlight: handlers, MaxBytes: 1 << 20, ReportsBegun: true})
		for exited := false; !exited; {
			sent := k.step()
			if len(sent) == 0 {
				if k.acked+int64(len(k.dead)) == messages {
					break
				}
				k.now = k.now.Add(2 * time.Second) // retries become due
				if sent = k.step(); len(sent) == 0 {
					t.Fatalf("%d acked, %d dead: nothing is sent", k.acked, len(k.dead))
				}
			}
			suspects := 0
			for _, v := range sent {
				k.d.Begun(k.now, id, Mark{v.Entry.ID, v.Gen})
				exited = exited || v.Entry.ID == poison
				if v.Attempt > 1 {
					suspects++
				}
			}
			if suspects > 1 {
				t.Errorf("worker %d got %d suspects at once", life, suspects)
			}
			if exited {
				k.d.Lost(k.now, id)
				break
			}
			for _, v := range sent {
				k.d.Settle(k.now, Settlement{ID: v.Entry.ID, Gen: v.Gen, Session: id, Verdict: Ack})
			}
		}
	}
	if len(k.dead) != 1 || k.dead[poison].Attempts != 2 || k.acked != messages-1 {
		t.Errorf("%d messages were acked, and these are dead letters: %+v", k.acked, k.dead)
	}
}

// TestNeighboursOfASuspect: when a worker is lost that had a suspect in flight, the messages beside it
// are not charged.
func TestNeighboursOfASuspect(t *testing.T) {
	t.Parallel()
	k := newDesk(t, Config{
		Group: "g", Order: OrderNone, MaxAttempts: 9, MinBackoff: time.Second, MaxBackoff: time.Second,
		AckTimeout: time.Minute, MaxRunTime: time.Hour, Random: func(n int64) int64 { return n - 1 },
	})
	attempts := map[qlog.ID]int{}
	live := func(id string, n int) {
		t.Helper()
		clear(attempts)
		k.d.Attach(Session{ID: id, Concurrency: n, MaxInFlight: n, MaxBytes: 1 << 20, ReportsBegun: true})
		for _, v := range k.step() {
			attempts[v.Entry.ID] = v.Attempt
			k.d.Begun(k.now, id, Mark{v.Entry.ID, v.Gen})
		}
		k.d.Lost(k.now, id)
		k.now = k.now.Add(2 * time.Second)
	}
	k.put(1)
	live("a", 1) // message 1 is a suspect now
	k.put(1)
	live("b", 2) // lost with the suspect and message 2
	live("c", 2)
	if attempts[1] != 3 || attempts[2] != 1 {
		t.Errorf("the third worker got attempt %d of the suspect, and attempt %d of its neighbour; want 3 and 1", attempts[1], attempts[2])
	}
}

// TestOldGeneration: a session that has a message again cannot settle it with the number of its
// earlier delivery.
func TestOldGeneration(t *testing.T) {
	t.Parallel()
	k := newDesk(t, Config{Group: "g", MaxAttempts: 9, AckTimeout: time.Minute, MaxRunTime: time.Hour, Random: func(int64) int64 { return 0 }})
	k.d.Attach(Session{ID: "a", Concurrency: 1, MaxInFlight: 1, MaxBytes: 1 << 20, ReportsBegun: true})
	k.put(1)
	first := k.step()
	k.d.Settle(k.now, Settlement{ID: 1, Gen: first[0].Gen, Session: "a", Verdict: Release})
	second := k.step()
	if len(second) != 1 || second[0].Gen != 2 || second[0].Attempt != 1 {
		t.Fatalf("given back, it is delivered as %+v", second)
	}
	k.d.Settle(k.now, Settlement{ID: 1, Gen: 1, Session: "a", Verdict: Ack})
	if k.step(); k.acked != 0 {
		t.Error("an ack of the earlier delivery counts")
	}
	k.d.Settle(k.now, Settlement{ID: 1, Gen: 2, Session: "a", Verdict: Ack})
	if k.step(); k.acked != 1 {
		t.Error("an ack of the present delivery does not count")
	}
	// The message is settled now. That must not look as if its settler were not known: a caller whose
	// first try had no answer would take it as its own.
	k.d.Settle(k.now, Settlement{ID: 1, Gen: 1, Session: "a", Verdict: Ack, Token: "late"})
	if out := k.d.Step(k.now); len(out.Settled) != 1 || !errors.Is(out.Settled[0].Err, ErrLost) {
		t.Errorf("a late ack of the earlier delivery is answered with %+v", out.Settled)
	}
}

// TestUnsureRelease: a holder that took over from one that died says so in its release, as long as an entry
// waits that the other one may have delivered.
func TestUnsureRelease(t *testing.T) {
	t.Parallel()
	at := qlog.Pos{ID: 1, Ord: 1}
	for _, released := range []bool{false, true} {
		now := time.Now()
		d, err := New(Config{Group: "g", Random: func(int64) int64 { return 0 }},
			qlog.State{Epoch: 2, Sent: at, Last: at, Released: released}, map[int64]string{0: "1"}, map[qlog.ID]qlog.Row{}, now)
		if err != nil {
			t.Fatal(err)
		}
		d.Step(now)
		if err := d.Entries(now, []qlog.Entry{{Pos: at, MessageID: "0-1", Key: "k", Body: []byte("x"), ProducedAt: now}}); err != nil {
			t.Fatal(err)
		}
		d.NobodyHolds(now)
		d.Release()
		c := d.Step(now).Commit
		if c == nil || !c.Release || c.Unsure == released {
			t.Errorf("after a lease that was released, %t: %+v", released, c)
		}
	}
}
