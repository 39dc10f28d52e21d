package redislog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// Scheduled messages are listed by due time and ID in pages, each once, also where messages of a
// page are gone, and within the budget.
func TestListScheduled(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, r *inputRig) {
		t.Helper()
		at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		var want []string
		for i := range 30 {
			d := draft("")
			d.Body, d.At = messageBody(fmt.Sprint("k", i), "x"), at.Add(time.Duration(i/10)*time.Second)
			want = append(want, r.put(d)[0].MessageID)
		}
		for _, size := range []int{1, 4, 30, 100} {
			var got []string
			for after, more := (qlog.DuePlace{}), true; more; {
				page, again, err := r.s.ListScheduled(t.Context(), r.ref, after, size)
				r.check(err)
				for i := range page {
					m := &page[i]
					if m.Key != fmt.Sprint("k", len(got)) || m.Unreadable != nil || !m.Due.Equal(at.Add(time.Duration(len(got)/10)*time.Second)) {
						t.Fatalf("message %d: %+v", len(got), m)
					}
					got, after = append(got, m.MessageID), m.Place()
				}
				if more = again; len(page) > size {
					t.Fatalf("%d in a page of %d", len(page), size)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("in pages of %d: %v, want %v", size, got, want)
			}
		}
		gone := qlog.DuePlace{Due: at, ID: want[4]}
		_, err := r.s.Cancel(t.Context(), r.ref, want[2:6])
		r.check(err)
		page, _, err := r.s.ListScheduled(t.Context(), r.ref, gone, 1)
		if r.check(err); page[0].MessageID != want[6] {
			t.Errorf("after one that is gone follows %s", page[0].MessageID)
		}
	})
}

func TestListScheduledIsBoundedByBytes(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	for range 9 {
		d := later("", time.Hour)
		d.Body = messageBody("", strings.Repeat("x", 256<<10))
		r.put(d)
	}
	var pages []int
	for after, more := (qlog.DuePlace{}), true; more; {
		page, again, err := r.s.ListScheduled(t.Context(), r.ref, after, 100)
		r.check(err)
		pages, after, more = append(pages, len(page)), page[len(page)-1].Place(), again
	}
	if fmt.Sprint(pages) != "[3 3 3]" {
		t.Errorf("pages of %v", pages)
	}
}

func TestEntriesAt(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	var all []qlog.Draft
	for i := range 8 {
		d := draft("")
		d.Body = messageBody(fmt.Sprint(i), strings.Repeat("x", 200<<10))
		all = append(all, d)
	}
	r.put(all[:4]...)
	r.put(all[4:]...)
	var ids []qlog.ID
	for _, pos := range r.read() {
		ids = append(ids, pos.ID)
	}
	ids = append([]qlog.ID{1}, ids...)
	var got []string
	for calls := 0; len(ids) > 0; calls++ {
		entries, looked, err := r.s.EntriesAt(t.Context(), r.ref, ids)
		r.check(err)
		if looked == 0 || len(entries) > 5 {
			t.Fatalf("looked at %d, got %d", looked, len(entries))
		}
		for i := range entries {
			got = append(got, entries[i].Key)
		}
		ids = ids[looked:]
	}
	if fmt.Sprint(got) != "[0 1 2 3 4 5 6 7]" {
		t.Errorf("got %v", got)
	}
}

// Walk reads no more than fit, and every entry once.
func TestWalk(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	for i := range 300 {
		d := draft("")
		if d.Body = messageBody("", "x"); i >= 280 {
			d.Body = messageBody("", strings.Repeat("x", 200<<10))
		}
		r.put(d)
	}
	var pages []int
	for after := qlog.ID(0); ; {
		entries, err := r.s.Walk(t.Context(), r.ref, after, 300)
		if r.check(err); len(entries) == 0 {
			break
		}
		pages, after = append(pages, len(entries)), entries[len(entries)-1].ID
	}
	total := 0
	for _, n := range pages {
		total += n
	}
	// No run of 256 is read with those that are large behind it.
	if total != 300 || slices.Max(pages) > 5 {
		t.Errorf("pages of %v", pages)
	}
}

