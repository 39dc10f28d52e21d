package redislog

import (
	"errors"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

func TestPutAppends(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	before := time.Now().Add(-time.Second)
	results := append(r.put(drafts("a", "b")...), r.put(draft("c"))...)
	r.wantResults(results, "new, new, new")
	all := r.entries()
	if len(all) != 3 {
		t.Fatalf("%d entries", len(all))
	}
	for i, e := range all {
		if want := qlog.MessageID(0, e.pos.ID, false); results[i].MessageID != want {
			t.Errorf("message %d has the ID %s, its entry %s", i, results[i].MessageID, want)
		}
		if e.pos.Ord != int64(i+1) {
			t.Errorf("message %d has ordinal %d", i, e.pos.Ord)
		}
		if at := e.pos.ID.Time(); at.Before(before) || at.After(time.Now().Add(time.Second)) {
			t.Errorf("message %d has the time %s", i, at)
		}
		if i > 0 && all[i-1].pos.ID >= e.pos.ID {
			t.Errorf("IDs do not increase: %s, %s", all[i-1].pos, e.pos)
		}
	}
}

func TestPutIsOfOneTopic(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	ref := r.ref
	ref.UID = "BBBBBBBBBBBBB"
	_, err := r.s.Put(t.Context(), ref, r.bounds, qlog.Put{Drafts: drafts("a")})
	if !errors.Is(err, qlog.ErrNoTopic) || r.length() != 0 {
		t.Fatalf("%v, %d entries", err, r.length())
	}
}

func TestPutWhilePaused(t *testing.T) {
	t.Parallel()
	r := newInputRig(t, nil)
	paused := *r.topic
	paused.Version, paused.ProducePaused = 2, true
	r.check(r.s.MakePartition(t.Context(), &paused, 0))
	_, err := r.s.Put(t.Context(), r.ref, r.bounds, qlog.Put{Drafts: drafts("a")})
	if !errors.Is(err, qlog.ErrPaused) {
		t.Fatal(err)
	}
	// A late call with the settings of before changes nothing.
	if err := r.s.MakePartition(t.Context(), r.topic, 0); !errors.Is(err, qlog.ErrConflict) {
		t.Fatal(err)
	}
	if _, err = r.s.Put(t.Context(), r.ref, r.bounds, qlog.Put{Drafts: drafts("a")}); !errors.Is(err, qlog.ErrPaused) {
		t.Fatal(err)
	}
	paused.Version, paused.ProducePaused = 3, false
	r.check(r.s.MakePartition(t.Context(), &paused, 0))
	r.wantResults(r.put(draft("a")), "new")
}
