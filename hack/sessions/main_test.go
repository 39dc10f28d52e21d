package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/parleyhq/parley/hack/internal/logtest"
	"github.com/parleyhq/parley/internal/rig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// writeLogs writes a day of made-up lines, three of four of which address a nick, and returns the
// directory.
func writeLogs(t *testing.T, minutes int) string {
	t.Helper()
	dir := t.TempDir()
	var log strings.Builder
	for i := range 8 * minutes {
		fmt.Fprintf(&log, "[10:%02d] <nick%d> ", i/8, i*i%13)
		if i%4 > 0 {
			fmt.Fprintf(&log, "nick%d: ", (i-1)*(i-1)%13)
		}
		fmt.Fprintf(&log, "line %d of many, with words which come one by one\n=== nick%d has left\n", i, i)
	}
	if err := os.WriteFile(filepath.Join(dir, "2005-02-08.raw.txt"), []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// shortFlags are the flags of a run that takes less than a minute, on an idle machine.
func shortFlags(t *testing.T) *flags {
	t.Helper()
	return &flags{
		Data: writeLogs(t, 30), Speed: 90, Lanes: 1, Quiet: time.Minute, Word: 3 * time.Second, Follow: 60, Late: 20,
		OpenTimeout: 20 * time.Second, Seed: 7,
	}
}

// TestRun checks that a short run with made-up lines succeeds.
func TestRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	out := logtest.New(t)
	j, err := run(ctx, shortFlags(t), rig.Options{MongoMembers: 1, NATSServers: 1, Binary: os.Getenv("PARLEYD")}, out)
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"answers completed", "answers cancelled", "generators killed", "late subscribers", "deltas", "lists in Redis"} {
		if j.Total(what) == 0 {
			t.Errorf("no %s", what)
		}
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "verdict: ok: ") {
		t.Errorf("the last line is %q", last)
	}
}
