package queues_test

import (
	"testing"
	"time"

	"github.com/parleyhq/parley/chaos/internal/chaostest"
)

// limit bounds a run; it takes about a minute.
const limit = 4 * time.Minute

// TestShort breaks a real fleet under a load of queues for less than a minute, by a schedule of its own each time, and wants
// every promise kept. The seed is in the output; `make chaos ARGS='-room queues -short -seed ...'` repeats the schedule.
func TestShort(t *testing.T) {
	if testing.Short() {
		t.Log("not part of the quick tests")
		return
	}
	t.Parallel()
	chaostest.Run(t, "chaos-queues", limit, "-room", "queues", "-short")
}

// TestPromotion has a replica of Redis that lacks the last seconds take the primary's place: what is lost is what it
// lacked, and no epoch goes back.
func TestPromotion(t *testing.T) {
	if testing.Short() {
		t.Log("not part of the quick tests")
		return
	}
	t.Parallel()
	chaostest.Run(t, "chaos-promotion", limit, "-room", "promotion", "-v")
}
