package dispatch

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// TestHint checks that a hint has the log read behind what is known, until a page comes that is not
// full, and that a hint that arrives during a read leads to another one.
func TestHint(t *testing.T) {
	t.Parallel()
	d, err := New(Config{Group: "g", MaxAttempts: 1, AckTimeout: time.Minute, MaxRunTime: time.Hour, Random: rand.Int64N},
		qlog.State{Epoch: 1}, nil, nil, at(0))
	if err != nil {
		t.Fatal(err)
	}
	var last qlog.Pos
	page := func(n int) (entries []qlog.Entry) {
		for range n {
			last = qlog.Pos{ID: last.ID + 1, Ord: last.Ord + 1}
			entries = append(entries, qlog.Entry{Pos: last, MessageID: "0-1", Body: []byte("x"), ProducedAt: at(0)})
		}
		return entries
	}
	read := func(what string, want bool) int {
		t.Helper()
		r := d.Step(at(0)).Read
		if (r.N > 0) != want || want && r.After != last.ID {
			t.Fatalf("%s: reads %+v, the newest that it knows is %d", what, r, last.ID)
		}
		return r.N
	}
	give := func(n int) {
		t.Helper()
		if err := d.Entries(at(0), page(n)); err != nil {
			t.Fatal(err)
		}
	}
	read("without a hint", false)
	d.Hint()
	n := read("after a hint", true)
	give(n)
	read("after a full page", true)
	d.Hint()
	give(1)
	read("after a hint during a read", true)
	d.ReadFailed()
	read("after a failure", true)
	give(1)
	read("after a page with room", false)
}
