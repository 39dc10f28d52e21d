package presence

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// settledNet returns a network whose shards are settled and level.
func settledNet(t *testing.T, nodes int, change func(c *Config)) *network {
	t.Helper()
	n := newNetwork(t, nodes, change)
	time.Sleep(3 * time.Second)
	return n
}

// writeTo writes a change in the store without an announcement, and returns its entry.
func (n *network) writeTo(userID string, state State) Announcement {
	n.t.Helper()
	shard := ShardOf(userID)
	h := n.store.Heads(n.t.Context(), []int{shard})[0]
	r := n.store.Set(n.t.Context(), []SetCall{{
		Shard: shard, Node: "other.1", Epoch: h.Epoch, NotAfter: n.store.now().Add(time.Hour), Users: []Part{{UserID: userID, State: state}},
	}})[0]
	if r.Outcome != Done || r.Changes[0].Seq == 0 {
		n.t.Fatalf("write %s: %+v", userID, r)
	}
	return Announcement{Shard: shard, Epoch: h.Epoch, Entries: []Entry{
		{Seq: r.Changes[0].Seq, At: r.Now, UserID: userID, State: r.Changes[0].State},
	}}
}

func (w *watcher) must(add ...string) {
	w.t.Helper()
	if err := w.watch(add, nil); err != nil {
		w.t.Fatal(err)
	}
}

// expect checks the picture of a user.
func (w *watcher) expect(userID string, want State) {
	w.t.Helper()
	synctest.Wait()
	w.read()
	if u, ok := w.users[userID]; !ok || u.State != want {
		w.t.Errorf("%s is %v, %v, not %v", userID, u.State, ok, want)
	}
	for _, e := range w.errors {
		w.t.Error(e)
	}
}

func (n *network) callsOf(method string) int {
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	return n.store.calls[method]
}

func deaf(n *network) { n.lose = func(int, int) bool { return true } }

// TestOvertaking checks I3: an entry that overtakes another one is parked, and both are applied in
// order without a read of the log.
func TestOvertaking(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, nil)
		x := n.nodes[0]
		a, b := sameShard[0], sameShard[0]
		x.recordOf(ShardOf(a))
		w := x.watcher()
		w.must(a)
		first, second := n.writeTo(a, onWeb), n.writeTo(b, onIOS)
		x.v.announced(second)
		time.Sleep(raceDelay - time.Millisecond)
		w.expect(a, 0)
		x.v.announced(first)
		w.expect(a, onIOS)
		x.v.announced(second) // repeats change nothing
		x.v.announced(first)
		time.Sleep(time.Second)
		if got := x.noted(); !slices.Equal(got, []string{"1", "2"}) || n.callsOf("since") != 0 {
			t.Errorf("applied %v with %d reads of the log", got, n.callsOf("since"))
		}
		if len(w.frames) != 1 {
			t.Errorf("%d frames", len(w.frames))
		}
		// An entry that does not arrive is read.
		n.writeTo(a, onWeb)
		x.v.announced(n.writeTo(a, 0))
		time.Sleep(raceDelay)
		synctest.Wait()
		w.expect(a, 0)
		if got := x.noted(); !slices.Equal(got, []string{"3", "4"}) || n.callsOf("since") != 1 {
			t.Errorf("applied %v with %d reads of the log", got, n.callsOf("since"))
		}
	})
}

// TestHeads checks I1 and I4: an entry that nobody announced is found within a second, also by the
// nodes that do not own the shard.
func TestHeads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 2, nil)
		userID := sameShard[0]
		var watchers []*watcher
		for _, x := range n.nodes {
			w := x.watcher()
			w.must(userID)
			watchers = append(watchers, w)
		}
		n.writeTo(userID, onWeb)
		time.Sleep(headInterval + 2*raceDelay)
		for _, w := range watchers {
			w.expect(userID, onWeb)
		}
	})
}

// TestViewWithoutBus checks I16: without the bus each node reads the heads itself.
func TestViewWithoutBus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 2, nil)
		n.set(deaf)
		w := n.nodes[(ShardOf(sameShard[0])+1)%2].watcher() // not the owner
		w.must(sameShard[0])
		time.Sleep(2 * time.Second)
		for range 5 {
			for _, state := range []State{onWeb, 0} {
				n.writeTo(sameShard[0], state)
				time.Sleep(headInterval + 2*raceDelay)
				w.expect(sameShard[0], state)
			}
		}
		if w.x.v.staleness() > headSilence {
			t.Errorf("the states are %v old", w.x.v.staleness())
		}
	})
}

