// Package chaostest runs the command chaos in tests.
package chaostest

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/parleyhq/parley/internal/rig"
)

// Run builds the command chaos and runs it with args and a report in the folder .cache/<report>. It
// is a separate program because it requires a network namespace of its own. The test fails if the
// command fails or takes longer than limit. Run logs the command's output.
func Run(t *testing.T, report string, limit time.Duration, args ...string) {
	t.Helper()
	bin, err := rig.Build(t.Context(), "./chaos/cmd/chaos", "chaos")
	if err != nil {
		t.Fatal(err)
	}
	root, err := rig.Root()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	args = append(args, "-dir", filepath.Join(root, ".cache", report))
	out, err := exec.CommandContext(ctx, bin, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
