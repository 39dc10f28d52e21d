package presence

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/stream"
)

// network is nodes with a view each, over one model store and a bus with faults that tests set.
type network struct {
	t     *testing.T
	store *modelStore

	mu    sync.Mutex
	nodes []*viewNode
	// lose reports whether a message to a node is lost; delay returns how long it takes. Nil means no
	// and 0.
	lose  func(from, to int) bool
	delay func() time.Duration
	// passive is set while the nodes do not repair epochs.
	passive bool
}

// viewNode is a node with a view, and a simple writer: it writes the parts of its users until the
// store has them, and restores a shard whose epoch begins.
type viewNode struct {
	net     *network
	index   int
	id      string
	cfg     Config
	clk     *clock
	v       *view
	members *fakeMembers

	mu sync.Mutex
	// parts is what the node's connections are; dirty are those of them that the store may lack.
	parts map[string]State
	dirty map[string]bool
	// events are the calls of own, without those of shards that the test does not ask for.
	events []string
	record map[int]bool
	ctx    context.Context
}

func newNetwork(t *testing.T, nodes int, change func(c *Config)) *network {
	t.Helper()
	n := &network{t: t, store: newModelStore()}
	for i := range nodes {
		n.add(i, nodes, change)
	}
	return n
}

func (n *network) add(index, nodes int, change func(c *Config)) {
	x := &viewNode{
		net: n, index: index, id: fmt.Sprintf("node%d.1", index), clk: newClock(), parts: map[string]State{}, dirty: map[string]bool{},
		record: map[int]bool{}, members: &fakeMembers{channels: map[string][]string{}},
	}
	x.cfg = Config{
		Store: n.store, Bus: x, Owner: modOwner{index, nodes}, Node: x.id, Members: x.members, CacheUsers: 10_000,
		Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&x.cfg)
	}
	x.cfg.setDefaults()
	x.v = newView(&x.cfg, x.clk, x)
	n.mu.Lock()
	n.nodes = append(n.nodes, x)
	n.mu.Unlock()
	var base lifecycle.Base
	err := base.Start(n.t.Context(), func(_ context.Context, run *lifecycle.Run) error {
		x.ctx = run.Context()
		run.Go(x.writer)
		return x.v.start(run)
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = base.Stop(context.Background()) })
}

// send calls fn for every node that the message reaches, when it does.
func (n *network) send(from int, fn func(x *viewNode)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for to, x := range n.nodes {
		if n.lose != nil && n.lose(from, to) {
			continue
		}
		delay := time.Duration(0)
		if n.delay != nil {
			delay = n.delay()
		}
		time.AfterFunc(delay, func() { fn(x) })
	}
}

func (n *network) set(change func(n *network)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
}

type modOwner struct{ index, nodes int }

func (o modOwner) Owns(shard int) bool { return shard%o.nodes == o.index }

func (o modOwner) Owner(shard int) string { return fmt.Sprintf("node%d", shard%o.nodes) }

// The node's Bus.

func (x *viewNode) Announce(a Announcement) {
	x.net.send(x.index, func(to *viewNode) { to.v.announced(a) })
}

func (x *viewNode) Heads(heads []ShardHead) {
	x.net.send(x.index, func(to *viewNode) { to.v.saw(heads) })
}

func (x *viewNode) Beat(NodeBeat) {}
func (x *viewNode) Dead(string)   {}

func (x *viewNode) Listen(BusHandler) (func(), error) { return func() {}, nil }

// The node's own.

func (x *viewNode) notef(shard int, format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.record[shard] {
		x.events = append(x.events, fmt.Sprintf(format, args...))
	}
}

// recordOf makes x record the events of a shard.
func (x *viewNode) recordOf(shard int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.record[shard] = true
}

// noted returns the events of a shard since the last call.
func (x *viewNode) noted() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	events := x.events
	x.events = nil
	return events
}

