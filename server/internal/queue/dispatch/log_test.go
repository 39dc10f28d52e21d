package dispatch

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// fakeLog is a log in memory that applies commits by the rule of qlog.Commit, and checks each.
type fakeLog struct {
	t       testing.TB
	entries []qlog.Entry // ascending; trimmed ones are gone
	last    qlog.Pos
	newest  qlog.ID // of all that was ever put
	state   qlog.State
	chunks  map[int64]string
	rows    map[qlog.ID]qlog.Row
	settled map[qlog.ID]bool
	letters []qlog.DeadLetter
}

func newFakeLog(t testing.TB) *fakeLog {
	return &fakeLog{t: t, chunks: map[int64]string{}, rows: map[qlog.ID]qlog.Row{}, settled: map[qlog.ID]bool{}}
}

func (f *fakeLog) clone() *fakeLog {
	c := *f
	c.entries, c.letters = slices.Clone(f.entries), slices.Clone(f.letters)
	c.chunks, c.rows, c.settled = maps.Clone(f.chunks), maps.Clone(f.rows), maps.Clone(f.settled)
	return &c
}

func (f *fakeLog) put(id qlog.ID, e qlog.Entry) qlog.ID {
	e.Pos = qlog.Pos{ID: max(id, f.newest+1), Ord: f.last.Ord + 1}
	e.MessageID = e.Pos.String()
	f.entries = append(f.entries, e)
	f.last, f.newest = e.Pos, e.ID
	return e.ID
}

func (f *fakeLog) acquire() (qlog.State, map[int64]string, map[qlog.ID]qlog.Row) {
	f.state.Epoch++
	f.state.Last = f.last
	state := f.state
	f.state.Released = false
	return state, maps.Clone(f.chunks), maps.Clone(f.rows)
}

func (f *fakeLog) openOrdinals() map[int64]bool {
	open := map[int64]bool{}
	for number, text := range f.chunks {
		ordinals, err := qlog.ParseRanges(number, text)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, ord := range ordinals {
			open[ord] = true
		}
	}
	return open
}

func (f *fakeLog) isOpen(id qlog.ID) bool {
	e := f.find(id)
	return e != nil && (e.ID > f.state.Sent.ID || f.openOrdinals()[e.Ord])
}

func (f *fakeLog) find(id qlog.ID) *qlog.Entry {
	i, ok := slices.BinarySearchFunc(f.entries, id, func(e qlog.Entry, id qlog.ID) int { return int(e.ID - id) })
	if !ok {
		return nil
	}
	return &f.entries[i]
}

func (f *fakeLog) read(after qlog.ID, n int) (page []qlog.Entry) {
	for i := range f.entries {
		if f.entries[i].ID > after && len(page) < n {
			page = append(page, f.entries[i])
		}
	}
	return page
}

func (f *fakeLog) reread(at []qlog.Pos) (page []qlog.Entry) {
	for _, p := range at {
		if e := f.find(p.ID); e != nil && e.Pos == p {
			page = append(page, *e)
		}
	}
	return page
}

// commit applies c and checks it: nothing is settled twice, and what the counters say is what became
// of the entries.
func (f *fakeLog) commit(c *qlog.Commit) (qlog.Committed, error) {
	switch {
	case f.state.Epoch > c.Epoch:
		return qlog.Committed{}, qlog.ErrFenced
	case f.state.Epoch == c.Epoch && f.state.Ver >= c.Ver:
		return qlog.Committed{Last: f.last}, nil
	case f.state.Ver < c.Acked || f.state.Epoch < c.Epoch:
		return qlog.Committed{}, qlog.ErrRolledBack
	}
	f.checkSize(c)
	before, sent := f.openOrdinals(), f.state.Sent
	for number, text := range c.Open {
		if f.chunks[number] = text; text == "" {
			delete(f.chunks, number)
		}
	}
	maps.Copy(f.rows, c.Rows)
	for _, id := range c.DeleteRows {
		delete(f.rows, id)
	}
	f.state.Ver, f.state.Cursor, f.state.Sent, f.state.Released = c.Ver, c.Cursor, c.Sent, c.Release && !c.Unsure
	f.letters = append(f.letters, c.Dead...)
	f.checkOutcome(c, before, sent)
	for _, p := range c.Delete {
		if f.isOpen(p.ID) {
			f.t.Fatalf("commit %d deletes %v, which is open", c.Ver, p)
		}
		f.entries = slices.DeleteFunc(f.entries, func(e qlog.Entry) bool { return e.ID == p.ID })
	}
	return qlog.Committed{Last: f.last}, nil
}

func (f *fakeLog) checkSize(c *qlog.Commit) {
	if n := len(c.Open) + len(c.Rows) + len(c.DeleteRows) + len(c.Dead) + len(c.Delete); n > qlog.MaxChanges {
		f.t.Fatalf("commit %d has %d changes", c.Ver, n)
	}
}

func (f *fakeLog) checkOutcome(c *qlog.Commit, before map[int64]bool, sent qlog.Pos) {
	a, after := c.Add, f.openOrdinals()
	sum := &f.state.Counters
	sum.Acked += a.Acked
	sum.Dead += a.Dead
	sum.Cancelled += a.Cancelled
	sum.Expired += a.Expired
	sum.Trimmed += a.Trimmed
	sum.Elsewhere += a.Elsewhere
	if got := sum.Acked + sum.Dead + sum.Cancelled + sum.Expired + sum.Trimmed + sum.Elsewhere + int64(len(after)); got != c.Sent.Ord {
		f.t.Fatalf("commit %d: conservation: %d settled or open, sent %d; %+v", c.Ver, got, c.Sent.Ord, a)
	}
	if int(a.Dead) != len(c.Dead) {
		f.t.Fatalf("commit %d counts %d dead and names %d", c.Ver, a.Dead, len(c.Dead))
	}
	for ord := range after {
		if ord > c.Sent.Ord {
			f.t.Fatalf("commit %d: ordinal %d is open after sent %v", c.Ver, ord, c.Sent)
		}
	}
	for i := range f.entries {
		e := &f.entries[i]
		if e.ID > c.Sent.ID {
			break
		}
		switch open := after[e.Ord]; {
		case open && f.settled[e.ID]:
			f.t.Fatalf("commit %d opens %v again", c.Ver, e.Pos)
		case open && e.ID <= c.Cursor.ID:
			f.t.Fatalf("commit %d: %v is open before the cursor %v", c.Ver, e.Pos, c.Cursor)
		case !open && !f.settled[e.ID] && (before[e.Ord] || e.ID > sent.ID):
			f.settled[e.ID] = true
		case !open && !f.settled[e.ID]:
			f.t.Fatalf("commit %d: %v was never open and is lost", c.Ver, e.Pos)
		}
	}
	for id, r := range f.rows {
		if e := f.find(id); e != nil && (id > c.Sent.ID || !after[e.Ord]) {
			f.t.Fatalf("commit %d: row of %d, which is not open: %+v", c.Ver, id, r)
		}
		if r.Attempts > r.Gen {
			f.t.Fatalf("commit %d: row %d has more attempts than deliveries: %+v", c.Ver, id, r)
		}
	}
}

// at is the time in tests.
func at(ms int) time.Time { return time.UnixMilli(1_800_000_000_000 + int64(ms)) }
