package redispresence

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/parleyhq/parley/server/internal/presence"
)

// The values that the model draws from. Few of each, so that steps meet.
var (
	modelUsers  = []string{"u1", "u2", "u3", "{p8}:*", "presence:{p1}:user:x"}
	modelNodes  = []string{"n1", "n2", "n3"}
	modelStates = []string{"", "", "8f", "8b", "1f", "1b8f", "1f2b8b"}
	modelSlots  = []string{"8", "1"}
)

// modelPart is a node's part of a user.
type modelPart struct {
	state  presence.State
	expiry time.Time
}

// slotKey names a slot of a user.
type slotKey struct{ user, slot string }

// model is the store in Go. Its steps are made on Redis too, and must have the same results.
type model struct {
	*bundle

	head     presence.Head
	log      []presence.Entry // the newest 20
	users    map[string]map[string]modelPart
	online   map[string]bool
	members  map[string]map[string]bool
	fences   map[string]time.Time
	restored map[string]bool
	logins   map[slotKey]presence.Winner
	// past are the newest logins of each slot that were made, as calls and as results. A flush does
	// not end connections, so it keeps them.
	past map[slotKey][]presence.Winner
	// lastEpoch is the epoch that a flush or another epoch ended.
	lastEpoch string
	// heard is zero if there was no beat.
	heard       time.Time
	alive, dead map[string]time.Time

	connections int
}

func newModel(b *bundle) *model {
	m := &model{bundle: b, past: map[slotKey][]presence.Winner{}}
	m.clear()
	m.begun(b.epoch)
	return m
}

// clear forgets everything, as a flush does.
func (m *model) clear() {
	m.lastEpoch = cmp.Or(m.head.Epoch, m.lastEpoch, "none")
	m.head, m.log, m.heard = presence.Head{}, nil, time.Time{}
	m.users, m.online, m.members = map[string]map[string]modelPart{}, map[string]bool{}, map[string]map[string]bool{}
	for _, u := range modelUsers {
		m.users[u] = map[string]modelPart{}
	}
	for _, n := range modelNodes {
		m.members[n] = map[string]bool{}
	}
	m.fences, m.restored, m.logins = map[string]time.Time{}, map[string]bool{}, map[slotKey]presence.Winner{}
	m.alive, m.dead = map[string]time.Time{}, map[string]time.Time{}
}

// begun is what a new epoch changes.
func (m *model) begun(epoch string) {
	m.lastEpoch = cmp.Or(m.head.Epoch, m.lastEpoch)
	m.head = presence.Head{Epoch: epoch, Opened: m.now}
	m.log = nil
	clear(m.restored)
}

// append logs an entry and returns its position.
func (m *model) append(e presence.Entry) int64 {
	m.head.Seq++
	e.Seq, e.At = m.head.Seq, m.now
	m.head.LastAt = m.now
	m.log = append(m.log, e)
	m.log = m.log[max(0, len(m.log)-20):]
	return e.Seq
}

// state returns the union of a user's parts, all of them or those that have not expired.
func (m *model) state(user string, all bool) (s presence.State) {
	for _, p := range m.users[user] {
		if all || p.expiry.After(m.now) {
			for platform, background := range p.state.All {
				s = s.With(platform, background)
			}
		}
	}
	return s
}

// admit returns what becomes of a step.
func (m *model) admit(node, epoch string, notAfter time.Time, sweep bool) presence.Outcome {
	_, fenced := m.fences[node]
	switch {
	case m.now.After(notAfter):
		return presence.Late
	case fenced && !sweep:
		return presence.Fenced
	case epoch != m.head.Epoch:
		return presence.OtherEpoch
	}
	return presence.Done
}

