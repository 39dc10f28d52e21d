package redislog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// step is an acquisition or a commit. base are the steps that it was decided upon: a store must
// apply it to exactly these, or not at all.
type step struct {
	// commit is nil for an acquisition.
	commit *qlog.Commit
	epoch  int64
	base   []*step
}

// groupState is what a group must keep: what its steps, applied in order, result in.
type groupState struct {
	steps        []*step
	holder       string
	epoch, ver   int64
	cursor, sent qlog.Pos
	open         map[int64]bool
	rows         map[qlog.ID]qlog.Row
	counters     qlog.Counters
	letters      int
}

func (g *groupState) clone() *groupState {
	c := *g
	c.steps, c.open, c.rows = slices.Clone(g.steps), maps.Clone(g.open), maps.Clone(g.rows)
	return &c
}

// apply adds a step. inLog are the ordinals that the log has.
func (g *groupState) apply(s *step, inLog map[int64]qlog.Pos) {
	g.steps = append(slices.Clip(g.steps), s)
	c := s.commit
	if c == nil {
		g.epoch = s.epoch
		return
	}
	g.ver, g.cursor, g.sent = c.Ver, c.Cursor, c.Sent
	for chunk, text := range c.Open {
		maps.DeleteFunc(g.open, func(ord int64, _ bool) bool { return ord/qlog.ChunkOrdinals == chunk })
		ordinals, _ := qlog.ParseRanges(chunk, text)
		for _, ord := range ordinals {
			g.open[ord] = true
		}
	}
	maps.Copy(g.rows, c.Rows)
	for _, id := range c.DeleteRows {
		delete(g.rows, id)
	}
	for i, n := range countersOf(&g.counters) {
		*n.value += *countersOf(&c.Add)[i].value
	}
	for _, d := range c.Dead {
		if _, ok := inLog[d.Ord]; ok {
			g.letters++
			continue
		}
		g.counters.Dead--
		g.counters.Trimmed++
	}
	for _, pos := range c.Delete {
		delete(inLog, pos.Ord)
	}
	if c.Release {
		g.holder = ""
	}
}

// modelNode is a node as it sees the group.
type modelNode struct {
	name string
	// view is nil if the node does not hold the lease, as far as it knows.
	view *groupState
	// pending is the commit whose outcome the node does not know. view contains it already.
	pending *step
}

// saved is an older state of the store and of the model.
type saved struct {
	dumps map[string]string
	state *groupState
}

// commitModel runs nodes against one group, with calls that are lost, repeated and late, and a
// store that loses writes.
type commitModel struct {
	*rapid.T

	ctx   context.Context
	s     *Store
	ref   qlog.GroupRef
	nodes []*modelNode
	state *groupState
	// inLog has the entries that the log has, at all those that it ever had.
	inLog, at map[int64]qlog.Pos
	base      int64
	sent      []*step
	acquires  []int64
	saves     []saved
}

func newCommitModel(t *rapid.T, client redis.UniversalClient, prefix string) *commitModel {
	m := &commitModel{
		T: t, ctx: context.Background(), s: NewStore(client, StoreConfig{Prefix: prefix}),
		ref:   qlog.GroupRef{Ref: qlog.Ref{Topic: "jobs", UID: "AAAAAAAAAAAAA"}, Group: "work"},
		nodes: []*modelNode{{name: "n1"}, {name: "n2"}}, inLog: map[int64]qlog.Pos{}, at: map[int64]qlog.Pos{},
		base: qlog.ChunkOrdinals - 5,
	}
	topic := &qlog.Topic{Name: m.ref.Topic, UID: m.ref.UID, Version: 1, Partitions: 1, Groups: []qlog.Group{{Name: m.ref.Group}}}
	m.check(m.s.MakePartition(m.ctx, topic, 0))
	// The entries are in two chunks.
	start := qlog.Pos{ID: 1, Ord: m.base}
	m.check(client.HSet(m.ctx, m.s.keys.meta(m.ref.Ref), "ord", m.base, "last", 1).Err())
	m.check(client.HSet(m.ctx, m.s.keys.state(m.ref.Ref, m.ref.Group), "cursor", start.String(), "sent", start.String(), "base", m.base).Err())
	m.at[m.base] = start
	m.state = &groupState{cursor: start, sent: start, open: map[int64]bool{}, rows: map[qlog.ID]qlog.Row{}}
	return m
}

