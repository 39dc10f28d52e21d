package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/cluster/clustertest"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
)

const testBuckets = 64

// member is a node of a test, with its connection to the network and the behavior of its probes.
type member struct {
	*cluster.Roster
	link *clustertest.Link
	// sick sets what the node's probes do: 0 pass, 1 fail, 2 hang until their context ends, 3 pass far
	// too late.
	sick atomic.Int32
}

func join(t *testing.T, net *clustertest.Net) *member {
	t.Helper()
	m := &member{link: net.Link()}
	m.Roster = cluster.NewRoster(cluster.RosterConfig{
		Transport: m.link,
		Probe: func(ctx context.Context) error {
			switch m.sick.Load() {
			case 1:
				return errors.New("sick")
			case 2:
				<-ctx.Done()
				return ctx.Err()
			case 3:
				pass(4 * time.Second)
			}
			return nil
		},
	})
	lifecycletest.Start(t, m.Roster)
	return m
}

func joinAll(t *testing.T, net *clustertest.Net, n int) []*member {
	t.Helper()
	members := make([]*member, n)
	for i := range members {
		members[i] = join(t, net)
	}
	pass(time.Second + 10*time.Millisecond) // not at the moment of an announcement
	return members
}

// shares returns the owner of each bucket. It checks that all members agree on them, and that Owns
// is true on the owner alone.
func shares(t *testing.T, members ...*member) [testBuckets]string {
	t.Helper()
	var owners [testBuckets]string
	for b := range owners {
		owners[b] = members[0].Owner(b)
		for _, m := range members {
			if o := m.Owner(b); o != owners[b] {
				t.Fatalf("bucket %d is %s's to %s, and %s's to %s", b, o, m.ID(), owners[b], members[0].ID())
			}
			if owns := m.Owns(b); owns != (owners[b] == m.ID()) {
				t.Fatalf("bucket %d is %s's, and %s says %t", b, owners[b], m.ID(), owns)
			}
		}
	}
	return owners
}

func count(owners [testBuckets]string, node string) int {
	n := 0
	for _, o := range owners {
		if o == node {
			n++
		}
	}
	return n
}

func TestNodesShareBuckets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		members := joinAll(t, clustertest.NewNet(), 3)
		owners := shares(t, members...)
		for _, m := range members {
			if n := count(owners, m.ID()); n < testBuckets/3/3 {
				t.Errorf("%s has %d of %d buckets", m.ID(), n, testBuckets)
			}
			others := m.Others()
			if len(others) != 2 {
				t.Fatalf("%s knows %v", m.ID(), others)
			}
			for _, n := range others {
				if !m.Alive(n) || !m.RecentlyAble(n, cluster.AnnounceEvery) {
					t.Errorf("%s does not know that %s is able", m.ID(), n)
				}
			}
		}
		if members[0].Alive(cluster.NewID()) {
			t.Error("somebody unknown lives")
		}
	})
}

func TestOnlyTheDeadNodesBucketsMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		members := joinAll(t, clustertest.NewNet(), 3)
		before := shares(t, members...)
		dead, rest := members[0], members[1:]
		changed := rest[0].Changed()
		dead.link.SetCut(true)
		pass(cluster.ForgetAfter - cluster.AnnounceEvery - time.Millisecond)
		shares(t, rest...)
		select {
		case <-changed:
			t.Error("forgotten too early")
		default:
		}
		pass(2*cluster.AnnounceEvery + 2*time.Millisecond)
		after := shares(t, rest...)
		select {
		case <-changed:
		default:
			t.Error("nobody was told")
		}
		for b := range before {
			if before[b] != dead.ID() && after[b] != before[b] {
				t.Errorf("bucket %d moved from %s to %s", b, before[b], after[b])
			}
		}
		if count(after, dead.ID()) > 0 || rest[0].Alive(dead.ID()) {
			t.Error("the dead live on")
		}
		// A node that has lost the others considers itself the owner of all buckets.
		if n := count(shares(t, dead), dead.ID()); n != testBuckets {
			t.Errorf("the one that was cut off has %d buckets", n)
		}
		dead.link.SetCut(false)
		pass(2 * cluster.AnnounceEvery)
		if shares(t, members...) != before {
			t.Error("it did not get its buckets back")
		}
	})
}

