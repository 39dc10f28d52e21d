package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// nowSource is the line of time.Now that reads the clocks, in the file time.go of Go's package
// time.
const nowSource = "\tsec, nsec, mono := runtimeNow()\n"

// BuildAhead builds a command, like Build, whose wall clock is ahead of this machine's by whole
// seconds, or behind it if ahead is negative. The monotonic clock is right, so its timeouts are. A
// program in Go reads the clock without the C library, so the library of RedisConfig.MovableClock
// has no effect on it. Instead, time.Now is compiled from a changed source. The first time this
// compiles all that the command imports, which takes minutes for parleyd.
func BuildAhead(ctx context.Context, ahead time.Duration, pkg, name string) (string, error) {
	if ahead%time.Second != 0 {
		return "", fmt.Errorf("a clock cannot be %s ahead, only whole seconds", ahead)
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("build with another clock: %w", err)
	}
	path := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("build with another clock: %w", err)
	}
	if n := strings.Count(string(source), nowSource); n != 1 {
		return "", fmt.Errorf("build with another clock: %s has the line %q %d times, want once", path, nowSource, n)
	}
	dir, err := TempDir("clock")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	seconds := int64(ahead / time.Second)
	changed := strings.Replace(string(source), nowSource, fmt.Sprintf("%s\tsec += %d\n", nowSource, seconds), 1)
	file, overlay := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil { //nolint:gosec // in the directory of Go
		return "", err
	}
	data, err := json.Marshal(map[string]any{"Replace": map[string]string{path: file}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, data, 0o600); err != nil {
		return "", err
	}
	return Build(ctx, pkg, name, "-overlay", overlay, "-ldflags", "-s -w")
}