// States, rows by state, and rows by due time agree with what was committed.
func TestStatesAndRows(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, r *inputRig) {
		t.Helper()
		r.put(drafts("a", "b", "c", "d", "e", "f", "g")...)
		at := r.read()
		c := after(r.acquire("n1"))
		c.Cursor, c.Sent = at[0], at[5]
		first := at[0].Ord
		c.Open = map[int64]string{0: qlog.FormatRanges([]int64{first + 1, first + 2, first + 4, first + 5})}
		due := time.UnixMilli(1_700_000_000_000)
		c.Rows = map[qlog.ID]qlog.Row{
			at[1].ID: {State: qlog.RowBegun, Gen: 1, Session: "s"},
			at[2].ID: {State: qlog.RowSuspect, Gen: 1, Attempts: 1, Due: due.Add(time.Second)},
			at[4].ID: {State: qlog.RowRetrying, Gen: 2, Attempts: 2, Due: due, Reason: "r r"},
		}
		r.commit(c)
		got, err := r.s.States(t.Context(), r.group("work"), at)
		r.check(err)
		if got.Cursor != at[0] || got.Sent != at[5] || len(got.Open) != 4 || !got.Open[at[5].ID] || len(got.Rows) != 3 || got.Rows[at[1].ID].Session != "s" {
			t.Errorf("%+v", got)
		}
		if _, err := r.s.States(t.Context(), r.group("none"), nil); !errors.Is(err, qlog.ErrNoGroup) {
			t.Error(err)
		}
		rows, err := r.s.RowsIn(t.Context(), r.group("work"), []qlog.RowState{qlog.RowBegun, qlog.RowRetrying}, 0, 10)
		if r.check(err); len(rows) != 2 || rows[0].ID != at[1].ID || rows[1].ID != at[4].ID || rows[1].Reason != "r r" {
			t.Errorf("%+v", rows)
		}
		rows, err = r.s.RowsIn(t.Context(), r.group("work"), []qlog.RowState{qlog.RowBegun, qlog.RowRetrying}, at[1].ID, 10)
		if r.check(err); len(rows) != 1 || rows[0].ID != at[4].ID {
			t.Errorf("%+v", rows)
		}
		rows, more, err := r.s.ListRetrying(t.Context(), r.group("work"), qlog.DuePlace{}, 1)
		if r.check(err); len(rows) != 1 || !more || rows[0].ID != at[4].ID || rows[0].State != qlog.RowRetrying || !rows[0].Due.Equal(due) {
			t.Fatalf("%+v", rows)
		}
		rows, more, err = r.s.ListRetrying(t.Context(), r.group("work"), rows[0].Place(), 1)
		if r.check(err); len(rows) != 1 || more || rows[0].ID != at[2].ID || rows[0].State != qlog.RowSuspect {
			t.Errorf("%+v", rows)
		}
	})
}

// Of many rows the lowest are returned, in pages each once.
func TestRowsInOfMany(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	var fields []any
	for i := range 20_000 {
		state := qlog.RowWaiting
		if i%4 == 0 {
			state = qlog.RowBegun
		}
		fields = append(fields, i+1, encodeRow(&qlog.Row{State: state, Gen: 1}))
	}
	for some := range slices.Chunk(fields, 2000) {
		r.check(r.c.HSet(t.Context(), r.s.keys.rows(r.ref, "work"), some...).Err())
	}
	next := qlog.ID(1)
	for after := qlog.ID(0); ; {
		rows, err := r.s.RowsIn(t.Context(), r.group("work"), []qlog.RowState{qlog.RowBegun}, after, 700)
		r.check(err)
		for _, row := range rows {
			if row.ID != next {
				t.Fatalf("%d instead of %d", row.ID, next)
			}
			next, after = next+4, row.ID
		}
		if len(rows) < 700 {
			break
		}
	}
	if next != 20_001 {
		t.Errorf("ended before %d", next)
	}
}