func TestLeavingNodeReleasesBuckets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		members := joinAll(t, clustertest.NewNet(), 3)
		leaving, rest := members[0], members[1:]
		changed := leaving.Changed()
		leaving.Leave()
		after := shares(t, members...)
		if count(after, leaving.ID()) > 0 {
			t.Error("it kept buckets")
		}
		<-changed
		pass(3 * time.Second)
		if shares(t, members...) != after {
			t.Error("it came back")
		}
		lifecycletest.Stop(t, leaving.Roster)
		for b := range testBuckets {
			if leaving.Owns(b) || leaving.Owner(b) != leaving.ID() {
				t.Fatalf("after its end bucket %d is %s's, owned %t", b, leaving.Owner(b), leaving.Owns(b))
			}
		}
		shares(t, rest...)
	})
}

func TestLastAnnouncementIsLeaving(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := clustertest.NewNet()
		var last atomic.Pointer[clusterv1.Announcement]
		if _, err := net.Link().Listen(cluster.TopicNodes, func(payload []byte) {
			var word clusterv1.Announcement
			if err := proto.Unmarshal(payload, &word); err != nil {
				t.Error(err)
			}
			last.Store(&word)
		}); err != nil {
			t.Fatal(err)
		}
		m := cluster.NewRoster(cluster.RosterConfig{Transport: slowNode{net.Link()}})
		lifecycletest.Start(t, m)
		pass(cluster.AnnounceEvery + 5*time.Millisecond) // an announcement that it stays is in flight
		lifecycletest.Stop(t, m)
		if word := last.Load(); word.GetNodeId() != m.ID() || !word.GetLeaving() {
			t.Errorf("the last word was %v", word)
		}
	})
}

// slowNode is a node's connection that sends announcements 10 ms late, except the one that says
// that the node leaves.
type slowNode struct{ *clustertest.Link }

func (n slowNode) Broadcast(topic string, payload []byte) error {
	var word clusterv1.Announcement
	if err := proto.Unmarshal(payload, &word); err == nil && !word.GetLeaving() {
		pass(10 * time.Millisecond)
	}
	return n.Link.Broadcast(topic, payload)
}

func TestNewNodeListensBeforeOwning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := clustertest.NewNet()
		old := joinAll(t, net, 2)
		before := shares(t, old...)
		began := time.Now()
		young := join(t, net)
		for range 4 {
			for b := range testBuckets {
				if young.Owns(b) {
					t.Fatalf("it owns bucket %d after %s", b, time.Since(began))
				}
			}
			pass(cluster.SettleAfter/4 - time.Millisecond)
		}
		// The young node knows the others by now and forwards its writes to them.
		for b := range testBuckets {
			if o := young.Owner(b); o != before[b] {
				t.Fatalf("bucket %d is %s's to the new one, and %s's", b, o, before[b])
			}
		}
		pass(2 * cluster.AnnounceEvery)
		after := shares(t, append(old, young)...)
		for b := range after {
			if after[b] != before[b] && after[b] != young.ID() {
				t.Errorf("bucket %d moved from %s to %s", b, before[b], after[b])
			}
		}
	})
}

func TestUnableNodeOwnsNoBuckets(t *testing.T) {
	t.Parallel()
	for name, sickness := range map[string]int32{"failing": 1, "hanging": 2, "late": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				members := joinAll(t, clustertest.NewNet(), 3)
				before := shares(t, members...)
				members[0].sick.Store(sickness)
				pass(cluster.AbleFor + cluster.ProbeEvery + 2*cluster.AnnounceEvery)
				for range 20 {
					if count(shares(t, members...), members[0].ID()) > 0 {
						t.Fatal("it has work")
					}
					if !members[0].AnyAble() {
						t.Fatal("it does not know of an able node")
					}
					pass(cluster.AnnounceEvery)
				}
				// If all are sick, the store is away, and no work moves.
				members[1].sick.Store(sickness)
				members[2].sick.Store(sickness)
				pass(cluster.AbleFor + cluster.ProbeEvery + 2*cluster.AnnounceEvery)
				if shares(t, members...) != before {
					t.Error("work moved although nobody is able")
				}
				if members[0].AnyAble() {
					t.Error("it says that a node is able")
				}
				for _, m := range members {
					m.sick.Store(0)
				}
				pass(4*time.Second + cluster.ProbeEvery + 2*cluster.AnnounceEvery)
				if shares(t, members...) != before {
					t.Error("they did not recover")
				}
			})
		})
	}
}