// apply is presence_set.
func (m *model) apply(c presence.SetCall) presence.SetResult {
	want := presence.SetResult{Outcome: m.admit(c.Node, c.Epoch, c.NotAfter, c.Sweep), Now: m.now}
	if want.Outcome != presence.Done {
		return want
	}
	for _, u := range c.Users {
		before := m.state(u.UserID, true).Online() || m.online[u.UserID]
		old := m.state(u.UserID, true)
		delete(m.users[u.UserID], c.Node)
		delete(m.members[c.Node], u.UserID)
		maps.DeleteFunc(m.users[u.UserID], func(_ string, p modelPart) bool { return !p.expiry.After(m.now) })
		if u.State.Online() {
			m.users[u.UserID][c.Node] = modelPart{u.State, m.now.Add(ttl)}
			m.members[c.Node][u.UserID] = true
		}
		state := m.state(u.UserID, true)
		changed := state != old || before && !state.Online()
		delete(m.online, u.UserID)
		if state.Online() {
			m.online[u.UserID] = true
		}
		change := presence.SetChange{State: state}
		silent := u.Mode == presence.Restore && !m.head.Settled()
		if changed && !silent || u.Mode == presence.Force && !state.Online() {
			change.Seq = m.append(presence.Entry{UserID: u.UserID, State: state, Cause: u.Cause})
		}
		want.Changes = append(want.Changes, change)
	}
	want.Seq, want.LastAt = m.head.Seq, m.head.LastAt
	return want
}

func drawNotAfter(t *rapid.T, now time.Time) time.Time {
	return now.Add(rapid.SampledFrom([]time.Duration{time.Second, time.Second, time.Second, 0, -time.Millisecond}).Draw(t, "not after"))
}

func (m *model) setSome(t *rapid.T) {
	c := presence.SetCall{
		Shard: shard, Node: rapid.SampledFrom(modelNodes).Draw(t, "node"), NotAfter: drawNotAfter(t, m.now),
		Epoch: m.drawEpoch(t), Sweep: rapid.IntRange(0, 5).Draw(t, "sweep") == 0,
	}
	for _, u := range rapid.SliceOfNDistinct(rapid.SampledFrom(modelUsers), 1, 4, rapid.ID).Draw(t, "users") {
		p := presence.Part{
			UserID: u, Mode: presence.Mode(rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "mode")),
			Cause: presence.Cause(rapid.IntRange(1, 3).Draw(t, "cause")),
		}
		if !c.Sweep {
			p.State = st(rapid.SampledFrom(modelStates).Draw(t, "state"))
		}
		c.Users = append(c.Users, p)
	}
	for range rapid.IntRange(1, 2).Draw(t, "times") { // a lost reply
		got := m.try(c)
		if want := m.apply(c); !same(got, want) {
			t.Fatalf("%+v\nis %+v\nwant %+v", c, got, want)
		}
	}
}

func (m *model) beatSome(t *rapid.T) {
	node := rapid.SampledFrom(modelNodes).Draw(t, "node")
	beat := presence.Beat{Node: node, TTL: lease}
	for _, peer := range rapid.SliceOfNDistinct(rapid.SampledFrom(append(modelNodes, "unknown")), 0, 3, rapid.ID).Draw(t, "heard") {
		if peer != node {
			beat.Heard = append(beat.Heard, presence.Heard{Node: peer, Age: time.Duration(rapid.IntRange(0, 5000).Draw(t, "age")) * time.Millisecond})
		}
	}
	for range rapid.IntRange(1, 2).Draw(t, "times") {
		got, err := m.Beat(t.Context(), beat)
		if err != nil {
			t.Fatal(err)
		}
		m.applyBeat(beat)
		want := presence.BeatResult{Now: m.now, Alive: sorted(m.alive), Dead: sorted(m.dead)}
		if !slices.Equal(got.Alive, want.Alive) || !slices.Equal(got.Dead, want.Dead) || !got.Now.Equal(want.Now) {
			t.Fatalf("%+v\nis %+v\nwant %+v", beat, got, want)
		}
	}
}

// applyBeat is presence_beat.
func (m *model) applyBeat(beat presence.Beat) {
	if _, dead := m.dead[beat.Node]; dead {
		return
	}
	latest := m.now.Add(lease)
	away := !m.heard.IsZero() && m.now.Sub(m.heard) > gap(lease)
	for id, end := range m.alive {
		if away || end.After(latest) {
			m.alive[id] = latest
		}
	}
	for _, h := range beat.Heard {
		if end, ok := m.alive[h.Node]; ok && latest.Add(-h.Age).After(end) {
			m.alive[h.Node] = latest.Add(-h.Age)
		}
	}
	m.alive[beat.Node] = latest
	for id, end := range m.alive {
		if !end.After(m.now) {
			delete(m.alive, id)
			m.dead[id] = m.now
		}
	}
	for id, at := range m.dead {
		switch {
		case away:
			m.dead[id] = m.now
		case m.now.Sub(at) >= keepDead:
			delete(m.dead, id)
		}
	}
	m.heard = m.now
}

