package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/parleyhq/parley/hack/internal/logtest"
	"github.com/parleyhq/parley/internal/rig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestJob checks that a short run with real processes and made-up lines succeeds, and that it
// injects each kind of fault.
func TestJob(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	program, err := rig.Build(ctx, "./examples/wordindex", "wordindex")
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	for i := range 800 {
		fmt.Fprintf(&log, "[10:%02d] <nick%d> line %d of many, and the %d. of mine\n", i/60, i*i%37, i, i/37)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "2005-02-08.raw.txt"), []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &flags{
		Data: dir, Program: program, Workers: 3, Rate: 250, Takes: 40 * time.Millisecond, Ack: time.Second,
		Kill: 700 * time.Millisecond, Stop: 500 * time.Millisecond,
	}
	out := logtest.New(t)
	options := rig.Options{Nodes: 2, MongoMembers: 1, NATSServers: 1, Binary: os.Getenv("PARLEYD")}
	counts, err := job(ctx, f, options, out)
	if err != nil {
		t.Fatal(err)
	}
	if counts.kills == 0 || counts.stops == 0 || counts.producerKills != 1 {
		t.Errorf("%d kills, %d stops, %d kills of the producer", counts.kills, counts.stops, counts.producerKills)
	}
	for _, want := range []string{
		`jobs: 800, of them [1-9]\d* delayed, [1-9]\d* failing twice, [1-9]\d* poison`, `dead letters: [1-9]`, `[1-9]\d* dead letters replayed`,
		`dead letters: 0`, `order: kept for 19 nicks`, `everything is as it must be`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("it does not say %q", want)
		}
	}
}
