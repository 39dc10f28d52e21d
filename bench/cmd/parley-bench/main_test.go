package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/parleyhq/parley/bench"
	"github.com/parleyhq/parley/internal/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outcome is the result of a run of the program.
type outcome struct {
	code           int
	stdout, stderr string
}

// runWith runs the program with an environment and an empty standard input.
func runWith(t *testing.T, env map[string]string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, strings.NewReader(""), &stdout, &stderr, func(k string) string { return env[k] })
	return outcome{code: code, stdout: stdout.String(), stderr: stderr.String()}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"dance"},
		{"--rounds", "0"},
		{"--seconds", "-1"},
		{"--subscribers", "0"},
		{"--queue-payload", "0"},
		{"--delayed", "-1"},
		{"--users", "0"},
		{"--rivals", "/no/such/directory"},
		{"--ops", "127.0.0.1:8081"}, // of which server?
		{"--mongo-uri", "mongodb://127.0.0.1:1"},
		{"--parleyd", "/no/such/file"},
		{"--addr", "127.0.0.1:1"}, // no token
	} {
		if got := runWith(t, nil, append([]string{"--data-dir", t.TempDir()}, args...)...); got.code != exitUsage {
			t.Errorf("%q: exit code %d, stderr: %s", args, got.code, got.stderr)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	got := runWith(t, nil, "--help")
	if got.code != exitOK {
		t.Errorf("exit code %d, stderr: %s", got.code, got.stderr)
	}
	for _, area := range bench.Areas() {
		if !strings.Contains(got.stdout, area.Name) {
			t.Errorf("--help does not name %s", area.Name)
		}
	}
	if strings.Contains(got.stdout, bench.FloorCommand) {
		t.Errorf("--help names %s, which is not for users", bench.FloorCommand)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if got := runWith(t, nil, "--version"); got.code != exitOK || got.stdout != program.Version()+"\n" {
		t.Errorf("exit code %d, output %q, want %q", got.code, got.stdout, program.Version())
	}
}

// TestRunningServer checks that for a running server, given by a flag or by the environment, areas
// that would start or kill servers are skipped, also in JSON.
func TestRunningServer(t *testing.T) {
	t.Parallel()
	env := map[string]string{"PARLEY_ADDR": "127.0.0.1:1", "PARLEY_TOKEN": "any"}
	for name, got := range map[string]outcome{
		"flags":       runWith(t, nil, "--addr", "127.0.0.1:1", "--token", "any", "--json", "idle", "reconnect"),
		"environment": runWith(t, env, "idle", "reconnect", "--json"),
	} {
		var areas []string
		for dec := json.NewDecoder(strings.NewReader(got.stdout)); dec.More(); {
			var object struct{ Area, Skipped string }
			if err := dec.Decode(&object); err != nil || object.Skipped == "" {
				t.Fatalf("%s: %v, output: %s", name, err, got.stdout)
			}
			areas = append(areas, object.Area)
		}
		if got.code != exitOK || strings.Join(areas, " ") != "idle reconnect" {
			t.Errorf("%s: exit code %d, output: %s%s", name, got.code, got.stdout, got.stderr)
		}
	}
}

// TestFloor checks that a floor writes its address and ends with its input.
func TestFloor(t *testing.T) {
	t.Parallel()
	got := runWith(t, nil, bench.FloorCommand, "fanout")
	var at struct{ Addr, Ops string }
	if err := json.Unmarshal([]byte(got.stdout), &at); got.code != exitOK || err != nil || at.Addr == "" || at.Ops == "" {
		t.Errorf("exit code %d, %v, output: %s%s", got.code, err, got.stdout, got.stderr)
	}
	if got := runWith(t, nil, bench.FloorCommand, "dance"); got.code != exitError {
		t.Errorf("an unknown floor: exit code %d", got.code)
	}
}
