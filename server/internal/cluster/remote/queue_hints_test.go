package remote

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/cluster/clustertest"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
)

// heard records the partitions passed to a listener.
type heard struct {
	mu  sync.Mutex
	got []int
}

func (h *heard) add(partition int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got = append(h.got, partition)
}

// take returns the partitions heard since the last call, sorted.
func (h *heard) take() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	got := h.got
	h.got = nil
	slices.Sort(got)
	return got
}

func listenTo(t *testing.T, h *QueueHints, topic string) *heard {
	t.Helper()
	out := &heard{}
	cancel, err := h.Listen(topic, out.add)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cancel)
	return out
}

// words returns a function that returns the number of broadcasts about a topic since its last call.
func words(t *testing.T, net *clustertest.Net, topic string) func() int {
	t.Helper()
	var mu sync.Mutex
	n := 0
	cancel, err := net.Link().Listen(hintTopic(topic), func([]byte) {
		mu.Lock()
		defer mu.Unlock()
		n++
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cancel)
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		m := n
		n = 0
		return m
	}
}

func TestHintsReachAllNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := clustertest.NewNet()
		link := net.Link()
		a, b := NewQueueHints(link, nil), NewQueueHints(net.Link(), nil)
		lifecycletest.Start(t, a)
		lifecycletest.Start(t, b)
		long := strings.Repeat("t", 64)
		for _, topic := range []string{"jobs", long} {
			atA, atB, sent := listenTo(t, a, topic), listenTo(t, b, topic), words(t, net, topic)
			other := listenTo(t, b, topic[1:])
			a.Ready(topic, 3)
			a.Ready(topic, 256-1)
			a.Ready(topic, 256) // not a partition
			a.Ready(topic, 3)
			if diff := cmp.Diff([]int{3, 3, 255}, atA.take()); diff != "" {
				t.Errorf("%s: this node's own, before anything was sent: %s", topic, diff)
			}
			if diff := cmp.Diff([]int{3}, atB.take()); diff != "" {
				t.Errorf("%s: at once: %s", topic, diff)
			}
			pass(hintEvery)
			synctest.Wait()
			if diff := cmp.Diff([]int{3, 255}, atB.take()); diff != "" || sent() != 2 {
				t.Errorf("%s: a millisecond later: %s", topic, diff)
			}
			pass(10 * hintEvery)
			synctest.Wait()
			if a, b, n := atA.take(), atB.take(), sent(); a != nil || b != nil || n != 0 || other.take() != nil {
				t.Errorf("%s: told again: %v, %v, %d words", topic, a, b, n)
			}
		}
		// No other node can be reached, which is not an error. This node's own listeners are still
		// called.
		atA := listenTo(t, a, "jobs")
		link.SetCut(true)
		a.Ready("jobs", 1)
		pass(2 * probeValidFor)
		if a.Connected() || !b.Connected() || len(atA.take()) != 1 {
			t.Error("a node that is cut off does not know it")
		}
		link.SetCut(false)
		pass(2 * probeValidFor)
		if !a.Connected() {
			t.Error("a node that is back does not know it")
		}
	})
}

// A flood of hints causes one broadcast per millisecond, and the last hint is delivered too.
func TestHintsAreCoalesced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := clustertest.NewNet()
		a, b := NewQueueHints(net.Link(), nil), NewQueueHints(net.Link(), nil)
		lifecycletest.Start(t, a)
		atB, sent := listenTo(t, b, "jobs"), words(t, net, "jobs")
		const ms = 20
		for i := range ms * 100 {
			a.Ready("jobs", i%8)
			pass(hintEvery / 100)
		}
		a.Ready("jobs", 9)
		pass(2 * hintEvery)
		synctest.Wait()
		if got := atB.take(); len(got) == 0 || got[len(got)-1] != 9 {
			t.Errorf("the last hint was not told: %v", got)
		}
		if n := sent(); n < ms || n > ms+2 {
			t.Errorf("%d words in %d ms", n, ms)
		}
		pass(time.Second)
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.waiting) > 0 {
			t.Errorf("%d topics are remembered for ever", len(a.waiting))
		}
	})
}

func TestHintsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := clustertest.NewNet()
		a := NewQueueHints(net.Link(), nil)
		lifecycletest.Start(t, a)
		sent := words(t, net, "jobs")
		at := &heard{}
		cancel, err := a.Listen("jobs", at.add)
		if err != nil {
			t.Fatal(err)
		}
		a.Ready("jobs", 1)
		a.Ready("jobs", 2)
		cancel()
		lifecycletest.Stop(t, a)
		a.Ready("jobs", 3)
		pass(time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]int{1, 2}, at.take()); diff != "" || sent() != 1 {
			t.Errorf("after the end: %s", diff)
		}
	})
}
