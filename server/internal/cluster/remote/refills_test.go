package remote

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/cluster/clustertest"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
)

// refilled records the calls of a Refills' function.
type refilled struct {
	mu  sync.Mutex
	got map[string]int64
	n   int
}

func (r *refilled) refill(channelID string, seq int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.got == nil {
		r.got = make(map[string]int64)
	}
	r.got[channelID] = seq
	r.n++
}

// take returns the calls since the last take, and how many they were.
func (r *refilled) take() (got map[string]int64, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	got, n = r.got, r.n
	r.got, r.n = nil, 0
	return got, n
}

// TestRefillsReachTheOwner checks that a hint reaches the node that owns the channel's shard, and
// no other, at most once a second for each channel, and that a hint that cannot be sent is lost.
func TestRefillsReachTheOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const shards = 4
		net := clustertest.NewNet()
		nodeOf := owners{owner: func(shard int) string { return []string{nodeA, nodeB}[shard%2] }}
		var atA, atB refilled
		a := NewRefills(endpointOf(net, nodeA), nodeOf, shards, atA.refill, nil)
		b := NewRefills(endpointOf(net, nodeB), nodeOf, shards, atB.refill, nil)
		lifecycletest.Start(t, a)
		lifecycletest.Start(t, b)
		wantA, wantB := map[string]int64{}, map[string]int64{}
		hint := func() {
			for i := range 20 {
				id := fmt.Sprint("~s", i)
				want := wantA
				if message.Shard(id, shards)%2 == 1 {
					want = wantB
				}
				want[id] = int64(i)
				for range 50 {
					a.Hint(id, int64(i))
				}
			}
		}
		for range 2 {
			hint()
			pass(refillDelay + refillEvery/2)
			synctest.Wait()
			gotA, nA := atA.take()
			gotB, nB := atB.take()
			if diff := cmp.Diff([]map[string]int64{wantA, wantB}, []map[string]int64{gotA, gotB}); diff != "" || nA+nB != 20 {
				t.Errorf("%d refills: %s", nA+nB, diff)
			}
			hint() // within the second
			pass(refillEvery / 2)
			synctest.Wait()
			if got, n := atA.take(); n > 0 {
				t.Errorf("again within a second: %v", got)
			}
		}
		lifecycletest.Stop(t, b)
		hint()
		pass(2 * refillEvery)
		synctest.Wait()
		if got, _ := atA.take(); len(got) != len(wantA) {
			t.Errorf("while the other owner is away: %v", got)
		}
		if got, _ := atB.take(); got != nil {
			t.Errorf("after Stop: %v", got)
		}
	})
}

// TestHintsOfRefillsAreBounded checks that hints about more channels than are remembered are lost,
// and that there is room again a second later.
func TestHintsOfRefillsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var at refilled
		r := NewRefills(endpointOf(clustertest.NewNet(), nodeA), owners{owner: func(int) string { return nodeA }}, 1, at.refill, nil)
		lifecycletest.Start(t, r)
		for i := range maxHinted + 100 {
			r.Hint(fmt.Sprint("~s", i), 1)
		}
		pass(refillEvery + time.Millisecond)
		synctest.Wait()
		if _, n := at.take(); n != maxHinted {
			t.Errorf("%d refills", n)
		}
		r.Hint("~more", 1)
		pass(refillDelay)
		synctest.Wait()
		if got, _ := at.take(); got["~more"] != 1 {
			t.Errorf("a second later: %v", got)
		}
	})
}
