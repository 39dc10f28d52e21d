package chaos_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/parleyhq/parley/internal/rig"
)

// TestShort breaks a real fleet for a minute and a half, by a schedule of its own each time, and wants every promise kept.
// The seed is in the output; `make chaos ARGS='-short -seed ...'` repeats the schedule, and -check judges the report again.
func TestShort(t *testing.T) {
	if testing.Short() {
		t.Log("not part of the quick tests")
		return
	}
	t.Parallel()
	// It runs in a program of its own, since it wants a network namespace of its own.
	bin, err := rig.Build(t.Context(), "./chaos/cmd/chaos", "chaos")
	if err != nil {
		t.Fatal(err)
	}
	root, err := rig.Root()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "-short", "-dir", filepath.Join(root, ".cache", "chaos"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
