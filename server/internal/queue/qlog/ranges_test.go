package qlog_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// TestRanges writes random sets of ordinals and reads them back.
func TestRanges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		chunk := rapid.Int64Range(0, 1<<40).Draw(t, "chunk")
		set := rapid.SliceOfDistinct(rapid.Int64Range(0, qlog.ChunkOrdinals-1), rapid.ID[int64]).Draw(t, "set")
		slices.Sort(set)
		for i := range set {
			set[i] += chunk * qlog.ChunkOrdinals
		}
		text := qlog.FormatRanges(set)
		read, err := qlog.ParseRanges(chunk, text)
		if err != nil || !slices.Equal(read, set) {
			t.Fatalf("%v became %q and then %v, %v", set, text, read, err)
		}
	})
}

// TestRangesText pins what operators read.
func TestRangesText(t *testing.T) {
	t.Parallel()
	if got := qlog.FormatRanges([]int64{17, 30, 31, 32, 44}); got != "17,30-32,44" {
		t.Errorf("got %q", got)
	}
	for _, bad := range []string{"1024", "2,1", "5-4", "1,,2", "x", "1-", "0-1024", "3-5,5"} {
		if _, err := qlog.ParseRanges(0, bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// TestPos pins the text of a position, and what is refused.
func TestPos(t *testing.T) {
	t.Parallel()
	p := qlog.Pos{ID: 1795341234567890, Ord: 17}
	if got, err := qlog.ParsePos(p.String()); err != nil || got != p {
		t.Errorf("%s was read as %v, %v", p, got, err)
	}
	for _, bad := range []string{"", "1", "-1-1", "a-1", "1-", "1-b", "99999999999999999999-1"} {
		if _, err := qlog.ParsePos(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
