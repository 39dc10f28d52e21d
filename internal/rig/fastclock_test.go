package rig_test

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/parleyhq/parley/internal/rig"
)

// TestBuildAhead checks that the wall clock of a program is ahead, and its monotonic clock right.
func TestBuildAhead(t *testing.T) {
	t.Parallel()
	path, err := rig.BuildAhead(t.Context(), 10*time.Second, "./internal/rig/testdata/now", "now-ahead")
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	out, err := exec.CommandContext(t.Context(), path).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	var now, took int64
	if _, err := fmt.Sscan(string(out), &now, &took); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if now < before.Unix()+10 || now > time.Now().Unix()+10 || took < 10 || took > 5000 {
		t.Errorf("the clock is %d s ahead, and 10 ms took %d ms", now-before.Unix(), took)
	}
	if _, err := rig.BuildAhead(t.Context(), time.Millisecond, "./internal/rig/testdata/now", "now-ahead"); err == nil {
		t.Error("a fraction of a second is accepted")
	}
}
