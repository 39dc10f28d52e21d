package consume

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestPlan lets nodes come, go and change at random, and each follow its plan until nothing changes.
// Then every partition has a holder, quotas are met, and no more leases moved than had to.
func TestPlan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		holders := make([]string, rapid.IntRange(1, 64).Draw(t, "partitions"))
		var members []member
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			members = nil
			for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
				members = append(members, member{fmt.Sprintf("n%d", i), rapid.IntRange(1, 50).Draw(t, "capacity")})
			}
			before := append([]string(nil), holders...)
			settle(t, holders, members)
			held := map[string]int{}
			for _, h := range holders {
				held[h]++
			}
			quota := quotas(len(holders), members, held)
			moved := 0
			for p := range holders {
				if before[p] != "" && before[p] != holders[p] {
					moved++
				}
			}
			must := 0
			was := map[string]int{}
			for _, h := range before {
				was[h]++
			}
			for node, n := range was {
				if node != "" {
					must += max(0, n-quota[node])
				}
			}
			if moved != must {
				t.Fatalf("%d leases moved, %d had to: %v became %v with %v", moved, must, before, holders, members)
			}
		}
	})
}

// settle lets every node follow its plan until no plan asks for anything.
func settle(t *rapid.T, holders []string, members []member) {
	nodes := map[string]bool{}
	for _, h := range holders {
		nodes[h] = true
	}
	for _, m := range members {
		nodes[m.node] = true
	}
	delete(nodes, "")
	for range 10 {
		quiet := true
		for node := range nodes {
			todo := plan(holders, members, node)
			for _, p := range todo.acquire {
				holders[p], quiet = node, false
			}
			for p := range holders {
				if todo.release > 0 && holders[p] == node {
					holders[p], quiet = "", false
					todo.release--
				}
			}
		}
		if quiet {
			for _, h := range holders {
				if h == "" {
					t.Fatalf("nobody acquires a free partition: %v with %v", holders, members)
				}
			}
			return
		}
	}
	t.Fatalf("the nodes never agree: %v with %v", holders, members)
}

// TestPlanLeavesHeldPartitions: a partition whose holder is no member of the group is not free.
func TestPlanLeavesHeldPartitions(t *testing.T) {
	t.Parallel()
	got := plan([]string{"other", "other", ""}, []member{{"me", 1}}, "me")
	if len(got.acquire) != 1 || got.acquire[0] != 2 {
		t.Errorf("acquires %v, not only the free one", got.acquire)
	}
	if got := plan([]string{"me", "me"}, []member{{"other", 1}}, "me"); got.release != 2 {
		t.Errorf("a node without sessions releases %d of its 2 partitions", got.release)
	}
}
