package presence

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

func TestOnlineWhileConnected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, nil)
		w := f.nodes[1].watch("ada")
		d := f.nodes[0].connect("ada", Web, nil)
		if took := f.wait(w.is("ada", onWeb)); took > 50*time.Millisecond {
			t.Errorf("online after %v", took)
		}
		d.lose()
		took := f.wait(w.is("ada", offline))
		if took < time.Second || took > 1050*time.Millisecond {
			t.Errorf("offline after %v", took)
		}
		w.saw(t, "ada", offline, onWeb, offline)
	})
}

func TestReturnIsNeverShownOffline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, nil)
		w := f.nodes[2].watch("ada")
		d := f.nodes[0].connect("ada", Web, nil)
		f.wait(w.is("ada", onWeb))
		for i := range 10 {
			d.lose()
			time.Sleep(800 * time.Millisecond)
			d = f.nodes[i%2].connect("ada", Web, d.login)
		}
		time.Sleep(5 * time.Second)
		w.saw(t, "ada", offline, onWeb)
	})
}

func TestDisconnectIsOfflineAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, nil)
		w := f.nodes[1].watch("ada")
		d := f.nodes[0].connect("ada", Web, nil)
		f.wait(w.is("ada", onWeb))
		d.disconnects(w)
		if end := d.end(); end == nil || end.Msg != "disconnected" {
			t.Errorf("the stream ends with %v", end)
		}
	})
}

// TestDisconnectAfterLoss checks that a user who leaves on purpose after the connection was lost
// has no time to return.
func TestDisconnectAfterLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, nil)
		w := f.nodes[1].watch("ada")
		d := f.nodes[0].connect("ada", Web, nil)
		f.wait(w.is("ada", onWeb))
		d.lose()
		time.Sleep(100 * time.Millisecond)
		if err := f.nodes[0].hub.Disconnect(t.Context(), d.s.ID(), "bob"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		w.saw(t, "ada", offline, onWeb) // the stream is not bob's
		d.disconnects(w)
	})
}

// disconnects disconnects the device of ada, whom w sees go offline at once.
func (d *device) disconnects(w *fleetWatcher) {
	f := d.x.fleet
	f.t.Helper()
	if err := d.x.hub.Disconnect(f.t.Context(), d.s.ID(), "ada"); err != nil {
		f.t.Fatal(err)
	}
	if took := f.wait(w.is("ada", offline)); took > 50*time.Millisecond {
		f.t.Errorf("offline after %v", took)
	}
}

// TestDisconnectAfterReturn loses a device's connection and disconnects it when it has returned.
// The user is offline at once, although the time to return is not over.
func TestDisconnectAfterReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, nil)
		w := f.nodes[1].watch("ada")
		d := f.nodes[0].connect("ada", Web, nil)
		f.wait(w.is("ada", onWeb))
		d.lose()
		time.Sleep(100 * time.Millisecond)
		d = f.nodes[0].connect("ada", Web, d.login)
		time.Sleep(100 * time.Millisecond)
		d.disconnects(w)
	})
}

// TestPlatformsOfTwoNodes checks that two connections on one platform are one platform until the
// last one ends, on whichever node.
func TestPlatformsOfTwoNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, nil)
		w := f.nodes[2].watch("ada")
		a := f.nodes[0].connect("ada", Web, nil)
		f.wait(w.is("ada", onWeb))
		b := f.nodes[1].connect("ada", Web, nil)
		c := f.nodes[1].connect("ada", IOS, nil)
		f.wait(w.is("ada", onWeb|onIOS))
		a.lose()
		time.Sleep(3 * time.Second)
		c.lose()
		f.wait(w.is("ada", onWeb))
		b.lose()
		f.wait(w.is("ada", offline))
		w.saw(t, "ada", offline, onWeb, onWeb|onIOS, onWeb, offline)
	})
}

func TestBackground(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, nil)
		w := f.nodes[1].watch("ada")
		x := f.nodes[0]
		d, other := x.connect("ada", Web, nil), f.nodes[1].connect("ada", Web, nil)
		f.wait(w.is("ada", onWeb))
		set := func(x *fleetNode, d *device, background bool) {
			if err := x.hub.SetBackground(t.Context(), d.s.ID(), "ada", background); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
			w.read("ada")
		}
		set(x, d, true) // the other device is not
		set(f.nodes[1], other, true)
		set(f.nodes[1], other, false)
		w.saw(t, "ada", offline, onWeb, State(0).With(Web, true), onWeb)
	})
}