func TestSingleFailedProbeIsTolerated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		members := joinAll(t, clustertest.NewNet(), 2)
		changed := members[1].Changed()
		members[0].sick.Store(1)
		pass(cluster.ProbeEvery)
		members[0].sick.Store(0)
		pass(3 * time.Second)
		select {
		case <-changed:
			t.Error("work was shared out anew")
		default:
		}
	})
}

func TestSuspendedNodeForgetsPeers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		members := joinAll(t, clustertest.NewNet(), 3)
		before := shares(t, members...)
		woken := members[0]
		// The state of the first caller after a SIGCONT: the ticker is overdue and has not fired
		// yet.
		woken.AgeView(20 * time.Second)
		members[1].link.SetCut(true) // it died meanwhile
		members[2].link.SetCut(true) // and the other one is not heard yet
		for b := range testBuckets {
			if woken.Owns(b) || woken.Owner(b) != woken.ID() {
				t.Fatalf("with an old view bucket %d is %s's, owned %t", b, woken.Owner(b), woken.Owns(b))
			}
		}
		changed := woken.Changed()
		pass(cluster.AnnounceEvery)
		synctest.Wait()
		<-changed
		for b := range testBuckets {
			if woken.Owns(b) || woken.Owner(b) != woken.ID() || woken.Alive(members[1].ID()) {
				t.Fatalf("bucket %d is %s's, owned %t", b, woken.Owner(b), woken.Owns(b))
			}
		}
		members[2].link.SetCut(false)
		pass(cluster.AnnounceEvery)
		synctest.Wait()
		for b := range testBuckets {
			if woken.Owns(b) || woken.Owner(b) != members[2].ID() {
				t.Fatalf("with one other heard bucket %d is %s's, owned %t", b, woken.Owner(b), woken.Owns(b))
			}
		}
		members[1].link.SetCut(false)
		pass(time.Second)
		if shares(t, members...) != before {
			t.Error("they did not come together again")
		}
	})
}

func TestInvalidAnnouncementIsIgnored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := clustertest.NewNet()
		m := joinAll(t, net, 1)[0]
		own, err := proto.Marshal(&clusterv1.Announcement{NodeId: m.ID(), Leaving: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range [][]byte{nil, {0xff}, []byte("hello"), own} {
			if err := net.Link().Broadcast(cluster.TopicNodes, word); err != nil {
				t.Fatal(err)
			}
		}
		if others := m.Others(); len(others) != 0 || count(shares(t, m), m.ID()) != testBuckets {
			t.Errorf("it knows %v", others)
		}
	})
}

func TestRosterThatNeverStarted(t *testing.T) {
	t.Parallel()
	r := cluster.NewRoster(cluster.RosterConfig{ID: "ME", Transport: clustertest.NewNet().Link()})
	lifecycletest.Stop(t, r)
	if r.Owns(1) || r.Owner(1) != "ME" || r.ID() != "ME" || !r.Alive("ME") || len(r.Others()) != 0 {
		t.Error("a node that never started has work")
	}
}

func TestBucketsAreSpreadEvenly(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3, 5, 9} {
		nodes := make([]string, n)
		for i := range nodes {
			nodes[i] = cluster.NewID()
		}
		const buckets = 20_000
		got := map[string]int{}
		for b := range buckets {
			got[cluster.Rendezvous(nodes, b)]++
		}
		for _, node := range nodes {
			if share := float64(got[node]) * float64(n) / buckets; share < 0.9 || share > 1.1 {
				t.Errorf("of %d nodes one has %.2f of its share", n, share)
			}
		}
	}
	// The choice must never change, because nodes of two versions run side by side.
	if got := fmt.Sprint(cluster.Rendezvous([]string{"A", "B", "C"}, 0), cluster.Rendezvous([]string{"A", "B", "C"}, 1),
		cluster.Rendezvous([]string{"A", "B", "C"}, 2), cluster.Rendezvous([]string{"A", "B", "C"}, 3)); got != rendezvousGolden {
		t.Errorf("got %s", got)
	}
}

const rendezvousGolden = "ABAC"

func BenchmarkOwner(b *testing.B) {
	r := cluster.NewRoster(cluster.RosterConfig{Transport: clustertest.NewNet().Link()})
	r.SetView(time.Now().Add(time.Hour), cluster.NewID(), cluster.NewID(), cluster.NewID())
	for b.Loop() {
		r.Owner(7)
	}
}

// pass waits for d, which takes no real time in a synctest bubble.
func pass(d time.Duration) { <-time.After(d) }