func (x *viewNode) entryApplied(shard int, e *Entry) { x.notef(shard, "%d", e.Seq) }
func (x *viewNode) entriesLost(shard int)            { x.notef(shard, "lost") }

func (x *viewNode) epochMissing(shard int, h Head) {
	x.notef(shard, "missing")
	x.net.mu.Lock()
	passive := x.net.passive
	x.net.mu.Unlock()
	if passive {
		return
	}
	go func() {
		opened, err := x.net.store.Open(x.ctx, shard, h.Epoch, fmt.Sprintf("%s-%d", x.id, time.Now().UnixNano()))
		if err == nil {
			x.v.opened(shard, opened, x.net.store.now())
		}
	}()
}

func (x *viewNode) epochBegan(shard int, h Head) {
	x.notef(shard, "began")
	x.net.mu.Lock()
	passive := x.net.passive
	x.net.mu.Unlock()
	if !passive {
		go x.restore(shard, h.Epoch)
	}
}

// restore writes the parts of the node's users of a shard again, until they are written.
func (x *viewNode) restore(shard int, epoch string) {
	for lifecycle.Pause(x.ctx, 10*time.Millisecond) == nil && x.v.epoch(shard) == epoch {
		if x.tryRestore(shard, epoch) {
			return
		}
	}
}

func (x *viewNode) tryRestore(shard int, epoch string) bool {
	store := x.net.store
	here := map[string]State{}
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		users, next, err := store.Members(x.ctx, shard, x.id, cursor)
		if err != nil {
			return false
		}
		cursor = next
		for _, userID := range users {
			here[userID] = 0
		}
	}
	x.mu.Lock()
	for userID, state := range x.parts {
		if ShardOf(userID) == shard {
			here[userID] = state
		}
	}
	x.mu.Unlock()
	call := SetCall{Shard: shard, Node: x.id, Epoch: epoch, NotAfter: store.now().Add(time.Hour)}
	for userID, state := range here {
		call.Users = append(call.Users, Part{UserID: userID, State: state, Mode: Restore})
	}
	if store.Set(x.ctx, []SetCall{call})[0].Outcome != Done || store.Restored(x.ctx, shard, epoch, x.id) != nil {
		return false
	}
	h, nodes, err := store.RestoredNodes(x.ctx, shard)
	if err == nil && h.Epoch == epoch && len(nodes) == len(x.net.nodes) {
		err = store.Settle(x.ctx, shard, epoch)
	}
	return err == nil
}

// writer writes dirty parts.
func (x *viewNode) writer(ctx context.Context) {
	for lifecycle.Pause(ctx, 20*time.Millisecond) == nil {
		x.mu.Lock()
		dirty := slices.Collect(maps.Keys(x.dirty))
		x.mu.Unlock()
		for _, userID := range dirty {
			x.write(userID)
		}
	}
}

// write writes the part of a user once, and announces the change.
func (x *viewNode) write(userID string) {
	x.mu.Lock()
	state := x.parts[userID]
	x.mu.Unlock()
	shard := ShardOf(userID)
	part := Part{UserID: userID, State: state, Cause: Connected}
	if state == 0 && !x.v.settled(shard) {
		part.Mode = Force
	}
	epoch := x.v.epoch(shard)
	r := x.net.store.Set(x.ctx, []SetCall{{
		Shard: shard, Node: x.id, Epoch: epoch, NotAfter: x.net.store.now().Add(time.Hour), Users: []Part{part},
	}})[0]
	if r.Outcome != Done {
		return
	}
	x.mu.Lock()
	if x.parts[userID] == state {
		delete(x.dirty, userID)
	}
	x.mu.Unlock()
	if c := r.Changes[0]; c.Seq != 0 {
		a := Announcement{Shard: shard, Epoch: epoch, Entries: []Entry{
			{Seq: c.Seq, At: r.Now, UserID: userID, State: c.State, Cause: Connected},
		}}
		x.v.announced(a)
		x.Announce(a)
	}
}