func (m *commitModel) check(err error) {
	if err != nil {
		m.Helper()
		m.Fatal(err)
	}
}

func (m *commitModel) put() {
	n := rapid.IntRange(1, 5).Draw(m.T, "messages")
	_, err := m.s.Put(m.ctx, m.ref.Ref, qlog.Bounds{Window: time.Minute}, qlog.Put{Drafts: slices.Repeat([]qlog.Draft{{}}, n)})
	m.check(err)
	entries, err := m.s.Read(m.ctx, m.ref.Ref, 0, qlog.MaxReadEntries)
	m.check(err)
	for i := range entries {
		m.inLog[entries[i].Ord], m.at[entries[i].Ord] = entries[i].Pos, entries[i].Pos
	}
}

// acquireAs calls Acquire, and checks who got the lease. n is nil if nobody hears the answer.
func (m *commitModel) acquireAs(n *modelNode, name string, expected int64) {
	m.Helper()
	m.save()
	got, err := m.s.Acquire(m.ctx, m.ref, name, expected)
	if expected != m.state.epoch {
		if !errors.Is(err, qlog.ErrHeld) {
			m.Fatalf("acquired at epoch %d instead of %d: %v", expected, m.state.epoch, err)
		}
		return
	}
	m.check(err)
	if got.Epoch <= m.state.epoch || got.Ver != m.state.ver || got.Counters != m.state.counters || got.Sent != m.state.sent {
		m.Fatalf("acquired %+v, want %+v", got, m.state)
	}
	m.state.apply(&step{epoch: got.Epoch, base: m.state.steps}, m.inLog)
	m.state.holder = name
	if n != nil {
		n.view, n.pending = m.state.clone(), nil
	}
}

func (m *commitModel) acquire() {
	n := rapid.SampledFrom(m.nodes).Draw(m.T, "node")
	if n.view != nil && rapid.IntRange(0, 3).Draw(m.T, "again") > 0 {
		m.Skip("it has the lease")
	}
	_, epoch, err := m.s.Lease(m.ctx, m.ref)
	m.check(err)
	m.acquires = append(m.acquires, epoch)
	switch rapid.SampledFrom([]string{"answered", "answer lost", "lost"}).Draw(m.T, "fate") {
	case "answered":
		m.acquireAs(n, n.name, epoch)
	case "answer lost":
		m.acquireAs(nil, n.name, epoch)
	default:
	}
}

func (m *commitModel) acquireLate() {
	if len(m.acquires) > 0 {
		m.acquireAs(nil, "n1", rapid.SampledFrom(m.acquires).Draw(m.T, "expected"))
	}
}

// deliver calls Commit, and checks what must become of it, which only depends on the steps that the
// store has.
func (m *commitModel) deliver(s *step) error {
	m.Helper()
	m.save()
	_, err := m.s.Commit(m.ctx, m.ref, s.commit)
	var want error
	switch {
	case m.state.epoch > s.epoch:
		want = qlog.ErrFenced
	case slices.Contains(m.state.steps, s):
	case slices.Equal(m.state.steps, s.base):
		m.state.apply(s, m.inLog)
	default:
		want = qlog.ErrRolledBack
	}
	if !errors.Is(err, want) || (want == nil) != (err == nil) {
		m.Fatalf("commit %d of epoch %d, upon %d steps: %v, want %v; the store has %d steps and epoch %d",
			s.commit.Ver, s.epoch, len(s.base), err, want, len(m.state.steps), m.state.epoch)
	}
	return err
}

// send sends the node's pending commit.
func (m *commitModel) send(n *modelNode) {
	m.sent = append(m.sent, n.pending)
	switch rapid.SampledFrom([]string{"answered", "answered", "answer lost", "lost"}).Draw(m.T, "fate") {
	case "answered":
		if err := m.deliver(n.pending); err != nil || n.pending.commit.Release {
			n.view = nil
		}
		n.pending = nil
	case "answer lost":
		_ = m.deliver(n.pending)
	default:
	}
}

