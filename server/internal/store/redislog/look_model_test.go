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

// lookEntry is an entry that was ever appended.
type lookEntry struct {
	pos     qlog.Pos
	message string
	only    string
	gone    bool
}

// lookGroup is a group with its lease holder.
type lookGroup struct {
	name     string
	state    qlog.State
	base     int64
	open     map[int64]bool
	rows     map[qlog.ID]bool
	counters qlog.Counters
	replayed int64
}

// lookModel runs everything that changes what a partition holds, and knows what Look must count.
type lookModel struct {
	*rapid.T

	ctx     context.Context
	s       *Store
	topic   *qlog.Topic
	ref     qlog.Ref
	entries []*lookEntry // by ordinal, from 1
	groups  map[string]*lookGroup
	letters map[string]int // by group
	// scheduled are the IDs of the messages that are not due.
	scheduled                     map[string]bool
	produced, cancelled, replayed int64
}

var lookGroups = []string{"g1", "g2", "g3"}

func newLookModel(t *rapid.T, client redis.UniversalClient, prefix string) *lookModel {
	m := &lookModel{
		T: t, ctx: context.Background(), s: NewStore(client, StoreConfig{Prefix: prefix}), groups: map[string]*lookGroup{},
		letters: map[string]int{}, scheduled: map[string]bool{},
		topic: &qlog.Topic{Name: "jobs", UID: "AAAAAAAAAAAAA", Version: 1, Partitions: 1, Groups: []qlog.Group{{Name: "g1"}, {Name: "g2"}}},
	}
	m.ref = m.topic.Ref(0)
	m.check(m.s.MakePartition(m.ctx, m.topic, 0))
	for i := range m.topic.Groups {
		m.take(m.topic.Groups[i].Name)
	}
	return m
}

func (m *lookModel) check(err error) {
	if err != nil {
		m.Helper()
		m.Fatal(err)
	}
}

func (m *lookModel) group(name string) qlog.GroupRef { return qlog.GroupRef{Ref: m.ref, Group: name} }

// some returns a group that there is.
func (m *lookModel) some() *lookGroup {
	return m.groups[rapid.SampledFrom(slices.Sorted(maps.Keys(m.groups))).Draw(m.T, "group")]
}

// take acquires the lease of a group that was made or moved.
func (m *lookModel) take(name string) {
	_, epoch, err := m.s.Lease(m.ctx, m.group(name))
	m.check(err)
	state, err := m.s.Acquire(m.ctx, m.group(name), "n1", epoch)
	m.check(err)
	m.groups[name] = &lookGroup{name: name, state: state, base: state.Sent.Ord, open: map[int64]bool{}, rows: map[qlog.ID]bool{}}
}

// sync takes up entries that were appended, or removed.
func (m *lookModel) sync() {
	list, err := m.s.client.XRange(m.ctx, m.s.keys.main(m.ref), "-", "+").Result()
	m.check(err)
	there := map[int64]bool{}
	for _, x := range list {
		pos, err := qlog.ParsePos(x.ID)
		m.check(err)
		there[pos.Ord] = true
		if pos.Ord > int64(len(m.entries)) {
			e := &lookEntry{pos: pos, message: qlog.MessageID(0, pos.ID, false)}
			if id, ok := x.Values["i"].(string); ok {
				e.message = id
			}
			e.only, _ = x.Values["g"].(string)
			m.entries = append(m.entries, e)
		}
	}
	for _, e := range m.entries {
		e.gone = !there[e.pos.Ord]
	}
}

