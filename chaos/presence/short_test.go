package presence_test

import (
	"testing"
	"time"

	"github.com/parleyhq/parley/chaos/internal/chaostest"
)

// TestShort injects faults into a real fleet under a load of presence for about a minute, with a
// random schedule, and requires every promise to be kept. The seed is in the output: `make chaos
// ARGS='-harness presence -short -seed ...'` repeats the schedule.
func TestShort(t *testing.T) {
	if testing.Short() {
		t.Log("not part of the quick tests")
		return
	}
	t.Parallel()
	chaostest.Run(t, "chaos-presence", 6*time.Minute, "-harness", "presence", "-short")
}
