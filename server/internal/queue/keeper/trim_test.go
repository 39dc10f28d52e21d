package keeper

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/store/redislog"
)

func TestDirtyPartitionsAreTrimmed(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2, "work", "audit")
	for p := range 2 {
		b.put(p, drafts(300, 0)...)
	}
	last := b.log(0)[299].Pos
	b.settle(0, "work", last)
	b.settle(0, "audit", b.log(0)[99].Pos)
	b.settle(1, "work", b.log(1)[99].Pos)
	b.settle(1, "audit", b.log(1)[99].Pos)
	cfg := b.config(still)
	k := b.start(cfg)
	// At once with 256 settled messages, and not before.
	k.Dirty(b.topic.Ref(1), 100)
	k.Dirty(b.topic.Ref(0), 200)
	k.Dirty(b.topic.Ref(0), 56)
	b.eventually("the settled messages are there", func() bool { return b.length(0) == 200 })
	if n := b.length(1); n != 300 {
		t.Errorf("%d messages in the other partition", n)
	}
	// What only one group has settled stays.
	b.settle(0, "audit", last)
	k.Dirty(b.topic.Ref(0), 256)
	b.eventually("the settled messages are there", func() bool { return b.length(0) == 0 })
	// A partition of an earlier topic of the name is clean.
	k.Dirty(qlog.Ref{Topic: "orders", UID: "other", Partition: 1}, 256)
	k.Dirty(qlog.Ref{Topic: "nothing", UID: "other", Partition: 1}, 256)
	b.eventually("partitions are dirty that do not exist", func() bool {
		k.dirt.mu.Lock()
		defer k.dirt.mu.Unlock()
		return len(k.dirt.refs) == 1
	})
}

func TestDirtyPartitionsAreTrimmedAfterAWhile(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, "work")
	b.put(0, drafts(3, 0)...)
	b.settle(0, "work", b.log(0)[2].Pos)
	cfg := b.config(still)
	cfg.times.dirty = 100 * time.Millisecond
	store := &failing{Store: b.store, fails: 2}
	cfg.Store = store
	k := b.start(cfg)
	k.Dirty(b.topic.Ref(0), 3)
	b.eventually("the settled messages are there", func() bool { return b.length(0) == 0 })
	b.eventually("the partition is dirty still", func() bool {
		k.dirt.mu.Lock()
		defer k.dirt.mu.Unlock()
		return len(k.dirt.refs) == 0
	})
}

// failing is a store whose first trims fail.
type failing struct {
	*redislog.Store

	mu    sync.Mutex
	fails int
}

func (f *failing) Trim(ctx context.Context, ref qlog.Ref, bounds qlog.Bounds, n int) (int, error) {
	f.mu.Lock()
	fail := f.fails > 0
	f.fails--
	f.mu.Unlock()
	if fail {
		return 0, errors.New("away")
	}
	return f.Store.Trim(ctx, ref, bounds, n)
}

// Messages that retention keeps are removed when they are old enough, although nobody says
// anything.
func TestRetentionByAge(t *testing.T) {
	t.Parallel()
	b := newBench(t, 4, "work")
	b.update(func(t *qlog.Topic) { t.RetainAge = 500 * time.Millisecond })
	for p := range 4 {
		b.put(p, drafts(10, 0)...)
		b.settle(p, "work", b.log(p)[9].Pos)
	}
	cfg := b.config(still)
	cfg.times.round = 100 * time.Millisecond
	k := b.start(cfg)
	k.Dirty(b.topic.Ref(0), 256)
	if n := b.length(3); n != 10 {
		t.Errorf("%d messages are kept", n)
	}
	for p := range 4 {
		b.eventually("old messages are there", func() bool { return b.length(p) == 0 })
	}
}

// A sweep must leave exactly the messages that some group has not settled.
func TestSweep(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			groups := []string{"audit", "mail", "work"}[:2+seed%2]
			b := newBench(t, 1, groups...)
			const n = 2500
			for range n / 500 {
				b.put(0, drafts(500, 0)...)
			}
			all := b.log(0)
			needed := map[qlog.ID]bool{}
			for _, g := range groups {
				sent := all[n-1-random.IntN(400)].Pos
				var open []int64
				for _, e := range all {
					switch {
					case e.Ord > sent.Ord:
						needed[e.ID] = true
					case e.Ord == 3 || random.IntN(20) == 0:
						needed[e.ID] = true
						open = append(open, e.Ord)
					}
				}
				b.settle(0, g, sent, open...)
			}
			cfg := b.config(still)
			k := New(cfg)
			b.check(k.lookAt(t.Context(), "orders", 0, map[place]int64{}))
			var wrong []qlog.Pos
			left := b.log(0)
			for _, e := range left {
				if !needed[e.ID] {
					wrong = append(wrong, e.Pos)
				}
				delete(needed, e.ID)
			}
			if len(needed) > 0 || len(wrong) > 0 {
				t.Errorf("%d messages are missing, %d should not be there", len(needed), len(wrong))
			}
			if len(left) == n {
				t.Error("nothing was removed")
			}
		})
	}
}

