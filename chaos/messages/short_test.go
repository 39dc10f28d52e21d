package messages_test

import (
	"testing"
	"time"

	"github.com/parleyhq/parley/chaos/internal/chaostest"
)

// TestShort breaks a real fleet for a minute and a half, by a schedule of its own each time, and wants every promise kept.
// The seed is in the output; `make chaos ARGS='-short -seed ...'` repeats the schedule, and -check judges the report again.
func TestShort(t *testing.T) {
	if testing.Short() {
		t.Log("not part of the quick tests")
		return
	}
	t.Parallel()
	chaostest.Run(t, "chaos", 8*time.Minute, "-short")
}