func (m *lookModel) put() {
	n := rapid.IntRange(1, 4).Draw(m.T, "messages")
	bounds := qlog.Bounds{Window: time.Minute}
	if rapid.IntRange(0, 9).Draw(m.T, "drop") == 0 {
		bounds.MaxMessages, bounds.DropOldest = 6, true
	}
	all := drafts("a", "b", "c", "d")[:n]
	for i := range all {
		switch rapid.IntRange(0, 5).Draw(m.T, "when") {
		case 0:
			all[i].Delay = time.Hour
		case 1:
			all[i].At = time.UnixMilli(1)
		default:
		}
	}
	results, err := m.s.Put(m.ctx, m.ref, bounds, qlog.Put{Drafts: all})
	m.check(err)
	for _, r := range results {
		if r.Err != nil {
			continue
		}
		m.produced++
		if !r.Due.IsZero() {
			m.scheduled[r.MessageID] = true
			continue
		}
		// It may be dropped already.
		_, id, _, _ := qlog.ParseMessageID(r.MessageID)
		m.entries = append(m.entries, &lookEntry{pos: qlog.Pos{ID: id, Ord: int64(len(m.entries)) + 1}, message: r.MessageID})
	}
	m.sync()
}

func (m *lookModel) due() {
	moved, _, err := m.s.Due(m.ctx, m.ref)
	m.check(err)
	before := len(m.scheduled)
	m.sync()
	for _, e := range m.entries {
		delete(m.scheduled, e.message)
	}
	if before-len(m.scheduled) != moved {
		m.Fatalf("%d moved, %d are not scheduled any more", moved, before-len(m.scheduled))
	}
}

func (m *lookModel) cancel() {
	if len(m.scheduled) == 0 {
		m.Skip("none is scheduled")
	}
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(m.scheduled))).Draw(m.T, "message")
	got, err := m.s.Cancel(m.ctx, m.ref, []string{id, id})
	m.check(err)
	if got[0].Err != nil || !errors.Is(got[1].Err, qlog.ErrNotScheduled) {
		m.Fatalf("cancelled: %v", got)
	}
	delete(m.scheduled, id)
	m.cancelled++
}

// work is one commit of a group's lease holder.
func (m *lookModel) work() {
	g := m.some()
	c := after(g.state)
	c.Open, c.Rows = map[int64]string{}, map[qlog.ID]qlog.Row{}
	read, err := m.s.Read(m.ctx, m.ref, g.state.Sent.ID, rapid.IntRange(0, 3).Draw(m.T, "read"))
	m.check(err)
	for i := range read {
		c.Add.Trimmed += read[i].Ord - c.Sent.Ord - 1
		c.Sent = read[i].Pos
		if read[i].Only != "" && read[i].Only != g.name {
			c.Add.Elsewhere++
			continue
		}
		g.open[read[i].Ord] = true
		c.Open[read[i].Ord/qlog.ChunkOrdinals] = ""
	}
	for _, ord := range slices.Sorted(maps.Keys(g.open)) {
		m.settle(g, c, m.entries[ord-1])
	}
	c.Cursor = c.Sent
	ordinals := slices.Sorted(maps.Keys(g.open))
	if len(ordinals) > 0 {
		first := m.entries[ordinals[0]-1].pos
		c.Cursor = qlog.Pos{ID: first.ID - 1, Ord: first.Ord - 1}
	}
	for chunk := range c.Open {
		c.Open[chunk] = qlog.FormatRanges(ordinals)
	}
	_, err = m.s.Commit(m.ctx, m.group(g.name), c)
	m.check(err)
	g.state.Ver, g.state.Cursor, g.state.Sent = c.Ver, c.Cursor, c.Sent
	for i, n := range countersOf(&g.counters) {
		*n.value += *countersOf(&c.Add)[i].value
	}
	// Dead letters of entries that are gone count as trimmed.
	for _, d := range c.Dead {
		if m.entries[d.Ord-1].gone {
			g.counters.Dead--
			g.counters.Trimmed++
		} else {
			m.letters[g.name]++
		}
	}
}