// TestViewReconnects checks I5: after a time without messages the log is read, and if it is
// trimmed, the watched users.
func TestViewReconnects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, nil)
		x, userID := n.nodes[0], sameShard[0]
		x.recordOf(ShardOf(userID))
		w := x.watcher()
		w.must(userID)
		for i := range 10 {
			n.writeTo(userID, onWeb.With(Platform(1+i%5), true))
		}
		x.v.reconnected()
		time.Sleep(2 * raceDelay)
		w.expect(userID, onWeb.With(Windows, true))
		if got := x.noted(); len(got) != 10 || got[9] != "10" || len(w.frames) != 1 {
			t.Errorf("applied %v in %d frames", got, len(w.frames))
		}
		n.store.set(func(m *modelStore) { m.keep = 3 })
		if _, err := x.v.get(t.Context(), []string{sameShard[1]}); err != nil { // into the cache
			t.Error(err)
		}
		for i := range 5 {
			n.writeTo(sameShard[1], []State{onIOS, onWeb}[i%2])
		}
		n.writeTo(userID, 0)
		x.v.reconnected()
		time.Sleep(2*raceDelay + 10*time.Millisecond)
		w.expect(userID, 0)
		if got := x.noted(); !slices.Equal(got, []string{"lost"}) {
			t.Errorf("after the log was trimmed: %v", got)
		}
		states, err := x.v.get(t.Context(), []string{sameShard[1]})
		if err != nil || states[0].State != onIOS {
			t.Errorf("the cache has %v, %v", states, err)
		}
	})
}

// TestReadOvertakesAnnouncement checks I6: an announcement that is older than a read loses.
func TestReadOvertakesAnnouncement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, nil)
		x, userID := n.nodes[0], sameShard[0]
		old := n.writeTo(userID, onWeb)
		n.writeTo(userID, onIOS)
		w := x.watcher()
		w.must(userID)
		w.expect(userID, onIOS)
		x.v.announced(old)
		w.expect(userID, onIOS)
		time.Sleep(2 * time.Second)
		w.expect(userID, onIOS)
		if len(w.frames) != 0 {
			t.Errorf("frames %+v", w.frames)
		}
	})
}

// TestWatchBetween checks I7: a change between a watch's read and its response is not lost, and the
// response does not undo it.
func TestWatchBetween(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, nil)
		x, userID := n.nodes[0], sameShard[0]
		n.store.set(func(m *modelStore) {
			m.delay = func(method string) time.Duration {
				if method == "get" {
					return 300 * time.Millisecond
				}
				return 0
			}
		})
		w := x.watcher()
		go func() {
			time.Sleep(100 * time.Millisecond)
			x.v.announced(n.writeTo(userID, onWeb))
		}()
		w.must(userID)
		w.expect(userID, onWeb)
		time.Sleep(3 * time.Second)
		w.expect(userID, onWeb)
		// An unwatched user that is read meanwhile is not cached with the old state.
		go func() {
			time.Sleep(100 * time.Millisecond)
			x.v.announced(n.writeTo(sameShard[1], onWeb))
		}()
		if _, err := x.v.get(t.Context(), []string{sameShard[1]}); err != nil {
			t.Error(err)
		}
		states, err := x.v.get(t.Context(), []string{sameShard[1]})
		if err != nil || states[0].State != onWeb {
			t.Errorf("read %v, %v", states, err)
		}
	})
}

