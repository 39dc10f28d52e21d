package chaos

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testPlans returns a short plan with some faults, and a long one with each of them several times.
func testPlans() map[string]Plan {
	return map[string]Plan{
		"short": {Nodes: 3, Scale: 0.2, Counts: map[FaultName]int{
			NodeKill: 2, NodeStop: 1, Roll: 1, MongoKill: 1, MongoStepDown: 1, RedisPast: 1, NATSAway: 1, CutMongo: 1, CutNATS: 1, StallNATS: 1,
		}},
		"long": {Nodes: 3, Scale: 1, Counts: map[FaultName]int{
			NodeKill: 10, NodeStop: 4, NodeIsolate: 2, Roll: 2, MongoKill: 3, MongoStepDown: 3, MongoStop: 3, MongoAlone: 1, MongoLost: 2,
			RedisKill: 2, RedisFlush: 2, RedisPast: 2, NATSAway: 3, NATSKill: 2, CutMongo: 3, CutRedis: 3, CutNATS: 3, StallMongo: 3, StallRedis: 3,
			StallNATS: 3,
		}},
	}
}

func TestScheduleRepeats(t *testing.T) {
	t.Parallel()
	for name, plan := range testPlans() {
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

// TestScheduleHoldsThePlan checks, for many seeds, that every fault occurs as often as planned, and
// that two concurrent faults never hit the same engine.
func TestScheduleHoldsThePlan(t *testing.T) {
	t.Parallel()
	pairs := 0
	for seed := range uint64(200) {
		for _, plan := range testPlans() {
			counts := make(map[FaultName]int)
			for _, step := range Schedule(seed, plan) {
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
				}
				if len(step.Faults) > 1 {
					pairs++
				}
			}
			if diff := cmp.Diff(plan.Counts, counts); diff != "" {
				t.Fatalf("seed %d: the schedule is not the plan:\n%s", seed, diff)
			}
		}
	}
	if pairs == 0 {
		t.Error("two faults never come at a time")
	}
}

func TestParseCounts(t *testing.T) {
	t.Parallel()
	got, err := ParseCounts("node-kill=3,nats-away", testPlans()["long"])
	if diff := cmp.Diff(map[FaultName]int{NodeKill: 3, NATSAway: 1}, got); diff != "" || err != nil {
		t.Errorf("%v, %s", err, diff)
	}
	for _, bad := range []string{"", "node-kil", "node-kill=x", "node-kill=-1"} {
		if _, err := ParseCounts(bad, testPlans()["long"]); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// TestScheduleHitsEveryClient checks that faults of a harness's own clients hit each of them, even
// if there are more clients than nodes, and that faults of nodes hit only nodes.
func TestScheduleHitsEveryClient(t *testing.T) {
	t.Parallel()
	hit := make(map[int]bool)
	for _, step := range Schedule(1, Plan{
		Nodes: 2, Targets: map[FaultName]int{"consumer-kill": 6}, Counts: map[FaultName]int{"consumer-kill": 100, NodeKill: 100},
	}) {
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