// settle decides about an open entry.
func (m *lookModel) settle(g *lookGroup, c *qlog.Commit, e *lookEntry) {
	switch rapid.IntRange(0, 6).Draw(m.T, "fate") {
	case 0:
		c.Add.Acked++
	case 1, 2:
		c.Add.Dead++
		c.Dead = append(c.Dead, qlog.DeadLetter{Pos: e.pos, MessageID: e.message, Attempts: 1})
	case 3:
		c.Add.Cancelled++
	case 4:
		c.Add.Retried++
		c.Rows[e.pos.ID] = qlog.Row{State: qlog.RowRetrying, Gen: 1, Attempts: 1, Due: time.UnixMilli(1)}
		g.rows[e.pos.ID] = true
		return
	default:
		return
	}
	if g.rows[e.pos.ID] {
		c.DeleteRows = append(c.DeleteRows, e.pos.ID)
		delete(g.rows, e.pos.ID)
	}
	delete(g.open, e.pos.Ord)
	c.Open[e.pos.Ord/qlog.ChunkOrdinals] = ""
}

func (m *lookModel) replay() {
	sel, n := qlog.LetterSelection{}, rapid.IntRange(1, 4).Draw(m.T, "n")
	if rapid.Bool().Draw(m.T, "of a group") {
		sel.Group = rapid.SampledFrom(lookGroups).Draw(m.T, "group")
	}
	known := len(m.entries)
	step, err := m.s.Replay(m.ctx, m.ref, qlog.Bounds{}, sel, n)
	m.check(err)
	m.sync()
	if len(m.entries)-known != step.Done {
		m.Fatalf("%d replayed, %d appended", step.Done, len(m.entries)-known)
	}
	for _, e := range m.entries[known:] {
		m.letters[e.only]--
		m.groups[e.only].replayed++
		m.replayed++
		if sel.Group != "" && e.only != sel.Group {
			m.Fatalf("replayed one of %s instead of %s", e.only, sel.Group)
		}
	}
}

func (m *lookModel) purge() {
	name := rapid.SampledFrom(lookGroups).Draw(m.T, "group")
	step, err := m.s.Purge(m.ctx, m.ref, qlog.LetterSelection{Group: name}, 2)
	m.check(err)
	if want := min(2, m.letters[name]); step.Done != want {
		m.Fatalf("%d purged, want %d", step.Done, want)
	}
	m.letters[name] -= step.Done
}

func (m *lookModel) trim() {
	_, err := m.s.Trim(m.ctx, m.ref, qlog.Bounds{}, 1000)
	m.check(err)
	before := m.present()
	m.sync()
	for _, e := range before {
		for _, g := range m.groups {
			if e.gone && e.pos.ID > g.state.Cursor.ID {
				m.Fatalf("%s was trimmed, the cursor of %s is %s", e.pos, g.name, g.state.Cursor)
			}
		}
	}
}

// present returns the entries that the log has.
func (m *lookModel) present() (all []*lookEntry) {
	for _, e := range m.entries {
		if !e.gone {
			all = append(all, e)
		}
	}
	return all
}

func (m *lookModel) forceTrim() {
	before := m.present()
	keep := rapid.IntRange(0, 8).Draw(m.T, "keep")
	removed, lost, more, err := m.s.ForceTrim(m.ctx, m.ref, qlog.Cut{Keep: int64(keep), Age: -1}, 1000)
	m.check(err)
	m.sync()
	wantLost, want := 0, max(len(before)-keep, 0)
	for i, e := range before {
		if e.gone != (i < want) {
			m.Fatalf("entry %d of %d is gone: %t, kept were to be %d", i, len(before), e.gone, keep)
		}
		for _, g := range m.groups {
			its := e.only == "" || e.only == g.name
			if e.gone && its && (e.pos.ID > g.state.Sent.ID || g.open[e.pos.Ord]) {
				wantLost++
			}
		}
	}
	if removed != want || lost != wantLost || more {
		m.Fatalf("%d removed, %d lost, more: %t; want %d, %d", removed, lost, more, want, wantLost)
	}
}

func (m *lookModel) seek() {
	g := m.some()
	start := qlog.Start{End: rapid.Bool().Draw(m.T, "end")}
	m.check(m.s.SeekGroup(m.ctx, m.group(g.name), g.state.Epoch, start))
	m.take(g.name)
}