// TestBurstIsMerged checks that changes are merged while the store is slow, that none is lost, and
// that a step has at most 100 users.
func TestBurstIsMerged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, func(c *Config) { c.MaxPerSubject = 1000; c.OfflineAfter = -1 })
		x := f.nodes[0]
		f.store.set(func(m *modelStore) {
			m.delay = func(method string) time.Duration {
				if method == "set" {
					return 500 * time.Millisecond
				}
				return 0
			}
			m.calls["set"] = 0
		})
		w := x.watch("user7")
		var last []*device
		for range 20 {
			for _, d := range last {
				d.lose()
			}
			last = last[:0]
			for i := range 600 {
				last = append(last, x.connect(fmt.Sprintf("user%d", i), Web, nil))
			}
			time.Sleep(20 * time.Millisecond)
		}
		f.wait(w.is("user7", onWeb))
		f.wait(func() string {
			for i := range 600 {
				if s := f.store.state(fmt.Sprintf("user%d", i)); s != onWeb {
					return fmt.Sprintf("user%d is %v", i, s)
				}
			}
			return ""
		})
		f.store.mu.Lock()
		defer f.store.mu.Unlock()
		if n := f.store.calls["set"]; n > 12 {
			t.Errorf("12,000 connections took %d round trips of 500 ms", n)
		}
	})
}

// TestLateStepIsRepaired checks that a step that takes effect after its caller gave it up does not
// last.
func TestLateStepIsRepaired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, nil)
		w := f.nodes[1].watch("ada")
		first := true
		f.store.set(func(m *modelStore) {
			m.late = func(method string) time.Duration {
				if method == "set" && first {
					first = false
					return 2100 * time.Millisecond // in time, and after the next step
				}
				return 0
			}
		})
		d := f.nodes[0].connect("ada", Web, nil)
		time.Sleep(10 * time.Millisecond)
		if err := f.nodes[0].hub.Disconnect(t.Context(), d.s.ID(), "ada"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if s := f.store.state("ada"); s != 0 {
			t.Errorf("the store has %v", s)
		}
		if got := w.read("ada"); got[len(got)-1] != offline {
			t.Errorf("the watcher saw %v", got)
		}
	})
}

// TestNodeDeath checks that the users of a killed node are offline for every watcher, once each,
// except for those who returned elsewhere.
func TestNodeDeath(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, nil)
		users := make([]string, 300)
		for i := range users {
			users[i] = fmt.Sprintf("user%d", i)
			f.nodes[0].connect(users[i], Web, nil)
		}
		w := f.nodes[2].watch(users...)
		for _, u := range users {
			f.wait(w.is(u, onWeb))
		}
		f.kill(f.nodes[0])
		time.Sleep(2 * time.Second)
		f.nodes[1].connect("user0", Web, nil)
		took := f.wait(func() string {
			for _, u := range users[1:] {
				if p := w.is(u, offline)(); p != "" {
					return p
				}
			}
			return ""
		})
		if took < time.Second || took > 4*time.Second {
			t.Errorf("offline %v after the kill", took+2*time.Second)
		}
		for _, u := range users[1:] {
			if got := w.read(u); got[len(got)-2] != onWeb || len(got) > 3 {
				t.Fatalf("%s was shown as %v", u, got)
			}
		}
		if got := w.read("user0"); got[len(got)-1] != onWeb || len(got) > 2 {
			t.Errorf("who returned was shown as %v", got)
		}
	})
}

// TestStoppedNode checks that a node that was frozen beyond its lease brings no user back who has
// left, and that those whose connections live are online again.
func TestStoppedNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, nil)
		x := f.nodes[0]
		stays, leaves := x.connect("stays", Web, nil), x.connect("leaves", Web, nil)
		w := f.nodes[1].watch("stays", "leaves")
		f.wait(w.is("leaves", onWeb))
		f.wait(w.is("stays", onWeb))
		f.set(func() { f.cut[0] = true })
		x.store.set(func(m *modelStore) { m.away = true })
		if took := f.wait(w.is("stays", offline)); took > 6*time.Second {
			t.Errorf("offline after %v", took)
		}
		leaves.lose()
		f.set(func() { f.cut[0] = false })
		x.store.set(func(m *modelStore) { m.away = false })
		f.wait(w.is("stays", onWeb))
		time.Sleep(10 * time.Second)
		if got := w.read("leaves"); got[len(got)-1] != offline || len(got) > 3 {
			t.Errorf("who left was shown as %v", got)
		}
		if end := stays.end(); end != nil && end.Reason != fault.ShuttingDown {
			t.Errorf("the stream of the node ended with %v", end)
		}
	})
}