// TestViewWithoutStore checks I15: without the store an answer is at most 2 s old, and streams
// learn that their states are old.
func TestViewWithoutStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, nil)
		x, userID := n.nodes[0], sameShard[0]
		w, idle := x.watcher(), x.watcher()
		w.must(userID)
		n.store.set(func(m *modelStore) { m.down = true })
		get := func() error {
			_, err := x.v.get(t.Context(), []string{userID})
			return err
		}
		time.Sleep(500 * time.Millisecond)
		if err := get(); err != nil {
			t.Errorf("after 0.5 s: %v", err)
		}
		time.Sleep(1600 * time.Millisecond)
		if err := get(); !fault.Is(err, fault.StoreUnavailable) || !errors.Is(err, errModelDown) {
			t.Errorf("after 2.1 s: %v", err)
		}
		if _, _, err := x.v.list(t.Context(), ListPosition{}, 10); !fault.Is(err, fault.StoreUnavailable) {
			t.Errorf("list: %v", err)
		}
		if w.read(); len(w.lagged) != 0 {
			t.Errorf("lagging %v after 2.1 s", w.lagged)
		}
		time.Sleep(4 * time.Second)
		if w.read(); !slices.Equal(w.lagged, []bool{true}) {
			t.Errorf("lagging %v after 6 s", w.lagged)
		}
		// A watch is answered with the states that are known, and the others follow.
		if err := idle.watch([]string{userID, sameShard[1]}, nil); err != nil || len(idle.users) != 1 {
			t.Errorf("watching %v, %v", idle.users, err)
		}
		time.Sleep(headInterval)
		idle.read()
		n.store.set(func(m *modelStore) { m.down = false })
		n.writeTo(userID, onWeb)
		time.Sleep(2*time.Second + 10*time.Millisecond)
		w.expect(userID, onWeb)
		idle.expect(userID, onWeb)
		idle.expect(sameShard[1], 0)
		if !slices.Equal(w.lagged, []bool{true, false}) || !slices.Equal(idle.lagged, []bool{true, false}) {
			t.Errorf("lagging %v and %v", w.lagged, idle.lagged)
		}
		if err := get(); err != nil {
			t.Error(err)
		}
	})
}

// TestViewAfterFailover checks I20: a log that has gone back gets a new epoch, and watchers the
// states of the store.
func TestViewAfterFailover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, nil)
		x, userID := n.nodes[0], sameShard[0]
		shard := ShardOf(userID)
		w := x.watcher()
		w.must(userID)
		back := n.store.snapshot(shard)
		x.v.announced(n.writeTo(userID, onWeb))
		w.expect(userID, onWeb)
		x.recordOf(shard)
		old := x.v.epoch(shard)
		back()
		time.Sleep(3 * time.Second)
		w.expect(userID, 0)
		if got := x.noted(); !slices.Equal(got, []string{"missing", "began"}) || x.v.epoch(shard) == old || !x.v.settled(shard) {
			t.Errorf("%v, epoch %s after %s", got, x.v.epoch(shard), old)
		}
		// The store goes back to a time when the epoch was not settled, without a change since.
		if err := n.store.Settle(t.Context(), shard, x.v.epoch(shard)); err != nil {
			t.Fatal(err)
		}
		n.store.set(func(m *modelStore) { m.shards[shard].settled = time.Time{} })
		time.Sleep(3 * time.Second)
		if got := x.noted(); !slices.Equal(got, []string{"missing", "began"}) || !x.v.settled(shard) {
			t.Errorf("%v, settled: %v", got, x.v.settled(shard))
		}
		// The log goes back and grows beyond the position before a head is read.
		back = n.store.snapshot(shard)
		x.v.announced(n.writeTo(userID, onWeb))
		back()
		time.Sleep(time.Millisecond)
		x.v.announced(n.writeTo(userID, onIOS))
		n.writeTo(userID, onWeb)
		n.writeTo(userID, onIOS)
		time.Sleep(3 * time.Second)
		w.expect(userID, onIOS)
		if got := x.noted(); !slices.Contains(got, "missing") {
			t.Errorf("%v", got)
		}
	})
}

// TestOldHeads checks I28 and I33: a head that arrives late proves nothing, and does not make the
// log look as if it had gone back.
func TestOldHeads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 2, nil)
		userID := sameShard[0]
		shard := ShardOf(userID)
		x := n.nodes[(shard+1)%2] // not the owner
		x.recordOf(shard)
		old := ShardHead{Shard: shard, Head: n.store.shards[shard].head(), Now: n.store.now()}
		n.set(func(n *network) { n.lose = func(from, to int) bool { return from != to } })
		time.Sleep(time.Millisecond)
		x.v.announced(n.writeTo(userID, onWeb))
		time.Sleep(time.Millisecond)
		x.v.saw([]ShardHead{old})
		time.Sleep(3 * time.Second)
		if got := x.noted(); !slices.Equal(got, []string{"1"}) {
			t.Errorf("events %v", got)
		}
		// The store is away from this node, and heads arrive that are 10 s old.
		n.store.set(func(m *modelStore) { m.down = true })
		late := ShardHead{Shard: shard, Head: n.store.shards[shard].head(), Now: n.store.now()}
		time.Sleep(10 * time.Second)
		x.v.saw([]ShardHead{late})
		if _, err := x.v.get(t.Context(), []string{userID}); !fault.Is(err, fault.StoreUnavailable) {
			t.Errorf("answered from states that are 10 s old: %v", err)
		}
		late.Now = n.store.now()
		x.v.saw([]ShardHead{late})
		if v := x.v; v.staleness() < 10*time.Second || v.age(&v.shards[shard], time.Now()) > time.Millisecond {
			t.Error("a fresh head proves nothing")
		}
	})
}