// put sets the node's part of a user; the writer writes it soon.
func (x *viewNode) put(userID string, state State) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.parts[userID], x.dirty[userID] = state, true
}

// clean reports whether the store has all parts.
func (x *viewNode) clean() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.dirty) == 0
}

// watcher reads a stream and keeps the picture that a client has.
type watcher struct {
	t      *testing.T
	x      *viewNode
	s      *Stream
	users  map[string]UserState // of the stream and of answers
	told   map[string]UserState // of the stream alone
	errors []string
	lagged []bool
	frames []*Update
}

func (x *viewNode) watcher() *watcher {
	id := stream.Identity{ID: fmt.Sprintf("stream%p", new(int)), Subject: "ada"}
	return &watcher{
		t: x.net.t, x: x, s: newStream(id, 15*time.Second, false), users: map[string]UserState{}, told: map[string]UserState{},
	}
}

// watch changes the watches, and applies the answer.
func (w *watcher) watch(add, remove []string) error {
	states, err := w.x.v.watch(w.t.Context(), w.s, add, remove)
	for _, userID := range remove {
		if !slices.Contains(add, userID) && err == nil {
			delete(w.users, userID)
			delete(w.told, userID)
		}
	}
	for _, u := range states {
		if u.Revision >= w.users[u.UserID].Revision {
			w.users[u.UserID] = u
		}
	}
	return err
}

// read applies the frames that are ready, and returns the users that they have.
func (w *watcher) read() (users []UserState) {
	for {
		f, ok, err := w.s.Poll(time.Now())
		if err != nil || !ok {
			return users
		}
		if f.Update == nil {
			continue
		}
		w.frames = append(w.frames, f.Update)
		if f.Update.Lagging != nil {
			w.lagged = append(w.lagged, *f.Update.Lagging)
		}
		for _, u := range f.Update.Users {
			users = append(users, u)
			last, ok := w.told[u.UserID]
			switch {
			case ok && u.Revision <= last.Revision:
				w.errors = append(w.errors, fmt.Sprintf("the revision of %s goes from %d to %d", u.UserID, last.Revision, u.Revision))
			case ok && u.State == last.State:
				w.errors = append(w.errors, fmt.Sprintf("%s is repeated", u.UserID))
			}
			w.told[u.UserID] = u
			if u.Revision >= w.users[u.UserID].Revision {
				w.users[u.UserID] = u
			}
		}
	}
}

// differs returns how the picture differs from the store.
func (w *watcher) differs() (problems []string) {
	w.read()
	problems = append(problems, w.errors...)
	w.s.mu.Lock()
	watched := slices.Sorted(maps.Keys(w.s.users))
	w.s.mu.Unlock()
	for _, userID := range watched {
		u, ok := w.users[userID]
		if want := w.x.net.store.state(userID); !ok || u.State != want {
			problems = append(problems, fmt.Sprintf("node %d: %s is %v, %v, not %v", w.x.index, userID, u.State, ok, want))
		}
	}
	return problems
}

// fakeMembers are the members of channels.
type fakeMembers struct {
	mu       sync.Mutex
	channels map[string][]string
	reads    int
	err      error
	// hook is called after a read of members, before it returns; nil for nothing.
	hook func(read int)
}

// Members implements Members.
func (m *fakeMembers) Members(ctx context.Context, channelID, after string, limit int) (users []string, total int, err error) {
	m.mu.Lock()
	m.reads++
	if hook, read := m.hook, m.reads; hook != nil {
		defer hook(read)
	}
	defer m.mu.Unlock()
	if err := cmp.Or(ctx.Err(), m.err); err != nil {
		return nil, 0, err
	}
	members := m.channels[channelID]
	for _, userID := range members {
		if userID > after && len(users) < limit {
			users = append(users, userID)
		}
	}
	if after != "" {
		return users, 0, nil
	}
	return users, len(members), nil
}

func (m *fakeMembers) set(channelID string, users ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.channels[channelID] = slices.Sorted(slices.Values(users))
}
