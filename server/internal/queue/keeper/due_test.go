package keeper

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/store/redislog"
)

// TestStress starts and stops keepers from many goroutines.
func TestStress(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2, "work")
	lifecycletest.Stress[*Keeper](t, func(*testing.T) *Keeper { return New(b.config(defaultTimes)) })
}

// Scheduled messages must be in the log no earlier than they are due, and soon after.
func TestDueMessagesAreMovedInTime(t *testing.T) {
	t.Parallel()
	b := newBench(t, 8, "work")
	b.start(b.config(defaultTimes))
	const perPartition = 60
	due := map[string]time.Time{}
	for p := range 8 {
		var all []qlog.Draft
		for i := range perPartition {
			all = append(all, drafts(1, time.Duration(200+i*37+p*5)*time.Millisecond)...)
		}
		for _, r := range b.put(p, all...) {
			due[r.MessageID] = r.Due
		}
	}
	var late []time.Duration
	for p := range 8 {
		b.eventually("messages are scheduled still", func() bool { return b.length(p) == perPartition })
		for _, e := range b.log(p) {
			// An entry's ID is the store's time when it was appended.
			if after := e.ID.Time().Sub(due[e.MessageID]); after < 0 {
				t.Errorf("message %s was moved %s too early", e.MessageID, -after)
			} else {
				late = append(late, after)
			}
		}
		if b.hints.count(p) == 0 {
			t.Errorf("nobody was told of partition %d", p)
		}
	}
	slices.Sort(late)
	t.Logf("late: median %s, p99 %s, most %s", late[len(late)/2], late[len(late)*99/100], late[len(late)-1])
	if p99 := late[len(late)*99/100]; p99 > 500*time.Millisecond { // 20 ms on a machine of its own
		t.Errorf("1 in 100 is %s late", p99)
	}
}

// More messages than one call moves are moved without a wait.
func TestManyMessagesAreDueTogether(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, "work")
	b.start(b.config(times{look: time.Hour, forget: time.Hour, again: time.Hour, dirty: time.Hour, round: time.Hour}))
	at := time.Now().Add(500 * time.Millisecond)
	for range 4 {
		all := drafts(600, 0)
		for i := range all {
			all[i].At = at
		}
		b.put(0, all...)
	}
	b.eventually("messages are scheduled still", func() bool { return b.length(0) == 2400 })
}

// deaf is a store whose wake-ups do not arrive.
type deaf struct{ *redislog.Store }

func (deaf) Wakeups(ctx context.Context, _ func(string, int)) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestWakeUpsThatAreLost(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2, "work")
	cfg := b.config(still)
	cfg.times.look = 200 * time.Millisecond
	cfg.Store = deaf{b.store}
	b.start(cfg)
	for p := range 2 {
		b.put(p, drafts(3, 10*time.Millisecond)...)
	}
	for p := range 2 {
		b.eventually("messages are scheduled still", func() bool { return b.length(p) == 3 })
	}
	// A due time that becomes earlier, without a wake-up.
	r := b.put(0, drafts(1, time.Hour)...)
	_, err := b.store.Reschedule(t.Context(), b.topic.Ref(0), []qlog.Reschedule{{MessageID: r[0].MessageID}})
	b.check(err)
	b.eventually("a message is scheduled still", func() bool { return b.length(0) == 4 })
}

// With wake-ups nothing waits for the next look.
func TestWakeUps(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, "work")
	b.start(b.config(still))
	r := b.put(0, drafts(1, time.Hour)...)
	_, err := b.store.Reschedule(t.Context(), b.topic.Ref(0), []qlog.Reschedule{{MessageID: r[0].MessageID, Delay: 20 * time.Millisecond}})
	b.check(err)
	b.eventually("a message is scheduled still", func() bool { return b.length(0) == 1 })
	b.put(0, drafts(1, 20*time.Millisecond)...)
	b.eventually("a message is scheduled still", func() bool { return b.length(0) == 2 })
}

// forgets counts the calls of ForgetScheduled, and lets a test do something before each.
type forgets struct {
	*redislog.Store

	mu     sync.Mutex
	calls  int
	before func(call int)
}

func (f *forgets) ForgetScheduled(ctx context.Context, ref qlog.Ref) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.before != nil {
		f.before(f.calls)
	}
	return f.Store.ForgetScheduled(ctx, ref)
}

func (f *forgets) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

func TestAPartitionWithoutScheduledMessagesIsForgottenTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, "work")
	store := &forgets{Store: b.store}
	cfg := b.config(still)
	cfg.times.look, cfg.times.forget, cfg.times.again = 20*time.Millisecond, 300*time.Millisecond, 200*time.Millisecond
	cfg.Store = store
	b.put(0, drafts(1, 50*time.Millisecond)...)
	b.start(cfg)
	b.eventually("the partition was not forgotten", func() bool { return store.count() == 2 })
	if n := b.listed(); n != 0 {
		t.Errorf("%d partitions are listed", n)
	}
	if n := b.length(0); n != 1 {
		t.Errorf("%d messages in the log", n)
	}
}

