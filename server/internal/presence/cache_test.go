package presence

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// fullNet returns a network of one node with a full cache.
func fullNet(t *testing.T) (*network, *viewNode) {
	t.Helper()
	n := newNetwork(t, 1, func(c *Config) { c.Cache = CacheFull })
	return n, n.nodes[0]
}

func (x *viewNode) mustGet(userID string) State {
	x.net.t.Helper()
	states, err := x.v.get(x.net.t.Context(), []string{userID})
	if err != nil {
		x.net.t.Fatal(err)
	}
	return states[0].State
}

// TestFullCache checks that a full cache answers for users that are online and for others without
// the store, and that changes during the load are not lost.
func TestFullCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, x := fullNet(t)
		time.Sleep(3 * time.Second)
		shard, users := 7, []string(nil)
		for i := 0; len(users) < 2500; i++ {
			if userID := fmt.Sprint("user", i); ShardOf(userID) == shard {
				users = append(users, userID)
			}
		}
		call := SetCall{Shard: shard, Node: "other.1", Epoch: x.v.epoch(shard), NotAfter: n.store.now().Add(time.Hour)}
		for _, userID := range users[:2400] {
			call.Users = append(call.Users, Part{UserID: userID, State: onWeb})
		}
		n.store.Set(t.Context(), []SetCall{call})
		// Losing the log loads the cache again.
		n.store.set(func(m *modelStore) { m.shards[shard].log = nil })
		x.v.reconnected()
		n.store.set(func(m *modelStore) { m.delay = func(string) time.Duration { return 20 * time.Millisecond } })
		go func() {
			for i := range 200 { // some of them while the pages are read
				time.Sleep(time.Millisecond)
				x.v.announced(n.writeTo(users[i*12], onIOS.With(Web, false)))
				x.v.announced(n.writeTo(users[2499-i%100], []State{onIOS, 0}[i/100]))
			}
		}()
		time.Sleep(20 * time.Second)
		n.store.set(func(m *modelStore) { m.delay = nil })
		before := n.callsOf("get")
		for i, userID := range users {
			if got, want := x.mustGet(userID), n.store.state(userID); got != want {
				t.Errorf("user %d is %v, not %v", i, got, want)
			}
		}
		if n := n.callsOf("get") - before; n != 0 {
			t.Errorf("%d reads", n)
		}
		if f := &x.v.shards[shard].full; f.phase != fullServing || len(f.users) != 2400 {
			t.Errorf("phase %d with %d users", f.phase, len(f.users))
		}
		// A watch takes the state from the cache, and returns it.
		w := x.watcher()
		w.must(users[0], users[2450])
		x.v.announced(n.writeTo(users[2450], onWeb))
		w.expect(users[2450], onWeb)
		x.v.forget(w.s)
		if x.mustGet(users[2450]) != onWeb || n.callsOf("get") != before {
			t.Error("the cache does not have a state that a watch had")
		}
	})
}

// TestFullCacheFails checks that a load that fails is repeated, and that reads use the store
// meanwhile.
func TestFullCacheFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, x := fullNet(t)
		n.store.set(func(m *modelStore) {
			m.delay = func(method string) time.Duration {
				if method == "page" {
					return time.Hour // until the timeout
				}
				return 0
			}
		})
		time.Sleep(20 * time.Second)
		before := n.callsOf("get")
		if x.mustGet("a") != 0 || n.callsOf("get") == before || x.v.stats.loadFailures.Load() == 0 {
			t.Errorf("%d failed loads, %d reads", x.v.stats.loadFailures.Load(), n.callsOf("get")-before)
		}
		n.store.set(func(m *modelStore) { m.delay = nil })
		time.Sleep(time.Minute)
		before = n.callsOf("get")
		if x.mustGet("a") != 0 || n.callsOf("get") != before {
			t.Error("the cache was not loaded again")
		}
	})
}

// TestLRU checks that users who were read are answered from memory, follow the log, and are read
// again at the end of their life.
func TestLRU(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, nil)
		x, userID := n.nodes[0], sameShard[0]
		before := n.callsOf("get")
		for range 3 {
			if x.mustGet(userID) != 0 {
				t.Error("not offline")
			}
		}
		x.v.announced(n.writeTo(userID, onWeb))
		if x.mustGet(userID) != onWeb || n.callsOf("get") != before+1 {
			t.Errorf("%d reads", n.callsOf("get")-before)
		}
		w := x.watcher()
		w.must(userID)
		x.v.announced(n.writeTo(userID, onIOS))
		x.v.forget(w.s)
		if x.mustGet(userID) != onIOS || n.callsOf("get") != before+1 {
			t.Errorf("%d reads after a watch", n.callsOf("get")-before)
		}
		time.Sleep(x.cfg.TTL/2 + time.Second)
		synctest.Wait()
		if x.mustGet(userID) != onIOS || n.callsOf("get") != before+2 {
			t.Errorf("%d reads after half the TTL", n.callsOf("get")-before)
		}
	})
}

// TestList checks that users who are online during the whole listing are in exactly one page.
func TestList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settledNet(t, 1, nil)
		x := n.nodes[0]
		for i := range 700 {
			x.put(fmt.Sprint("user", i), onWeb)
		}
		time.Sleep(time.Second)
		seen := map[string]int{}
		pages := 0
		for after := (ListPosition{}); ; pages++ {
			users, next, err := x.v.list(t.Context(), after, 100)
			if err != nil || len(users) > 100 {
				t.Fatal(len(users), err)
			}
			for _, u := range users {
				seen[u.UserID]++
				if u.State != onWeb {
					t.Errorf("%+v", u)
				}
			}
			x.put(fmt.Sprint("user", 600+pages), 0) // others come and go
			x.put(fmt.Sprint("late", pages), onWeb)
			time.Sleep(100 * time.Millisecond)
			if after = next; next == (ListPosition{}) {
				break
			}
		}
		for i := range 600 {
			if n := seen[fmt.Sprint("user", i)]; n != 1 {
				t.Errorf("user %d is in %d pages", i, n)
			}
		}
		if pages < 6 {
			t.Errorf("%d pages", pages)
		}
		if _, _, err := x.v.list(t.Context(), ListPosition{Shard: Shards}, 1); err == nil {
			t.Error("a page of a shard that does not exist")
		}
	})
}
