package presence

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
)

// fleet is nodes with a hub each, over one model store and a bus with faults that tests set.
type fleet struct {
	t     *testing.T
	store *modelStore

	mu    sync.Mutex
	nodes []*fleetNode
	// cut holds the nodes whose bus carries nothing.
	cut map[int]bool
}

// fleetNode is one node of a fleet. Its store can be taken away from it alone.
type fleetNode struct {
	fleet   *fleet
	store   *modelStore
	index   int
	hub     *Hub
	handler BusHandler
	gone    bool // killed: it is not heard and its hub is stopped
}

// newFleet starts nodes, and waits until all shards are settled.
func newFleet(t *testing.T, nodes int, change func(c *Config)) *fleet {
	t.Helper()
	f := &fleet{t: t, store: newModelStore(), cut: map[int]bool{}}
	f.store.unsettled = true
	for range nodes {
		f.add(change)
	}
	f.wait(func() string {
		for _, x := range f.nodes {
			for shard := range Shards {
				if !x.hub.view.settled(shard) {
					return fmt.Sprintf("shard %d is not settled on node %d", shard, x.index)
				}
			}
		}
		return ""
	})
	return f
}

func (f *fleet) add(change func(c *Config)) *fleetNode {
	x := &fleetNode{fleet: f, store: f.store.share(), index: len(f.nodes)}
	cfg := Config{
		Store: x.store, Bus: x, Owner: x, Node: fmt.Sprintf("node%d", x.index), CacheUsers: 10_000, Workers: 2,
		Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	x.hub = NewHub(cfg)
	f.mu.Lock()
	f.nodes = append(f.nodes, x)
	f.mu.Unlock()
	if err := x.hub.Start(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = x.hub.Stop(context.Background()) })
	return x
}

// wait waits in simulated time until problem returns nothing, up to a minute.
func (f *fleet) wait(problem func() string) time.Duration {
	f.t.Helper()
	return f.waitUpTo(time.Minute, problem)
}

// waitUpTo is wait with another limit.
func (f *fleet) waitUpTo(limit time.Duration, problem func() string) time.Duration {
	f.t.Helper()
	began := time.Now()
	if !agree(limit, problem) {
		f.t.Fatal(problem())
	}
	return time.Since(began)
}

// agree waits in simulated time until problem returns nothing, and reports whether it did so within
// a limit.
func agree(limit time.Duration, problem func() string) bool {
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		synctest.Wait()
		if problem() == "" {
			return true
		}
		if time.Since(began) > limit {
			return false
		}
	}
}

// kill ends a node as kill -9 does: nothing that it holds is written any more.
func (f *fleet) kill(x *fleetNode) {
	f.mu.Lock()
	x.gone = true
	f.mu.Unlock()
	x.store.set(func(m *modelStore) { m.away = true })
	x.hub.draining.Store(true)
	_ = x.hub.Stop(context.Background())
}

// Owner implements Owner: the nodes that this one hears share the shards.
func (x *fleetNode) Owner(shard int) string {
	x.fleet.mu.Lock()
	defer x.fleet.mu.Unlock()
	var heard []int
	for _, other := range x.fleet.nodes {
		if other == x || !other.gone && !x.fleet.cut[x.index] && !x.fleet.cut[other.index] {
			heard = append(heard, other.index)
		}
	}
	return fmt.Sprintf("node%d", heard[shard%len(heard)])
}

func (x *fleetNode) Owns(shard int) bool { return x.Owner(shard) == x.hub.cfg.Node }

func (x *fleetNode) send(fn func(h BusHandler)) {
	x.fleet.mu.Lock()
	defer x.fleet.mu.Unlock()
	for _, to := range x.fleet.nodes {
		if x.gone || to.gone || to != x && (x.fleet.cut[x.index] || x.fleet.cut[to.index]) {
			continue
		}
		if h := to.handler; h.Beat != nil {
			time.AfterFunc(0, func() { fn(h) })
		}
	}
}

