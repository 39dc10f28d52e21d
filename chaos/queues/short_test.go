package queues_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/parleyhq/parley/internal/rig"
)

// TestShort breaks a real fleet under a load of queues for less than a minute, by a schedule of its own each time, and wants
// every promise kept. The seed is in the output; `make chaos ARGS='-room queues -short -seed ...'` repeats the schedule.
func TestShort(t *testing.T) {
	if testing.Short() {
		t.Log("not part of the quick tests")
		return
	}
	t.Parallel()
	run(t, "-room", "queues", "-short", "-dir", reportDir(t, "queues"))
}

// run runs the command chaos: it wants a network namespace of its own.
func run(t *testing.T, args ...string) {
	t.Helper()
	bin, err := rig.Build(t.Context(), "./chaos/cmd/chaos", "chaos-queues")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, bin, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func reportDir(t *testing.T, name string) string {
	t.Helper()
	root, err := rig.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, ".cache", "chaos-"+name)
}

// TestPromotion has a replica of Redis that lacks the last seconds take the primary's place: what is lost is what it
// lacked, and no epoch goes back.
func TestPromotion(t *testing.T) {
	if testing.Short() {
		t.Log("not part of the quick tests")
		return
	}
	t.Parallel()
	run(t, "-room", "promotion", "-v", "-dir", reportDir(t, "promotion"))
}