func (f *fleet) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// TestPeersRenew checks that a node without the store, which others hear, is not declared dead, and
// that it makes its streams reconnect after 10 s. Those who do not are offline at the end of its
// lease, also in its own shards.
func TestPeersRenew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, nil)
		users := f.usersOwned()
		var devices []*device
		for _, user := range users {
			devices = append(devices, f.nodes[0].connect(user, Web, nil))
		}
		for _, user := range users {
			f.wait(f.stored(user, onWeb))
		}
		w := f.nodes[1].watch(users...)
		for _, user := range users {
			f.wait(w.is(user, onWeb))
		}
		f.nodes[0].store.set(func(m *modelStore) { m.away = true })
		lost := time.Now()
		time.Sleep(9 * time.Second)
		for i, user := range users {
			w.saw(t, user, onWeb)
			if end := devices[i].end(); end != nil {
				t.Errorf("the stream ended with %v", end)
			}
		}
		time.Sleep(3 * time.Second)
		for i, user := range users {
			w.saw(t, user, onWeb)
			if end := devices[i].end(); end == nil || end.Reason != fault.ShuttingDown {
				t.Errorf("the stream ended with %v", end)
			}
			devices[i].lose()
		}
		back := f.nodes[0].connect("zoe", Web, nil)
		time.Sleep(1500 * time.Millisecond)
		if end := back.end(); end == nil || end.Reason != fault.ShuttingDown {
			t.Errorf("the stream of a user who returned to the node ended with %v", end)
		}
		back.lose()
		// The lease ends 15 s after the store was lost. The node owns shards until it returns.
		for _, user := range users {
			f.wait(w.is(user, offline))
			w.saw(t, user, onWeb, offline)
		}
		if took := time.Since(lost); took > 22*time.Second {
			t.Errorf("offline after %v", took)
		}
	})
}

// usersOwned returns a user of a shard of each node.
func (f *fleet) usersOwned() []string {
	var users []string
	for _, x := range f.nodes {
		for i := 0; ; i++ {
			user := fmt.Sprintf("ada%d", i)
			if x.Owns(ShardOf(user)) {
				users = append(users, user)
				break
			}
		}
	}
	return users
}

// TestStoreAway checks that nobody is declared dead while no node reaches the store.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, nil)
		f.nodes[0].connect("ada", Web, nil)
		bob := f.nodes[1].connect("bob", Web, nil)
		w := f.nodes[2].watch("ada", "bob")
		f.wait(w.is("ada", onWeb))
		f.wait(w.is("bob", onWeb))
		f.store.set(func(m *modelStore) { m.down = true })
		time.Sleep(30 * time.Second)
		bob.lose()
		time.Sleep(5 * time.Second)
		f.store.set(func(m *modelStore) { m.down = false })
		if took := f.wait(w.is("bob", offline)); took > 5*time.Second {
			t.Errorf("level %v after the store's return", took)
		}
		w.saw(t, "ada", onWeb)
		w.saw(t, "bob", onWeb, offline)
	})
}

// TestFlush checks that a flush of the store shows nobody offline who is not, that those who leave
// meanwhile are, and that nothing is announced twice.
func TestFlush(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, nil)
		users := make([]string, 200)
		devices := make([]*device, 200)
		for i := range users {
			users[i] = fmt.Sprintf("user%d", i)
			devices[i] = f.nodes[i%3].connect(users[i], Web, nil)
		}
		w := f.nodes[2].watch(users...)
		for _, u := range users {
			f.wait(w.is(u, onWeb))
		}
		devices[7].lose()
		time.Sleep(990 * time.Millisecond)
		f.store.flush()
		if took := f.wait(w.is("user7", offline)); took > 5*time.Second {
			t.Errorf("offline after %v", took)
		}
		f.wait(func() string {
			for i, u := range users {
				if i != 7 && f.store.state(u) != onWeb {
					return u + " is not restored"
				}
			}
			return ""
		})
		w.follow(10 * time.Second)
		for i, u := range users {
			if i == 7 {
				continue
			}
			for _, s := range w.read(u)[1:] {
				if s != onWeb {
					t.Fatalf("%s was shown as %v", u, w.read(u))
				}
			}
		}
		got, err := f.nodes[0].hub.Get(t.Context(), users[:100])
		if err != nil {
			t.Fatal(err)
		}
		for i, u := range got {
			if (u.State == onWeb) == (i == 7) {
				t.Errorf("%s is %v", u.UserID, u.State)
			}
		}
	})
}

// TestLostTail checks that users who were lost by a failover are written again.
func TestLostTail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, nil)
		w := f.nodes[1].watch("ada")
		failover := f.store.snapshot(ShardOf("ada"))
		f.nodes[0].connect("ada", Web, nil)
		f.wait(w.is("ada", onWeb))
		time.Sleep(1500 * time.Millisecond)
		failover()
		w.follow(10 * time.Second)
		f.wait(f.stored("ada", onWeb))
		w.saw(t, "ada", offline, onWeb)
	})
}