// comeAndGo creates or deletes the group g3. Its dead letters stay.
func (m *lookModel) comeAndGo() {
	if m.groups["g3"] == nil {
		m.check(m.s.MakeGroup(m.ctx, m.group("g3"), qlog.Start{}))
		m.take("g3")
		return
	}
	m.check(m.s.RemoveGroup(m.ctx, m.group("g3")))
	delete(m.groups, "g3")
}

// want returns what Look must count for a group.
func (m *lookModel) want(g *lookGroup) qlog.GroupCounts {
	w := qlog.GroupCounts{
		Group: g.name, Counters: g.counters, Replayed: g.replayed, Appended: int64(len(m.entries)) - g.base, Open: int64(len(g.open)),
		Retrying: int64(len(g.rows)), Cursor: g.state.Cursor, Sent: g.state.Sent, Holder: "n1", Epoch: g.state.Epoch, Ver: g.state.Ver,
	}
	for _, ord := range slices.Sorted(maps.Keys(g.open)) {
		w.Oldest = m.entries[ord-1].pos.ID.Time()
		break
	}
	for _, e := range m.entries {
		switch {
		case e.pos.ID <= g.state.Sent.ID:
			continue
		case e.gone:
			w.Trimmed++
			continue
		case e.only != "" && e.only != g.name:
			w.Elsewhere++
		default:
			w.Unsent++
		}
		if w.Oldest.IsZero() {
			w.Oldest = e.pos.ID.Time()
		}
	}
	return w
}

// compare compares Look with the model, and checks that every entry is accounted for.
func (m *lookModel) compare() {
	got, err := m.s.Look(m.ctx, m.ref)
	m.check(err)
	want := qlog.Counts{Now: got.Now, Scheduled: int64(len(m.scheduled)), Produced: m.produced, Cancelled: m.cancelled}
	for _, n := range m.letters {
		want.DeadLetters += int64(n)
	}
	if there := m.present(); len(there) > 0 {
		want.Length, want.First, want.Last = int64(len(there)), there[0].message, there[len(there)-1].message
	}
	for _, name := range slices.Sorted(maps.Keys(m.groups)) {
		want.Groups = append(want.Groups, m.want(m.groups[name]))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		m.Fatalf("Look differs from the model:\n%s", diff)
	}
	for _, g := range got.Groups {
		c := g.Counters
		if sum := c.Acked + c.Dead + c.Cancelled + c.Expired + c.Trimmed + c.Elsewhere + g.Open + g.Unsent; sum != g.Appended {
			m.Fatalf("%d entries, accounted for are %d: %+v", g.Appended, sum, g)
		}
	}
	// After a seek a message may have two dead letters in a group, of which one can be found.
	if fields := m.s.client.HLen(m.ctx, m.s.keys.deadData(m.ref)).Val(); fields < want.DeadLetters || fields > 2*want.DeadLetters {
		m.Fatalf("%d fields for %d dead letters", fields, want.DeadLetters)
	}
}

// TestLookModel compares Look with a model under random steps of everything that changes a
// partition: each message is accounted for at any moment, for each group.
func TestLookModel(t *testing.T) {
	t.Parallel()
	for i := range 3 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			r, runs := newInputRig(t, nil), 0
			rapid.Check(t, func(t *rapid.T) {
				runs++
				m := newLookModel(t, r.c, fmt.Sprintf("%slook%d:", r.s.keys.prefix, runs))
				does := func(action func()) func(*rapid.T) { return func(t *rapid.T) { m.T = t; action() } }
				t.Repeat(map[string]func(*rapid.T){
					"put": does(m.put), "put 2": does(m.put), "due": does(m.due), "cancel": does(m.cancel), "work": does(m.work),
					"work 2": does(m.work), "work 3": does(m.work), "replay": does(m.replay), "replay 2": does(m.replay),
					"purge": does(m.purge), "trim": does(m.trim), "force": does(m.forceTrim), "seek": does(m.seek),
					"g3": does(m.comeAndGo), "": does(m.compare),
				})
			})
		})
	}
}