func (m *model) fenceSome(t *rapid.T) {
	node := rapid.SampledFrom(modelNodes).Draw(t, "node")
	if err := m.Fence(t.Context(), shard, node); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(m.fences, func(_ string, at time.Time) bool { return m.now.Sub(at) >= keepDead })
	if _, fenced := m.fences[node]; !fenced {
		m.fences[node] = m.now
	}
}

func (m *model) moveSome(t *rapid.T) {
	m.move(rapid.SampledFrom([]time.Duration{
		time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 10 * time.Minute, ttl, -time.Second, 2 * time.Hour,
	}).Draw(t, "by"))
}

// drawEpoch returns the current epoch, the one before it, or one that never was. If there is none,
// it returns one of the others.
func (m *model) drawEpoch(t *rapid.T) string {
	current := cmp.Or(m.head.Epoch, m.lastEpoch)
	return rapid.SampledFrom([]string{current, current, current, m.lastEpoch, "other"}).Draw(t, "epoch")
}

// open opens an epoch after another one, or empty for none, once or twice.
func (m *model) open(t *rapid.T, old string) {
	m.epochs++
	epoch := fmt.Sprint("epoch", m.epochs)
	for range rapid.IntRange(1, 2).Draw(t, "times") {
		if old == m.head.Epoch {
			m.begun(epoch)
		}
		if got, err := m.Open(t.Context(), shard, old, epoch); err != nil || got != m.head {
			t.Fatalf("open %s after %s: %+v, want %+v, %v", epoch, old, got, m.head, err)
		}
	}
}

func (m *model) openSome(t *rapid.T) {
	m.open(t, rapid.SampledFrom([]string{m.head.Epoch, m.lastEpoch, "", "other"}).Draw(t, "old"))
}

func (m *model) openFirst(t *rapid.T) {
	if m.head.Epoch != "" {
		t.Skip("the shard has an epoch")
	}
	m.open(t, "")
}

func (m *model) restoreSome(t *rapid.T) {
	epoch, node := m.drawEpoch(t), rapid.SampledFrom(modelNodes).Draw(t, "node")
	if err := m.Restored(t.Context(), shard, epoch, node); err != nil {
		t.Fatal(err)
	}
	if epoch == m.head.Epoch && !m.head.Settled() {
		m.restored[node] = true
	}
}

func (m *model) settleSome(t *rapid.T) {
	epoch := m.drawEpoch(t)
	if err := m.Settle(t.Context(), shard, epoch); err != nil {
		t.Fatal(err)
	}
	if epoch == m.head.Epoch && !m.head.Settled() {
		m.head.SettledAt = m.now
	}
}

// expireKey removes the key of a user whose parts have all expired, as Redis does.
func (m *model) expireKey(t *rapid.T) {
	user := rapid.SampledFrom(modelUsers).Draw(t, "user")
	if m.state(user, false).Online() {
		t.Skip("the user is online")
	}
	m.client.Unlink(t.Context(), m.keys.user(shard, user))
	clear(m.users[user])
}

func (m *model) flushAll(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "flush") > 0 {
		t.Skip("rare")
	}
	m.flush()
	m.clear()
}

func sorted[V any](set map[string]V) []string { return slices.Sorted(maps.Keys(set)) }