func (m *commitModel) commit() {
	n := rapid.SampledFrom(m.nodes).Draw(m.T, "node")
	switch {
	case n.view == nil:
		m.Skip("it has no lease")
	case n.pending == nil:
		n.pending = &step{commit: m.decide(n.view), epoch: n.view.epoch, base: n.view.steps}
		n.view.apply(n.pending, maps.Clone(m.inLog))
	default: // repeated until its outcome is known
	}
	m.send(n)
}

func (m *commitModel) commitLate() {
	if len(m.sent) > 0 {
		_ = m.deliver(rapid.SampledFrom(m.sent).Draw(m.T, "copy"))
	}
}

// decide returns a commit upon a view: some entries are read, some of the open ones settled.
func (m *commitModel) decide(view *groupState) *qlog.Commit {
	c := &qlog.Commit{
		Epoch: view.epoch, Acked: view.ver, Ver: view.ver + 1, Sent: view.sent, Open: map[int64]string{}, Rows: map[qlog.ID]qlog.Row{},
		GroupsVersion: m.groupsVersion(), Release: rapid.IntRange(0, 9).Draw(m.T, "release") == 0,
	}
	open := maps.Clone(view.open)
	read, err := m.s.Read(m.ctx, m.ref.Ref, view.sent.ID, rapid.IntRange(0, 4).Draw(m.T, "read"))
	m.check(err)
	for i := range read {
		// What a lost commit removed from the log is missing.
		c.Add.Trimmed += read[i].Ord - c.Sent.Ord - 1
		open[read[i].Ord], c.Sent = true, read[i].Pos
		c.Open[read[i].Ord/qlog.ChunkOrdinals] = ""
	}
	for _, ord := range slices.Sorted(maps.Keys(open)) {
		pos := m.at[ord]
		fate := rapid.SampledFrom([]string{"stays", "acked", "dead", "retried", "deleted"}).Draw(m.T, "entry")
		switch fate {
		case "acked", "deleted":
			c.Add.Acked++
		case "dead":
			c.Add.Dead++
			c.Dead = append(c.Dead, qlog.DeadLetter{Pos: pos, MessageID: "m", Attempts: 1})
		case "retried":
			c.Add.Retried++
			c.Rows[pos.ID] = qlog.Row{State: qlog.RowRetrying, Gen: int(c.Ver), Due: time.UnixMilli(c.Ver)}
			continue
		default:
			continue
		}
		if fate == "deleted" {
			c.Delete = append(c.Delete, pos)
		}
		if _, ok := view.rows[pos.ID]; ok {
			c.DeleteRows = append(c.DeleteRows, pos.ID)
		}
		delete(open, ord)
		c.Open[ord/qlog.ChunkOrdinals] = ""
	}
	c.Cursor = c.Sent
	ordinals := slices.Sorted(maps.Keys(open))
	if len(ordinals) > 0 {
		first := m.at[ordinals[0]]
		c.Cursor = qlog.Pos{ID: first.ID - 1, Ord: first.Ord - 1}
	}
	for chunk := range c.Open {
		c.Open[chunk] = qlog.FormatRanges(slices.DeleteFunc(slices.Clone(ordinals), func(ord int64) bool { return ord/qlog.ChunkOrdinals != chunk }))
	}
	return c
}

func (m *commitModel) groupsVersion() int64 {
	n, err := m.s.client.HGet(m.ctx, m.s.keys.meta(m.ref.Ref), "gv").Int64()
	m.check(err)
	return n
}

// groupKeys are the keys that a store loses writes to. The log is not among them.
func (m *commitModel) groupKeys() []string {
	k, r, g := m.s.keys, m.ref.Ref, m.ref.Group
	return []string{k.state(r, g), k.open(r, g), k.rows(r, g), k.due(r, g), k.deadLetters(r), k.deadData(r)}
}

