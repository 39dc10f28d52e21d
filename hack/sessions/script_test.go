package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const sample = "[23:58] <ann> does anybody know grub?\n" +
	"[23:58] <ann> hello?\n" +
	"=== bob has joined\n" +
	"[23:59] <bob> ann: yes,  ask\n" + // answers both lines
	"[00:01] <bob> ann: ask your question\n" + // ann has said nothing since
	"[00:01]  * ann thanks: bob\n" +
	"[00:30] <b|x_> ann, \xff and more\r\n" +
	"[00:30] <ann> ann: me\n" // nobody answers oneself

// TestScriptAndOracle checks what becomes of a log, by both ways of reading it.
func TestScriptAndOracle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "2005-02-08.raw.txt")
	if err := os.WriteFile(path, []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := readScript(dir, 0, 5*time.Minute, 1)
	if err != nil {
		t.Fatal(err)
	}
	type entry struct {
		session, owner string
		want
	}
	var got []entry
	var times []time.Duration
	for _, st := range s.days[0].steps {
		got = append(got, entry{st.session.id, st.session.owner, want{st.id, st.content, st.answer != nil}})
		times = append(times, st.at)
	}
	wants := []entry{
		{"2005-02-08-ann", "ann", want{"2005-02-08:1", "does anybody know grub?", false}},
		{"2005-02-08-ann", "ann", want{"2005-02-08:2", "hello?", false}},
		{"2005-02-08-ann", "ann", want{"2005-02-08:4", "ann: yes,  ask", true}},
		{"2005-02-08-bob", "bob", want{"2005-02-08:4", "ann: yes,  ask", false}},
		{"2005-02-08-bob", "bob", want{"2005-02-08:5", "ann: ask your question", false}},
		{"2005-02-08-ann", "ann", want{"2005-02-08:6", "thanks: bob", false}},
		{"2005-02-08-ann", "ann", want{"2005-02-08:7", "ann, \ufffd and more", true}},
		{"2005-02-08-b_7cx_5f", "b|x_", want{"2005-02-08:7", "ann, \ufffd and more", false}},
		{"2005-02-08-ann", "ann", want{"2005-02-08:8", "ann: me", false}},
	}
	if !slices.Equal(got, wants) {
		t.Errorf("the script is\n%v, not\n%v", got, wants)
	}
	if !slices.IsSorted(times) || times[2] != time.Minute || times[4] != 3*time.Minute || times[6] != 8*time.Minute {
		t.Errorf("the times are %v", times)
	}
	o, err := newOracle([]string{path})
	if err != nil {
		t.Fatal(err)
	}
	for id, list := range o.sessions {
		var of []want
		for _, w := range wants {
			if w.session == id {
				of = append(of, w.want)
			}
		}
		if !slices.Equal(list, of) || !slices.ContainsFunc(wants, func(e entry) bool { return e.session == id && e.owner == o.owners[id] }) {
			t.Errorf("the oracle has %v of %s, not %v", list, id, of)
		}
	}
	if len(o.sessions) != 3 {
		t.Errorf("the oracle has %d sessions", len(o.sessions))
	}
}

// TestPieces checks how a text is cut into words.
func TestPieces(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"one":             {"one"},
		"one two  three ": {"one ", "two  ", "three "},
		"  one\u00a0two":  {"  one\u00a0", "two"},
	} {
		got := pieces(text)
		if !slices.Equal(got, want) || strings.Join(got, "") != text {
			t.Errorf("%q is cut into %q", text, got)
		}
	}
}

// TestFates checks that about a fifth of the answers is cancelled, and one in twenty abandoned.
func TestFates(t *testing.T) {
	t.Parallel()
	counts := make(map[fate]int)
	const all = 10_000
	for i := range all {
		a := newAnswer(3, &session{id: "s"}, strings.Repeat("x", i%7)+string(rune('a'+i%26))+time.Duration(i).String(), "a few words of text")
		counts[a.fate]++
		if a.cut < 1 || a.cut > len(a.pieces) {
			t.Fatalf("cut after %d pieces of %d", a.cut, len(a.pieces))
		}
	}
	for f, percent := range map[fate]int{cancelled: cancelledPercent, abandoned: abandonedPercent} {
		if n := counts[f] * 100; n < (percent-1)*all || n > (percent+1)*all {
			t.Errorf("%d of %d answers have the fate %d", counts[f], all, f)
		}
	}
}
