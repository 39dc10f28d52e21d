package remote

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/cluster/clustertest"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/revocation"
)

// TestKicksReachAllNodes checks what a kick does on other nodes, and that it names those that do
// not answer in time.
func TestKicksReachAllNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := clustertest.NewNet()
		link := net.Link()
		var got []revocation.Kick
		kick := func(n int) func(revocation.Kick) int {
			return func(k revocation.Kick) int { got = append(got, k); return n }
		}
		peers := clustertest.Peers{Node: nodeA, Nodes: []string{nodeA, nodeB}}
		a := NewKicks(cluster.NewEndpoint(peers, link, nil), kick(1))
		lifecycletest.Start(t, a)
		lifecycletest.Start(t, NewKicks(endpointOf(net, nodeB), kick(2)))
		what := revocation.Kick{
			User: "ann", Login: revocation.Login{Platform: 8, Device: "browser", Connection: "C3"}, Reason: "moved",
		}
		ended, unanswered, err := a.Kick(t.Context(), what)
		if diff := cmp.Diff(map[string]int{nodeA: 1, nodeB: 2}, ended); err != nil || len(unanswered) != 0 || diff != "" {
			t.Errorf("%v, %v: %s", unanswered, err, diff)
		}
		if diff := cmp.Diff([]revocation.Kick{what, what}, got); diff != "" {
			t.Error(diff)
		}

		net.SetNodeFate(nodeB, clustertest.Slow)
		began := time.Now()
		ended, unanswered, err = a.Kick(t.Context(), what)
		if diff := cmp.Diff(map[string]int{nodeA: 1}, ended); err != nil || diff != "" || !cmp.Equal(unanswered, []string{nodeB}) {
			t.Errorf("a slow node: %v, %v: %s", unanswered, err, diff)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v", took)
		}

		link.SetCut(true)
		got = nil
		if _, _, err = a.Kick(t.Context(), what); !fault.Is(err, fault.OutcomeUnknown) || len(got) != 1 {
			t.Errorf("cut off: %v, %d streams ended", err, len(got))
		}
	})
}
