package messages

import (
	"testing"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// TestShortPlanIsShort checks, for many seeds, that the schedule of a short run takes at most 70
// seconds, without the time to mend faults.
func TestShortPlanIsShort(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		var whole time.Duration
		for _, step := range chaos.Schedule(seed, shortPlan()) {
			var longest time.Duration
			for _, f := range step.Faults {
				longest = max(longest, f.Delay+f.Hold)
			}
			whole += step.Wait + longest
		}
		if whole > 70*time.Second {
			t.Errorf("seed %d: a short schedule takes %s, without what mending takes", seed, whole)
		}
	}
}