// TestViewAfterFlush checks that a flush of the store shows nobody offline who is not: watchers
// keep what they have, and reads of absent users wait, until the shard is settled.
func TestViewAfterFlush(t *testing.T) {
	t.Parallel()
	for _, mode := range []CacheMode{CacheLRU, CacheFull} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := settledNet(t, 1, func(c *Config) { c.Cache = mode })
				x, stays, leaves := n.nodes[0], sameShard[0], sameShard[1]
				shard := ShardOf(stays)
				w := x.watcher()
				w.must(stays, leaves)
				for _, userID := range []string{stays, leaves} {
					x.v.announced(n.writeTo(userID, onWeb))
					w.expect(userID, onWeb)
				}
				frames := len(w.frames)
				n.set(func(n *network) { n.passive = true })
				n.store.set(func(m *modelStore) { m.unsettled = true })
				n.store.flush()
				time.Sleep(2 * time.Second)
				h, err := n.store.Open(t.Context(), shard, "", "second")
				if err != nil {
					t.Fatal(err)
				}
				x.v.opened(shard, h, n.store.now())
				if x.v.epoch(shard) != "second" || x.v.settled(shard) {
					t.Errorf("epoch %q, settled %v", x.v.epoch(shard), x.v.settled(shard))
				}
				began := time.Now()
				if _, err := x.v.get(t.Context(), []string{stays}); !fault.Is(err, fault.StoreUnavailable) || time.Since(began) != 2*time.Second {
					t.Errorf("absence is an answer after %v: %v", time.Since(began), err)
				}
				if _, _, err := x.v.list(t.Context(), ListPosition{Shard: shard}, 10); !fault.Is(err, fault.StoreUnavailable) {
					t.Errorf("list: %v", err)
				}
				time.Sleep(3 * time.Second)
				w.expect(stays, onWeb)
				w.expect(leaves, onWeb)
				call := SetCall{Shard: shard, Node: x.id, Epoch: "second", NotAfter: n.store.now(), Users: []Part{{UserID: stays, State: onWeb, Mode: Restore}}}
				if r := n.store.Set(t.Context(), []SetCall{call})[0]; r.Outcome != Done {
					t.Fatal(r)
				}
				go func() {
					time.Sleep(500 * time.Millisecond)
					_ = n.store.Settle(t.Context(), shard, "second")
				}()
				states, err := x.v.get(t.Context(), []string{leaves, stays})
				if err != nil || states[0].State != 0 || states[1].State != onWeb {
					t.Errorf("got %v, %v", states, err)
				}
				time.Sleep(2 * time.Second)
				w.expect(stays, onWeb)
				w.expect(leaves, 0)
				told := 0
				for _, f := range w.frames[frames:] {
					told += len(f.Users)
				}
				if told != 1 {
					t.Errorf("told %d states, not only that %s has left", told, leaves)
				}
			})
		})
	}
}

// TestManyEntries checks that a view that is far behind reads the log in several steps, and that
// own receives every entry in order.
func TestManyEntries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, nil)
		x, userID := n.nodes[0], sameShard[0]
		shard := ShardOf(userID)
		x.recordOf(shard)
		n.store.set(func(m *modelStore) { m.keep = 20_000 })
		const entries = 3*sinceLimit + 7
		var last Announcement
		for i := range entries {
			last = n.writeTo(userID, []State{onWeb, onIOS}[i%2])
		}
		for i := range 2000 { // more than are parked
			e := last.Entries[0]
			e.Seq = int64(i) + 1000
			x.v.announced(Announcement{Shard: shard, Epoch: last.Epoch, Entries: []Entry{e}})
		}
		if n := len(x.v.shards[shard].parked); n != maxParked {
			t.Errorf("%d entries are parked", n)
		}
		x.v.shards[shard].parked = nil
		x.v.reconnected()
		time.Sleep(2 * raceDelay)
		synctest.Wait()
		got := x.noted()
		if len(got) != entries || n.callsOf("since") < 4 {
			t.Fatalf("applied %d entries with %d reads", len(got), n.callsOf("since"))
		}
		for i, e := range got {
			if e != fmt.Sprint(i+1) {
				t.Fatalf("entry %d is %s", i+1, e)
			}
		}
	})
}
