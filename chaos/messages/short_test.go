package messages_test

import (
	"testing"
	"time"

	"github.com/parleyhq/parley/chaos/internal/chaostest"
)

// TestShort injects faults into a real fleet for a minute and a half, with a random schedule, and
// requires every promise to be kept. The seed is in the output: `make chaos ARGS='-short -seed
// ...'` repeats the schedule, and -check checks the report again.
func TestShort(t *testing.T) {
	if testing.Short() {
		t.Log("not part of the quick tests")
		return
	}
	t.Parallel()
	chaostest.Run(t, "chaos", 8*time.Minute, "-short")
}