// check compares all that Redis holds with the model.
func (m *model) check(t *rapid.T) {
	ctx := t.Context()
	got := m.Get(ctx, []presence.GetCall{{Shard: shard, Users: modelUsers}})[0]
	if got.Err != nil || got.Head != m.head {
		t.Fatalf("the head is %+v, want %+v, %v", got.Head, m.head, got.Err)
	}
	for i, u := range modelUsers {
		if want := m.state(u, false); got.States[i] != want {
			t.Fatalf("%s is %q, want %q", u, formatState(got.States[i]), formatState(want))
		}
	}
	if got, want := m.bundle.online(), sorted(m.online); !slices.Equal(got, want) {
		t.Fatalf("online are %q, want %q", got, want)
	}
	for _, n := range modelNodes {
		if got, want := m.bundle.members(n), sorted(m.members[n]); !slices.Equal(got, want) {
			t.Fatalf("the members of %s are %q, want %q", n, got, want)
		}
	}
	if head, nodes, err := m.RestoredNodes(ctx, shard); err != nil || head != m.head || !slices.Equal(nodes, sorted(m.restored)) {
		t.Fatalf("restored are %q in %+v, want %q in %+v, %v", nodes, head, sorted(m.restored), m.head, err)
	}
	leases, err := m.client.ZRangeWithScores(ctx, m.keys.alive(), 0, -1).Result()
	if err != nil || len(leases) != len(m.alive) {
		t.Fatalf("%d leases, want %d, %v", len(leases), len(m.alive), err)
	}
	for _, z := range leases {
		if want := m.alive[z.Member.(string)]; int64(z.Score) != want.UnixMilli() {
			t.Fatalf("the lease of %s ends at %d, want %d", z.Member, int64(z.Score), want.UnixMilli())
		}
	}
	m.checkLog(t)
}

// checkLog reads the log after a position with a limit.
func (m *model) checkLog(t *rapid.T) {
	if m.head.Epoch == "" {
		return
	}
	after := max(0, m.head.Seq+int64(rapid.IntRange(-25, 1).Draw(t, "after")))
	limit := rapid.IntRange(1, 30).Draw(t, "limit")
	call := presence.SinceCall{Shard: shard, Epoch: m.head.Epoch, Seq: after, Limit: limit}
	want := presence.SinceResult{Head: m.head, Now: m.now}
	missing := m.head.Seq - after
	kept := missing >= 0 && missing < int64(len(m.log)) // the entry at the position
	if rapid.Bool().Draw(t, "at") {
		call.At = m.now
		if kept && rapid.IntRange(0, 3).Draw(t, "other") > 0 {
			call.At = m.log[int64(len(m.log))-missing-1].At
		}
	}
	got := m.Since(t.Context(), []presence.SinceCall{call})[0]
	switch {
	case missing < 0, missing > int64(len(m.log)):
		want.Reset = true
	case kept && !call.At.IsZero() && !call.At.Equal(m.log[int64(len(m.log))-missing-1].At):
		want.Other = true
	case missing > 0:
		want.Entries = m.log[int64(len(m.log))-missing:]
		want.Entries = want.Entries[:min(limit, len(want.Entries))]
	}
	if !same(got, want) {
		t.Fatalf("after %d:\n%+v\nwant\n%+v", after, got, want)
	}
}

// TestModel takes random steps on Redis and on the model, which must agree on every result and on
// all stored data. The steps are those of several nodes: sets, sweeps, logins, fences, epochs and
// leases. They are repeated (a lost reply) or late, parts and keys expire, the clock jumps, and
// Redis is flushed.
func TestModel(t *testing.T) {
	t.Parallel()
	for name, runs := range map[string]int{"one": 5, "cluster": 1, "in process": 1} {
		for run := range runs {
			t.Run(fmt.Sprint(name, run), func(t *testing.T) {
				t.Parallel()
				client := kinds[name](t)
				rapid.Check(t, func(t *rapid.T) { runModel(t, client) })
			})
		}
	}
}

func runModel(t *rapid.T, client redis.UniversalClient) {
	m := newModel(newBundle(t, client))
	t.Repeat(map[string]func(*rapid.T){
		"set":     m.setSome,
		"set 2":   m.setSome,
		"set 3":   m.setSome,
		"login":   m.loginSome,
		"login 2": m.loginSome,
		"beat":    m.beatSome,
		"fence":   m.fenceSome,
		"move":    m.moveSome,
		"open":    m.openSome,
		"first":   m.openFirst,
		"restore": m.restoreSome,
		"settle":  m.settleSome,
		"expire":  m.expireKey,
		"flush":   m.flushAll,
		"":        m.check,
	})
}