func (x *fleetNode) Announce(a Announcement) { x.send(func(h BusHandler) { h.Announcement(a) }) }
func (x *fleetNode) Heads(heads []ShardHead) { x.send(func(h BusHandler) { h.Heads(heads) }) }
func (x *fleetNode) Dead(node string)        { x.send(func(h BusHandler) { h.Dead(node) }) }
func (x *fleetNode) Beat(b NodeBeat)         { x.send(func(h BusHandler) { h.Beat(b) }) }
func (x *fleetNode) Listen(h BusHandler) (func(), error) {
	x.fleet.mu.Lock()
	defer x.fleet.mu.Unlock()
	x.handler = h
	return func() {}, nil
}

// device is one client's stream that makes a device online.
type device struct {
	x     *fleetNode
	s     *Stream
	login *Login
	err   error // why it was not opened
}

// connect opens a stream for a device; login is nil for a new login.
func (x *fleetNode) connect(user string, p Platform, login *Login) *device {
	d := &device{x: x}
	d.s, _, d.err = x.hub.Open(context.Background(), &OpenRequest{
		Subject: user, Platform: p, Device: fmt.Sprint("device", p), Login: login,
	})
	if d.err == nil {
		l := d.s.Login()
		d.login = &l
	}
	return d
}

// end returns the fault of the stream's end; nil while it lives.
func (d *device) end() *fault.Error {
	for {
		_, ok, err := d.s.Poll(time.Now())
		switch {
		case err == io.EOF:
			return fault.New(fault.NotFound, fault.StreamNotFound, "disconnected")
		case err != nil:
			f, _ := fault.As(err)
			return f
		case !ok:
			return nil
		}
	}
}

// lose ends the stream as a broken connection does.
func (d *device) lose() { d.x.hub.Close(d.s) }

// stored returns a problem unless the store has a state of a user.
func (f *fleet) stored(user string, want State) func() string {
	return func() string {
		if s := f.store.state(user); s != want {
			return fmt.Sprintf("the store has %v for %s, not %v", s, user, want)
		}
		return ""
	}
}

// fleetWatcher follows users on a node, and keeps every state that it was sent.
type fleetWatcher struct {
	s      *Stream
	states map[string][]State
}

func (x *fleetNode) watch(users ...string) *fleetWatcher {
	x.fleet.t.Helper()
	s, update, err := x.hub.Open(context.Background(), &OpenRequest{Subject: "watcher", Invisible: true, Watch: users})
	if err != nil {
		x.fleet.t.Fatal(err)
	}
	w := &fleetWatcher{s: s, states: map[string][]State{}}
	w.note(update.Users)
	return w
}

func (w *fleetWatcher) note(users []UserState) {
	for _, u := range users {
		w.states[u.UserID] = append(w.states[u.UserID], u.State)
	}
}

// read takes the frames that are ready, and returns the states of a user so far.
func (w *fleetWatcher) read(user string) []State {
	for {
		f, ok, err := w.s.Poll(time.Now())
		if err != nil || !ok {
			return w.states[user]
		}
		if f.Update != nil {
			w.note(f.Update.Users)
		}
	}
}

// follow reads the frames of a time as they come. States that are not read are merged.
func (w *fleetWatcher) follow(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		synctest.Wait()
		w.read("")
	}
}

// is returns a problem unless the newest state of a user is want.
func (w *fleetWatcher) is(user string, want State) func() string {
	return func() string {
		states := w.read(user)
		if len(states) == 0 || states[len(states)-1] != want {
			return fmt.Sprintf("%s is %v, not %v", user, states, want)
		}
		return ""
	}
}

// saw checks all states of a user that a watcher was sent.
func (w *fleetWatcher) saw(t *testing.T, user string, want ...State) {
	t.Helper()
	if got := w.read(user); !slices.Equal(got, want) {
		t.Errorf("the watcher saw %v of %s, not %v", got, user, want)
	}
}

var (
	onWeb   = State(0).With(Web, false)
	onIOS   = State(0).With(IOS, false)
	offline State
)
