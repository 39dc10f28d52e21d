package presence

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/chaos"
	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// TestReadHistory checks that a history read from its file equals the recorded one.
func TestReadHistory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "history.jsonl")
	r, err := NewRecorder(path)
	if err != nil {
		t.Fatal(err)
	}
	s := newStory()
	r.Write(line{Fleet: &fleetLine{Policy: s.h.Policy, Addrs: s.h.Addrs}})
	for i := range s.h.Conns {
		c := s.h.Conns[i]
		c.End, c.How = 0, ""
		r.conn(&c)
	}
	for i := range s.h.Conns[1:] { // the first stream has no end
		r.conn(&s.h.Conns[i+1])
	}
	for i := range s.h.Watches {
		r.watch(&s.h.Watches[i])
	}
	for i := range s.h.Frames {
		r.Write(line{Frame: &s.h.Frames[i]})
	}
	for i := range s.h.Ops {
		r.Write(line{Op: &s.h.Ops[i]})
	}
	f := &chaos.Fault{Name: string(CutBoth), Target: "n1"}
	r.BeginFault(f)
	r.EndFault(f)
	r.Write(line{Stall: &Stall{Who: Redis, From: at(1), To: at(2)}})
	r.Write(line{Unsettled: "something"})
	r.Mark(markSettled)
	r.Mark(markLeaving)
	want, err := r.Close()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read (-recorded +read):\n%s", diff)
	}
	if len(got.Conns) != len(s.h.Conns) || got.Conns[0].End != 0 || got.Conns[1].End == 0 || got.Settled == 0 || got.Leaving < got.Settled ||
		got.Unsettled == "" || len(got.Stalls) != 1 || len(got.Frames) != len(s.h.Frames) || len(got.Ops) != len(s.h.Ops) || got.Policy != policyPlatform {
		t.Errorf("%d streams, %d frames, %d calls, settled %d", len(got.Conns), len(got.Frames), len(got.Ops), got.Settled)
	}
}

// TestState checks that states join devices as the API promises, and have one form.
func TestState(t *testing.T) {
	t.Parallel()
	devices := []struct {
		platform   int
		background bool
	}{{8, true}, {2, true}, {8, false}, {1, false}, {2, true}}
	for range 20 {
		var s State
		for _, d := range devices {
			s = s.with(d.platform, d.background)
		}
		if s != "1f2b8f" {
			t.Errorf("%v: %q", devices, s)
		}
		if !s.has(2) || !s.has(8) || s.has(3) || State("").has(1) {
			t.Errorf("platforms of %q", s)
		}
		devices = append(devices[1:], devices[0])
	}
	got := stateOf(&parleyv1.UserPresence{Platforms: []*parleyv1.PlatformPresence{
		{Platform: ios}, {Platform: android, Background: true}, {Platform: web},
	}})
	if got != "1f2b8f" {
		t.Errorf("state of a message: %q", got)
	}
}

// TestParseEntry checks the entries of logs that Redis has.
func TestParseEntry(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Entry{
		"7 1700000000123 1 2b8f user{1}*": {Seq: 7, AtMS: 1_700_000_000_123, Cause: "1", User: "user{1}*", State: "2b8f"},
		"8 1700000000124 2  bob":          {Seq: 8, AtMS: 1_700_000_000_124, Cause: "2", User: "bob"},
		"9 1700000000125 L p1 5 c n 1 d bob": {
			Seq: 9, AtMS: 1_700_000_000_125, Login: true,
		},
	} {
		if got, err := parseEntry(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "x 1 1 8f bob", "1 x 1 8f bob", "1 1 1 8f"} {
		if got, err := parseEntry(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// TestKinds checks that the users of every run have rivals under both policies, and that every size
// has all kinds of users.
func TestKinds(t *testing.T) {
	t.Parallel()
	for _, size := range []chaos.Size{chaos.Long, chaos.Short, chaos.Minimal} {
		if n := userCount(size); n%len(kinds) != 0 || n == 0 {
			t.Errorf("size %d has %d users, which is no multiple of %d", size, n, len(kinds))
		}
	}
	for _, policy := range []string{policyPlatform, policyClass} {
		c := &checker{model: &model{h: &History{Policy: policy}}}
		rivals := slices.ContainsFunc(kinds, func(kind []deviceSpec) bool {
			return len(kind) > 1 && c.slot("u", int(kind[0].platform)) == c.slot("u", int(kind[1].platform))
		})
		if !rivals {
			t.Errorf("no user has two devices of one slot under the policy %s", policy)
		}
	}
	if policyOf(1) == policyOf(2) {
		t.Error("all seeds have one policy")
	}
}
