package chaos

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestScheduleRepeats(t *testing.T) {
	t.Parallel()
	for name, plan := range map[string]Plan{"short": ShortPlan(), "long": LongPlan()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(Schedule(7, plan), Schedule(7, plan)); diff != "" {
				t.Errorf("one seed gave two schedules:\n%s", diff)
			}
			if cmp.Equal(Schedule(7, plan), Schedule(8, plan)) {
				t.Error("two seeds gave one schedule")
			}
		})
	}
}

// TestScheduleHoldsThePlan holds, over many seeds, that every fault comes as often as planned, that two at a time never
// take the same engine away, and that a short run is short.
func TestScheduleHoldsThePlan(t *testing.T) {
	t.Parallel()
	pairs := 0
	for seed := range uint64(200) {
		for name, plan := range map[string]Plan{"short": ShortPlan(), "long": LongPlan()} {
			counts := make(map[FaultName]int)
			var whole time.Duration
			for _, step := range Schedule(seed, plan) {
				whole += step.Wait
				var longest time.Duration
				engines := make(map[string]bool)
				for _, f := range step.Faults {
					counts[f.Name]++
					if engines[f.Name.engine()] {
						t.Fatalf("seed %d: %s takes one engine away twice", seed, step)
					}
					engines[f.Name.engine()] = true
					if f.Node < 0 || f.Node >= plan.Nodes {
						t.Fatalf("seed %d: %s: no such node", seed, step)
					}
					longest = max(longest, f.Delay+f.Hold)
				}
				whole += longest
				if len(step.Faults) > 1 {
					pairs++
				}
			}
			if diff := cmp.Diff(plan.Counts, counts); diff != "" {
				t.Fatalf("seed %d: the schedule is not the plan:\n%s", seed, diff)
			}
			if name == "short" && whole > 70*time.Second {
				t.Errorf("seed %d: a short schedule takes %s, without what mending takes", seed, whole)
			}
		}
	}
	if pairs == 0 {
		t.Error("two faults never come at a time")
	}
}

func TestParseCounts(t *testing.T) {
	t.Parallel()
	got, err := ParseCounts("node-kill=3,nats-away", LongPlan())
	if diff := cmp.Diff(map[FaultName]int{NodeKill: 3, NATSAway: 1}, got); diff != "" || err != nil {
		t.Errorf("%v, %s", err, diff)
	}
	for _, bad := range []string{"", "node-kil", "node-kill=x", "node-kill=-1"} {
		if _, err := ParseCounts(bad, LongPlan()); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// TestScheduleHitsEveryClient has faults of a room's own clients, which may be more than there are nodes.
func TestScheduleHitsEveryClient(t *testing.T) {
	t.Parallel()
	hit := make(map[int]bool)
	for _, step := range Schedule(1, Plan{Nodes: 2, Clients: 6, Counts: map[FaultName]int{"consumer-kill": 100, NodeKill: 100}}) {
		for _, f := range step.Faults {
			if f.Name == NodeKill && f.Node > 1 {
				t.Errorf("%s of node %d, of 2", f.Name, f.Node)
			}
			if f.Name != NodeKill {
				hit[f.Node] = true
			}
		}
	}
	if len(hit) != 6 || !hit[0] || !hit[5] {
		t.Errorf("clients %v were hit, want 0 to 5", hit)
	}
}
