package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// writeLogs writes logs into a new directory, and returns its path.
func writeLogs(t *testing.T, logs map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range logs {
		if err := os.WriteFile(filepath.Join(dir, name+".raw.txt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// oneDay has every form of line, with nicks that have to be encoded or look like something else.
const oneDay = `=== early [n=early@host]  has joined #ubuntu
[11:58] <ann> hello
=== [99ers] Dragon [n=[99 x@host]  has joined #ubuntu
=== stranger [n=s@host]  has left #ubuntu []
[11:59]  * ben{^` + "`" + `} waves
[11:59] <ann> again
=== ann boots, and has joined the party
=== ann is now known as ann|away
=== ann|away is now known as ben{^` + "`" + `}
[12:01] <caf` + "\xe9" + `%> hi
=== early [n=early@host]  has joined #ubuntu
=== early [n=early@host]  has left #ubuntu ["bye"]
not a line
[1:02] <nobody> not a line either
[01:00] <early> back
`

// TestReading compares a log, read as the replay reads it, with what a person reads in it.
func TestReading(t *testing.T) {
	t.Parallel()
	dir := writeLogs(t, map[string]string{"2005-02-08.x": oneDay, "2006-01-01.x": "[10:00] <ann> hi\n[10:10] <ann> bye\n"})
	r, err := readReplay(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []event{
		{0, "2005-02-08/early", connects},
		{0, "2005-02-08/ann", connects},
		{0, "2005-02-08/[99ers]%20Dragon", connects},
		{time.Minute, "2005-02-08/ben{^`}", connects},
		{90 * time.Second, "2005-02-08/ann", disconnects},
		{90 * time.Second, "2005-02-08/ann|away", connects},
		{90 * time.Second, "2005-02-08/ann|away", disconnects},
		{90 * time.Second, "2005-02-08/ben{^`}", reconnects},
		{3 * time.Minute, "2005-02-08/caf%E9%25", connects},
		{3 * time.Minute, "2005-02-08/early", reconnects},
		{3 * time.Minute, "2005-02-08/early", disconnects},
		{52 * time.Minute, "2006-01-01/ann", connects}, // the days end together
		{62 * time.Minute, "2005-02-08/early", connects},
	}
	if diff := cmp.Diff(want, r.events, cmp.AllowUnexported(event{})); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got := transitions(r.events); got != 15 {
		t.Errorf("%d transitions, want 15", got)
	}
	if got := r.checkpoints(3); !slices.IsSorted(got) || len(got) != 3 || got[2] != 62 {
		t.Errorf("checkpoints at %v", got)
	}
}

// TestOracle compares the answers of the oracle with what a person reads in the log.
func TestOracle(t *testing.T) {
	t.Parallel()
	o, err := newOracle(writeLogs(t, map[string]string{"2005-02-08.x": oneDay, "2006-01-01.x": "[10:00] <ann> hi\n[10:10] <ann> bye\n"}))
	if err != nil {
		t.Fatal(err)
	}
	for minute, want := range map[int][]string{
		0:  {"2005-02-08/[99ers]%20Dragon", "2005-02-08/ann", "2005-02-08/early"},
		1:  {"2005-02-08/[99ers]%20Dragon", "2005-02-08/ben{^`}", "2005-02-08/early"},
		3:  {"2005-02-08/[99ers]%20Dragon", "2005-02-08/ben{^`}", "2005-02-08/caf%E9%25"},
		61: {"2005-02-08/[99ers]%20Dragon", "2005-02-08/ben{^`}", "2005-02-08/caf%E9%25", "2006-01-01/ann"},
		62: {"2005-02-08/[99ers]%20Dragon", "2005-02-08/ben{^`}", "2005-02-08/caf%E9%25", "2005-02-08/early", "2006-01-01/ann"},
	} {
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(o.online(minute)))); diff != "" {
			t.Errorf("minute %d (-want +got):\n%s", minute, diff)
		}
	}
	if diff := cmp.Diff(count{users: 7, transitions: 15, most: 5, mostADay: 4}, o.count(), cmp.AllowUnexported(count{})); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestTwoLogsOfADay(t *testing.T) {
	t.Parallel()
	if _, err := readReplay(writeLogs(t, map[string]string{"2005-02-08.a": oneDay, "2005-02-08.b": oneDay})); err == nil {
		t.Error("two logs of a day, whose users would be the same, were read")
	}
}

// TestDifference checks that a comparison finds each kind of difference, and no other.
func TestDifference(t *testing.T) {
	t.Parallel()
	online := map[string]bool{"ann": true, "ben": true}
	for name, c := range map[string]struct {
		states map[string]string
		n      int
	}{
		"equal":          {map[string]string{"ann": shown, "ben": shown, "cy": ""}, 0},
		"shown online":   {map[string]string{"ann": shown, "ben": shown, "cy": shown}, 1},
		"shown offline":  {map[string]string{"ann": shown, "ben": ""}, 1},
		"missing":        {map[string]string{"ann": shown}, 1},
		"two parts":      {map[string]string{"ann": shown, "ben": shown + " " + shown}, 1},
		"other platform": {map[string]string{"ann": shown, "ben": "8f"}, 1},
	} {
		var d difference
		d.compare(c.states, online)
		if d.n != c.n || (d.String() == "") != (c.n == 0) {
			t.Errorf("%s: %d differences, want %d: %s", name, d.n, c.n, fmt.Sprint(&d))
		}
	}
}