// save keeps the store as it was before a step. Of these the latest are kept, because a store loses
// what it wrote last.
func (m *commitModel) save() {
	s := saved{dumps: map[string]string{}, state: m.state.clone()}
	for _, key := range m.groupKeys() {
		dump, err := m.s.client.Dump(m.ctx, key).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			m.Fatal(err)
		}
		s.dumps[key] = dump
	}
	m.saves = append(m.saves, s)
	if len(m.saves) > 6 {
		m.saves = m.saves[1:]
	}
}

func (m *commitModel) rollBack() {
	if len(m.saves) == 0 {
		m.Skip("nothing was written")
	}
	s := rapid.SampledFrom(m.saves).Draw(m.T, "to")
	for key, dump := range s.dumps {
		m.check(m.s.client.Del(m.ctx, key).Err())
		if dump != "" {
			m.check(m.s.client.RestoreReplace(m.ctx, key, 0, dump).Err())
		}
	}
	m.state = s.state.clone()
}

// compare compares the store with the model, and checks that every entry is accounted for.
func (m *commitModel) compare() {
	client, k, r := m.s.client, m.s.keys, m.ref.Ref
	fields, err := client.HGetAll(m.ctx, k.state(r, m.ref.Group)).Result()
	m.check(err)
	number := func(name string) int64 {
		n, err := strconv.ParseInt(fields[name], 10, 64)
		if err != nil && fields[name] != "" {
			m.Fatal(err)
		}
		return n
	}
	chunks, _, err := m.s.Open(m.ctx, m.ref, 0)
	m.check(err)
	rows, _, err := m.s.Rows(m.ctx, m.ref, 0)
	m.check(err)
	got := &groupState{
		holder: fields["holder"], epoch: number("epoch"), ver: number("ver"), open: map[int64]bool{}, rows: rows,
		letters: int(client.XLen(m.ctx, k.deadLetters(r)).Val()),
	}
	got.cursor, _ = qlog.ParsePos(fields["cursor"])
	got.sent, _ = qlog.ParsePos(fields["sent"])
	for _, c := range countersOf(&got.counters) {
		*c.value = number(c.name)
	}
	for chunk, text := range chunks {
		ordinals, err := qlog.ParseRanges(chunk, text)
		m.check(err)
		for _, ord := range ordinals {
			got.open[ord] = true
		}
	}
	want := m.state.clone()
	want.steps = nil
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(groupState{})); diff != "" {
		m.Fatalf("the store differs from the model:\n%s", diff)
	}
	if due := client.ZCard(m.ctx, k.due(r, m.ref.Group)).Val(); due != int64(len(rows)) {
		m.Fatalf("%d due times of %d rows", due, len(rows))
	}
	last, err := client.HGet(m.ctx, k.meta(r), "ord").Int64()
	m.check(err)
	c := got.counters
	sum := c.Acked + c.Dead + c.Cancelled + c.Expired + c.Trimmed + c.Elsewhere + number("open") + last - ordinalOf(fields["sent"])
	if last-number("base") != sum || number("open") != int64(len(got.open)) {
		m.Fatalf("%d entries, accounted for are %d: %v", last-number("base"), sum, fields)
	}
}

// ordinalOf returns the ordinal of a position.
func ordinalOf(pos string) int64 {
	p, _ := qlog.ParsePos(pos)
	return p.Ord
}

// TestCommitModel runs random schedules of two nodes, of calls that are lost, repeated and late,
// and of a store that loses writes. A commit must be applied to exactly the steps that it was
// decided upon, once.
func TestCommitModel(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			r, runs := newInputRig(t, nil), 0
			rapid.Check(t, func(t *rapid.T) {
				runs++
				m := newCommitModel(t, r.c, fmt.Sprintf("%smodel%d:", r.s.keys.prefix, runs))
				does := func(action func()) func(*rapid.T) { return func(t *rapid.T) { m.T = t; action() } }
				t.Repeat(map[string]func(*rapid.T){
					"put": does(m.put), "acquire": does(m.acquire), "acquire late": does(m.acquireLate),
					"commit": does(m.commit), "commit 2": does(m.commit), "commit late": does(m.commitLate),
					"commit late 2": does(m.commitLate), "roll back": does(m.rollBack), "": does(m.compare),
				})
			})
		})
	}
}
