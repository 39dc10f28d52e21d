package dispatch

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// keyed appends a message for each key.
func (k *desk) keyed(keys ...string) {
	k.t.Helper()
	var page []qlog.Entry
	for _, key := range keys {
		k.last = qlog.Pos{ID: k.last.ID + 1, Ord: k.last.Ord + 1}
		page = append(page, qlog.Entry{
			Pos: k.last, MessageID: fmt.Sprint("0-", k.last.ID), Key: key, Body: []byte("x"), ProducedAt: k.now,
		})
	}
	k.d.Seen(k.last)
	k.step()
	if err := k.d.Entries(k.now, page); err != nil {
		k.t.Fatal(err)
	}
}

// ids returns the entries that were sent, in order.
func ids(sent []Delivery) (out []qlog.ID) {
	for _, d := range sent {
		out = append(out, d.Entry.ID)
	}
	return out
}

func keyDesk(t *testing.T) *desk {
	t.Helper()
	return newDesk(t, Config{
		Group: "g", Order: OrderKey, MaxAttempts: 9, AckTimeout: time.Minute, MaxRunTime: time.Hour, MaxBytes: 1 << 20, MaxOpen: 1000,
		Random: func(int64) int64 { return 0 },
	})
}

// TestFollowersTakeNoHandler checks that later messages of a key that is handled take only what a
// session holds beyond its handlers, and that one of them takes over the handler of the one before.
func TestFollowersTakeNoHandler(t *testing.T) {
	t.Parallel()
	k := keyDesk(t)
	k.d.Attach(Session{ID: "a", Concurrency: 2, MaxInFlight: 4, MaxBytes: 1 << 20, ReportsBegun: true})
	k.keyed("slow", "slow", "slow", "slow", "x", "y", "z")
	if got := ids(k.step()); !slices.Equal(got, []qlog.ID{1, 2, 3, 5}) {
		t.Fatalf("sent %v, want two that wait for the first one, and one of another key", got)
	}
	ack := func(id qlog.ID) []qlog.ID {
		k.d.Settle(k.now, Settlement{ID: id, Gen: 1, Session: "a", Verdict: Ack})
		return ids(k.step())
	}
	if got := ack(5); !slices.Equal(got, []qlog.ID{6}) {
		t.Errorf("sent %v beside the slow key", got)
	}
	if got := ack(1); len(got) > 0 {
		t.Errorf("sent %v, although the next of the key has the handler of the first one", got)
	}
	if got := ack(6); !slices.Equal(got, []qlog.ID{4, 7}) {
		t.Errorf("sent %v, want one more that waits, and one for the idle handler", got)
	}
}

// TestReleasedInReverse checks that messages of a key that were given back in another order are sent
// in the order of the key.
func TestReleasedInReverse(t *testing.T) {
	t.Parallel()
	k := keyDesk(t)
	k.d.Attach(Session{ID: "a", Concurrency: 3, MaxInFlight: 6, MaxBytes: 1 << 20, ReportsBegun: true})
	k.keyed("k", "k", "k")
	if got := ids(k.step()); len(got) != 3 {
		t.Fatalf("sent %v", got)
	}
	for _, id := range []qlog.ID{3, 2, 1} {
		k.d.Settle(k.now, Settlement{ID: id, Gen: 1, Session: "a", Verdict: Release})
	}
	if got := ids(k.step()); !slices.Equal(got, []qlog.ID{1, 2, 3}) {
		t.Errorf("sent %v", got)
	}
}
