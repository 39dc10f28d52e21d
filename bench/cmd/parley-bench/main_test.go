package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/parleyhq/parley/clients/cli"
)

func TestBenchUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"bench", "dance"},
		{"bench", "--rounds", "0"},
		{"bench", "--seconds", "-1"},
		{"bench", "--subscribers", "0"},
		{"bench", "--queue-payload", "0"},
		{"bench", "--delayed", "-1"},
		{"bench", "--rivals", "/no/such/directory"},
		{"bench", "--ops", "127.0.0.1:8081"}, // of which server?
		{"bench", "--mongo-uri", "mongodb://127.0.0.1:1"},
		{"bench", "--parleyd", "/no/such/file"},
		{"--addr", "127.0.0.1:1", "bench"}, // no token
	} {
		if got := runWith(t, nil, "", append([]string{"--data-dir", t.TempDir()}, args...)...); got.code != 2 {
			t.Errorf("%q: exit code %d, stderr: %s", args, got.code, got.stderr)
		}
	}
	got := runWith(t, nil, "", "bench", "--help").wantOK(t)
	for _, area := range []string{"fanout", "idle", "telemetry", "reconnect", "queue", "queue-delay"} {
		if !strings.Contains(got.stdout, area) {
			t.Errorf("--help does not name %s", area)
		}
	}
	if strings.Contains(runWith(t, nil, "", "--help").wantOK(t).stdout, "bench-floor") {
		t.Error("--help names what is no user's command")
	}
}

// TestBenchOfRunningServer leaves out what a server that runs must not be used for, and says so in JSON too.
func TestBenchOfRunningServer(t *testing.T) {
	t.Parallel()
	got := runWith(t, nil, "", "--addr", "127.0.0.1:1", "--token", "any", "--json", "bench", "idle", "reconnect").wantOK(t)
	objects := got.objects(t)
	if len(objects) != 2 || objects[0]["area"] != "idle" || objects[1]["area"] != "reconnect" || objects[0]["skipped"] == "" {
		t.Errorf("output: %v", objects)
	}
}

// TestBenchFloor runs what `bench` starts beside itself: a floor that tells its address and ends with its input.
func TestBenchFloor(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	code := cli.Run(testContext(t), []string{"bench-floor", "fanout"}, strings.NewReader(""), &stdout, &stderr,
		func(string) string { return "" })
	var at struct{ Addr, Ops string }
	if err := json.Unmarshal(stdout.Bytes(), &at); code != 0 || err != nil || at.Addr == "" || at.Ops == "" {
		t.Errorf("exit code %d, %v, output: %s%s", code, err, stdout.Bytes(), stderr.Bytes())
	}
	if code := cli.Run(context.WithoutCancel(t.Context()), []string{"bench-floor", "dance"}, strings.NewReader(""), &stdout, &stderr,
		func(string) string { return "" }); code != 1 {
		t.Errorf("an unknown floor: exit code %d", code)
	}
}
