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

// writeLogs writes two days of made-up lines, in channels of their own, and returns the directory.
func writeLogs(t *testing.T, lines int) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"2005-02-08.raw.txt", "2009-01-05.raw.txt"} {
		var log strings.Builder
		for i := range lines {
			fmt.Fprintf(&log, "[10:%02d] <nick%d> line %d of many\n=== nick%d has left\n", i%60, i*i%37, i, i)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(log.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestRun checks that a short run with made-up lines succeeds: that messages expire, also under
// their edits, and that the slow subscriber falls behind.
func TestRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	// Building a server with another clock takes minutes. The memory of a run that is this short is
	// not flat.
	f := &flags{Data: writeLogs(t, 300), InTime: true, Retain: 100, Outage: 4 * time.Second, Editors: 32, Probes: 2}
	out := logtest.New(t)
	j, err := run(ctx, f, rig.Options{MongoMembers: 1, NATSServers: 1, Binary: os.Getenv("PARLEYD")}, out)
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"edits", "recalls", "changes of expired messages", "lines sent again", "expired messages looked for"} {
		if j.Total(what) == 0 {
			t.Errorf("no %s", what)
		}
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "verdict: ok: ") {
		t.Errorf("the last line is %q", last)
	}
}