// A message is found while it is scheduled, in the log, as a dead letter, and replayed, also when
// its first entry is gone.
func TestFindMessage(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, r *inputRig) {
		t.Helper()
		r.check(r.s.MakeGroup(t.Context(), r.group("other"), qlog.Start{}))
		find := func(id string) qlog.Found {
			t.Helper()
			found, err := r.s.FindMessage(t.Context(), r.ref, id, []string{"work", "other", "none"})
			r.check(err)
			if found.Entry.MessageID != id || found.Entry.Key != "k" || found.Entry.PayloadBytes != 3 || found.Entry.Unreadable != nil {
				t.Fatalf("%+v", found)
			}
			return found
		}
		d := later("", time.Hour)
		d.Body = messageBody("k", "xyz")
		id := r.put(d)[0].MessageID
		if f := find(id); f.Due.IsZero() || f.Entry.ID != 0 {
			t.Errorf("%+v", f)
		}
		_, err := r.s.Reschedule(t.Context(), r.ref, []qlog.Reschedule{{MessageID: id}})
		r.check(err)
		r.eventually(func() bool { n, _ := r.due(); return n == 1 })
		first := r.read()[0]
		if f := find(id); !f.Due.IsZero() || f.Entry.Pos != first {
			t.Errorf("%+v", f)
		}
		none := func(id string) {
			t.Helper()
			if _, err := r.s.FindMessage(t.Context(), r.ref, id, nil); !errors.Is(err, qlog.ErrNoMessage) {
				t.Errorf("%s: %v", id, err)
			}
		}
		none(qlog.MessageID(0, first.ID, false))
		none("x")
		r.kill("work", "")
		if f := find(id); f.Letters["work"].Attempts != 2 || f.Entry.Pos != first || len(f.Letters) != 1 {
			t.Errorf("%+v", f)
		}
		for range 2 {
			step, err := r.s.Replay(t.Context(), r.ref, r.bounds, qlog.LetterSelection{}, 5)
			if r.check(err); step.Done != 1 {
				t.Fatal(step)
			}
			if f := find(id); f.Replayed["work"] != step.Last || f.Entry.Pos != first || len(f.Letters) != 0 {
				t.Errorf("%+v", f)
			}
			none(qlog.MessageID(0, step.Last.ID, false))
			places, err := r.s.Places(t.Context(), r.group("work"), []string{"x", id, qlog.MessageID(0, 7, false)})
			if r.check(err); !slices.Equal(places, []qlog.ID{0, step.Last.ID, 7}) {
				t.Errorf("places %v", places)
			}
			places, err = r.s.Places(t.Context(), r.group("other"), []string{id})
			if r.check(err); places[0] != first.ID {
				t.Errorf("place %v", places)
			}
			r.kill("work", "")
		}
		r.kill("other", "")
		_, err = r.s.Trim(t.Context(), r.ref, qlog.Bounds{}, 1000)
		if r.check(err); r.length() != 0 {
			t.Fatal(r.read())
		}
		if f := find(id); f.Entry.ID != 0 || len(f.Letters) != 2 || len(f.Replayed) != 0 {
			t.Errorf("%+v", f)
		}
		// Replayed for one group, with its first entry gone.
		step, err := r.s.Replay(t.Context(), r.ref, r.bounds, qlog.LetterSelection{Group: "other"}, 5)
		if r.check(err); step.Done != 1 {
			t.Fatal(step)
		}
		if f := find(id); f.Entry.ID != 0 || len(f.Letters) != 1 || f.Replayed["other"] != step.Last {
			t.Errorf("%+v", f)
		}
	})
}