// TestDrain checks that a node that shuts down ends nobody's presence who returns elsewhere.
func TestDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, nil)
		returns, leaves := f.nodes[0].connect("returns", Web, nil), f.nodes[0].connect("leaves", Web, nil)
		w := f.nodes[1].watch("returns", "leaves")
		f.wait(w.is("returns", onWeb))
		f.wait(w.is("leaves", onWeb))
		drained := make(chan error)
		go func() { drained <- f.nodes[0].hub.Drain(context.Background(), time.Second) }()
		synctest.Wait()
		for _, d := range []*device{returns, leaves} {
			if end := d.end(); end == nil || end.Reason != fault.ShuttingDown {
				t.Errorf("ended with %v", end)
			}
			d.lose()
		}
		if err := <-drained; err != nil {
			t.Error(err)
		}
		f.kill(f.nodes[0])
		f.nodes[1].connect("returns", Web, returns.login)
		if took := f.wait(w.is("leaves", offline)); took > 6*time.Second {
			t.Errorf("offline after %v", took)
		}
		w.saw(t, "returns", onWeb)
	})
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	for policy, kicks := range map[Policy][]Platform{
		PolicyAll: nil, PolicyPlatform: {Web}, PolicyClass: {Web}, PolicySingle: {Web, IOS, Windows},
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 2, func(c *Config) { c.Policy = policy })
				devices := map[Platform]*device{}
				if policy == PolicySingle {
					for _, p := range kicks {
						devices[p] = f.nodes[0].connect(fmt.Sprint("ada", p), p, nil)
						time.Sleep(time.Millisecond)
						f.nodes[1].connect(fmt.Sprint("ada", p), Web, nil)
					}
				} else {
					for _, p := range []Platform{Web, IOS, Windows} {
						devices[p] = f.nodes[0].connect("ada", p, nil)
					}
					time.Sleep(time.Millisecond)
					f.nodes[1].connect("ada", Web, nil)
				}
				time.Sleep(200 * time.Millisecond)
				for p, d := range devices {
					end := d.end()
					kicked := end != nil && end.Reason == fault.Kicked
					want := false
					for _, k := range kicks {
						want = want || k == p
					}
					if kicked != want {
						t.Errorf("%v: the stream on %d ended with %v", policy, p, end)
					}
					if kicked && (end.Kick == nil || end.Kick.Platform != uint8(Web) || end.Kick.Cause != uint8(ByLogin)) {
						t.Errorf("kicked by %+v", end.Kick)
					}
				}
			})
		})
	}
}

// TestReconnectDoesNotWin checks that a login that was replaced cannot win by reconnecting, and
// that a reconnect replaces the old stream of its own login.
func TestReconnectDoesNotWin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, func(c *Config) { c.Policy = PolicyPlatform })
		old := f.nodes[0].connect("ada", Web, nil)
		time.Sleep(time.Second)
		fresh := f.nodes[1].connect("ada", Web, nil)
		time.Sleep(time.Second)
		again := f.nodes[1].connect("ada", Web, old.login)
		if !fault.Is(again.err, fault.Kicked) {
			t.Errorf("the replaced login connects again: %v", again.err)
		}
		if end := fresh.end(); end != nil {
			t.Errorf("the newer login ended with %v", end)
		}
		moved := f.nodes[0].connect("ada", Web, fresh.login)
		time.Sleep(time.Second)
		if end := fresh.end(); end == nil || end.Kick == nil || end.Kick.Cause != uint8(Replaced) {
			t.Errorf("the old stream of the login ended with %v", end)
		}
		if end := moved.end(); moved.err != nil || end != nil {
			t.Errorf("the reconnected stream ended with %v, %v", moved.err, end)
		}
	})
}

// TestNotAfter checks that nodes agree on when a call between them has come too late.
func TestNotAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, nil)
		a, b := f.nodes[0].hub, f.nodes[1].hub
		notAfter := a.NotAfter("ada", time.Second)
		if b.Passed("ada", notAfter) {
			t.Error("a time to come has passed")
		}
		time.Sleep(1500 * time.Millisecond)
		if !b.Passed("ada", notAfter) {
			t.Error("a time has not passed")
		}
		unstarted := NewHub(Config{Store: f.store, Bus: f.nodes[0], Owner: f.nodes[0], Node: "new"})
		if !unstarted.NotAfter("ada", time.Second).IsZero() || unstarted.Passed("ada", notAfter) {
			t.Error("a hub knows the store's time before it has read it")
		}
	})
}