func TestWhatASweepKeeps(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, "audit", "work")
	b.put(0, drafts(500, 0)...)
	b.put(0, drafts(500, 0)...)
	all := b.log(0)
	for _, g := range []string{"audit", "work"} {
		b.settle(0, g, all[999].Pos, 1)
	}
	b.update(func(t *qlog.Topic) { t.RetainAge = time.Hour })
	k := New(b.config(still))
	look := func(want int) {
		t.Helper()
		b.check(k.lookAt(t.Context(), "orders", 0, map[place]int64{}))
		if n := b.length(0); n != want {
			t.Errorf("%d messages in the log, want %d", n, want)
		}
	}
	look(1000) // retention
	b.update(func(t *qlog.Topic) { t.RetainAge = 0 })
	stale := &regrouped{Store: b.store, b: b}
	cfg := b.config(still)
	cfg.Store = stale
	k = New(cfg)
	look(1000) // a group that begins at the start of the log came while the sets were read
	b.check(b.store.RemoveGroup(t.Context(), qlog.GroupRef{Ref: b.topic.Ref(0), Group: "late"}))
	stale.done = true
	look(1)
	look(1)
}

// regrouped is a store in which a group is created between the reading of the marks and the sweep.
type regrouped struct {
	*redislog.Store

	b    *bench
	done bool
}

func (r *regrouped) Open(ctx context.Context, ref qlog.GroupRef, cursor uint64) (map[int64]string, uint64, error) {
	if !r.done {
		r.done = true
		if err := r.MakeGroup(ctx, qlog.GroupRef{Ref: ref.Ref, Group: "late"}, qlog.Start{}); err != nil {
			return nil, 0, err
		}
	}
	return r.Store.Open(ctx, ref, cursor)
}

// trims counts the calls of Trim.
type trims struct {
	*redislog.Store

	n int
}

func (s *trims) Trim(ctx context.Context, ref qlog.Ref, bounds qlog.Bounds, n int) (int, error) {
	s.n++
	return s.Store.Trim(ctx, ref, bounds, n)
}

// A log in which nothing happens is trimmed in one round of five.
func TestLogsThatDoNotChange(t *testing.T) {
	t.Parallel()
	b := newBench(t, 3, "work")
	b.put(0, drafts(5, 0)...)
	b.put(1, drafts(5, 0)...)
	store := &trims{Store: b.store}
	cfg := b.config(still)
	cfg.Store = store
	k, lengths := New(cfg), map[place]int64{}
	for turn, want := range []int{2, 0, 1, 0, 0, 2, 0} {
		if turn == 2 {
			b.put(1, drafts(1, 0)...)
		}
		store.n = 0
		b.check(k.lookAt(t.Context(), "orders", turn, lengths))
		if store.n != want {
			t.Errorf("look %d: %d partitions were trimmed, want %d", turn, store.n, want)
		}
	}
}

func TestPinned(t *testing.T) {
	t.Parallel()
	group := func(cursor, sent, open int64) qlog.GroupMarks {
		return qlog.GroupMarks{Cursor: qlog.Pos{ID: qlog.ID(cursor), Ord: cursor}, Sent: qlog.Pos{ID: qlog.ID(sent), Ord: sent}, Open: open}
	}
	const last = 5000
	for _, c := range []struct {
		name     string
		m        qlog.Marks
		from, to int64
		worth    bool
	}{
		{"one group", qlog.Marks{Ord: last, Length: 5000, Groups: []qlog.GroupMarks{group(0, 4000, 1)}}, 0, 0, false},
		{"pinned", qlog.Marks{Ord: last, Length: 5000, Groups: []qlog.GroupMarks{group(0, 4000, 1), group(4500, 4500, 0)}}, 0, 4000, true},
		{"all open", qlog.Marks{Ord: last, Length: 5000, Groups: []qlog.GroupMarks{group(0, 4000, 3800), group(0, 4500, 0)}}, 0, 4000, false},
		{"swept before", qlog.Marks{Ord: last, Length: 1001, Groups: []qlog.GroupMarks{group(0, 4000, 1), group(0, 4000, 1)}}, 0, 4000, false},
		{"nothing open", qlog.Marks{Ord: last, Length: 1000, Groups: []qlog.GroupMarks{group(4000, 4000, 0), group(5000, 5000, 0)}}, 4000, 4000, false},
	} {
		from, to, worth := pinned(c.m)
		if from.Ord != c.from || to != c.to || worth != c.worth {
			t.Errorf("%s: from %d to %d, %v", c.name, from.Ord, to, worth)
		}
	}
}

// ager is what will remove dead letters.
type ager struct {
	mu    sync.Mutex
	left  map[int]int
	calls []time.Duration
}

func (a *ager) Age(_ context.Context, ref qlog.Ref, maxAge time.Duration, _ int64, n int) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	removed := min(n, a.left[ref.Partition])
	a.left[ref.Partition] -= removed
	a.calls = append(a.calls, maxAge)
	return removed, nil
}

func TestDeadLettersAge(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2, "work")
	b.update(func(t *qlog.Topic) { t.DeadLetterAge = 24 * time.Hour })
	letters := &ager{left: map[int]int{0: 2500, 1: 10}}
	cfg := b.config(still)
	cfg.times.round = 10 * time.Millisecond
	cfg.Ager = letters
	b.start(cfg)
	b.eventually("dead letters are left", func() bool {
		letters.mu.Lock()
		defer letters.mu.Unlock()
		return letters.left[0]+letters.left[1] == 0
	})
	letters.mu.Lock()
	defer letters.mu.Unlock()
	if slices.ContainsFunc(letters.calls, func(d time.Duration) bool { return d != 24*time.Hour }) {
		t.Errorf("ages %v", letters.calls)
	}
}
