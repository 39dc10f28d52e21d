package presence

import (
	"testing"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// lasts returns the time that a schedule takes, without the time to mend faults.
func lasts(seed uint64, p chaos.Plan) time.Duration {
	var whole time.Duration
	for _, step := range chaos.Schedule(seed, p) {
		var longest time.Duration
		for _, f := range step.Faults {
			longest = max(longest, f.Delay+f.Hold)
		}
		whole += step.Wait + longest
	}
	return whole
}

// TestPlans checks, for many seeds, that the schedule of a short run takes about a minute at most
// and that of a long one about twenty. A stopped node is stopped for longer than its lease.
func TestPlans(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		if d := lasts(seed, shortPlan()); d < 25*time.Second || d > 70*time.Second {
			t.Errorf("seed %d: a short schedule takes %s", seed, d)
		}
		if d := lasts(seed, longPlan()); d < 14*time.Minute || d > 27*time.Minute {
			t.Errorf("seed %d: a long schedule takes %s", seed, d)
		}
		for _, step := range chaos.Schedule(seed, shortPlan()) {
			for _, f := range step.Faults {
				if f.Name == chaos.NodeStop && f.Hold < leaseTTL+time.Second {
					t.Errorf("seed %d: a node is stopped for %s", seed, f.Hold)
				}
			}
		}
	}
}