// A node that relied on the list puts a message just after the partition was taken out of it.
func TestAMessageThatIsScheduledWhileThePartitionIsForgotten(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, "work")
	store := &forgets{Store: b.store}
	cfg := b.config(still)
	cfg.times.look, cfg.times.forget, cfg.times.again = 20*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond
	cfg.Store = store
	b.put(0, drafts(1, 10*time.Millisecond)...) // registers the partition for a minute
	b.start(cfg)
	b.eventually("the partition was not forgotten", func() bool { return store.count() >= 1 && b.listed() == 0 })
	b.put(0, drafts(1, time.Hour)...)
	b.eventually("the partition is not listed again", func() bool { return b.listed() == 1 })
}

// A partition that lost its place in the list gets it back while its messages wait.
func TestAListThatWasLost(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, "work")
	cfg := b.config(still)
	cfg.times.look = 50 * time.Millisecond
	b.put(0, drafts(1, time.Hour)...)
	k := b.start(cfg)
	b.put(0, drafts(1, 10*time.Millisecond)...)
	b.eventually("a message is scheduled still", func() bool { return b.length(0) == 1 })
	for bucket := range 16 {
		b.check(b.client.Del(t.Context(), fmt.Sprintf("%sstreaming:mq:delayed:{%d}", b.prefix, bucket)).Err())
	}
	b.eventually("the partition is not listed again", func() bool { return b.listed() == 1 })
	lifecycletest.Stop(t, k)
}

func TestDueMessagesOfALostPartition(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, "work")
	b.put(0, drafts(2, 300*time.Millisecond)...)
	b.check(b.client.Del(t.Context(), b.stream(0)+":meta").Err())
	b.start(b.config(defaultTimes))
	b.eventually("messages are scheduled still", func() bool { return b.length(0) == 2 })
}

// fleet is a set of living nodes.
type fleet struct {
	mu    sync.Mutex
	nodes []string
}

func (f *fleet) Living() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.nodes)
}

// owners counts which node's calls move messages of which partition.
type owners struct {
	*redislog.Store

	node string
	mu   *sync.Mutex
	by   map[int]string
}

func (o *owners) Due(ctx context.Context, ref qlog.Ref) (int, time.Duration, error) {
	moved, next, err := o.Store.Due(ctx, ref)
	if moved > 0 {
		o.mu.Lock()
		o.by[ref.Partition] += o.node
		o.mu.Unlock()
	}
	return moved, next, err
}

func TestNodesShareThePartitions(t *testing.T) {
	t.Parallel()
	b := newBench(t, 16, "work")
	living := &fleet{nodes: []string{"a", "b"}}
	var mu sync.Mutex
	by := map[int]string{}
	for _, node := range []string{"a", "b"} {
		cfg := b.config(still)
		cfg.times.look = 100 * time.Millisecond
		cfg.Node, cfg.Fleet, cfg.Store = node, living, &owners{b.store, node, &mu, by}
		b.start(cfg)
	}
	counts := func() (a, other, both int) {
		mu.Lock()
		defer mu.Unlock()
		for _, nodes := range by {
			switch nodes {
			case "a":
				a++
			case "b":
				other++
			default:
				both++
			}
		}
		return a, other, both
	}
	for p := range 16 {
		b.put(p, drafts(1, 50*time.Millisecond)...)
	}
	b.eventually("messages are scheduled still", func() bool { a, other, both := counts(); return a+other+both == 16 })
	if a, other, both := counts(); a < 3 || other < 3 || both != 0 {
		t.Errorf("node a moved those of %d partitions, b of %d, both of %d", a, other, both)
	}
	// One dies. The other serves all, also what was scheduled before.
	for p := range 16 {
		b.put(p, drafts(1, 700*time.Millisecond)...)
	}
	mu.Lock()
	clear(by)
	mu.Unlock()
	living.mu.Lock()
	living.nodes = []string{"b"}
	living.mu.Unlock()
	for p := range 16 {
		b.eventually("messages are scheduled still", func() bool { return b.length(p) == 2 })
	}
	if a, other, both := counts(); a != 0 || other != 16 || both != 0 {
		t.Errorf("node a moved those of %d partitions, b of %d, both of %d", a, other, both)
	}
}

func TestRendezvous(t *testing.T) {
	t.Parallel()
	if got := rendezvous(nil, place{"t", 1}); got != "" {
		t.Errorf("without nodes: %q", got)
	}
	before, moved, counts := []string{"a", "b", "c"}, 0, map[string]int{}
	for i := range 3000 {
		p := place{fmt.Sprint("topic", i/8), i % 8}
		first := rendezvous(before, p)
		counts[first]++
		if then := rendezvous([]string{"a", "c"}, p); first != "b" && then != first {
			moved++
		}
	}
	if moved != 0 {
		t.Errorf("%d partitions moved between nodes that stay", moved)
	}
	for node, n := range counts {
		if n < 800 || n > 1200 {
			t.Errorf("node %s has %d of 3000 partitions", node, n)
		}
	}
	// All versions must choose alike.
	if got := rendezvous(before, place{"orders", 7}) + rendezvous(before, place{"orders", 8}); got != "ca" {
		t.Errorf("orders 7 and 8 belong to %s", got)
	}
}
