package queues_test

import (
	"testing"
	"time"

	"github.com/parleyhq/parley/chaos/internal/chaostest"
)

// limit bounds a run, which takes one to two minutes.
const limit = 4 * time.Minute

// TestShort injects faults into a real fleet under a load of queues for one to two minutes, with a
// random schedule, and requires every promise to be kept. The seed is in the output: `make chaos
// ARGS='-harness queues -short -seed ...'` repeats the schedule.
func TestShort(t *testing.T) {
	if testing.Short() {
		t.Log("not part of the quick tests")
		return
	}
	t.Parallel()
	chaostest.Run(t, "chaos-queues", limit, "-harness", "queues", "-short")
}

// TestPromotion promotes a replica of Redis that lacks the last seconds. Exactly the messages that
// it lacked must be lost, and no epoch may decrease.
func TestPromotion(t *testing.T) {
	if testing.Short() {
		t.Log("not part of the quick tests")
		return
	}
	t.Parallel()
	chaostest.Run(t, "chaos-promotion", limit, "-harness", "promotion", "-v")
}
