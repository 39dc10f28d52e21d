package remote_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/cluster/remote"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/natsbus"
	"github.com/parleyhq/parley/server/internal/store/mongostore"
	"github.com/parleyhq/parley/server/internal/testkit"
)

const patience = 20 * time.Second

// fleet is a set of nodes over one real NATS server and one real store.
type fleet struct {
	nats  *testkit.NATSServer
	nodes []*node
}

// node is a node of a fleet: the parts of a server that append messages.
type node struct {
	*cluster.Roster
	bus    *natsbus.Bus
	store  *mongostore.Store
	local  *message.Writer
	gate   *gate
	writer *remote.Writer
	// inserts counts the inserts of local.
	inserts atomic.Int64

	mu      sync.Mutex
	results map[string]int
}

// gate is an Appender whose calls can be blocked, as if the process were suspended.
type gate struct {
	message.Appender

	mu   sync.Mutex
	shut chan struct{} // nil if open
	done chan []message.Outcome
}

func (g *gate) close() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	shut := make(chan struct{})
	g.shut = shut
	return sync.OnceFunc(func() { close(shut) })
}

func (g *gate) Append(ctx context.Context, drafts []message.Draft) []message.Outcome {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut == nil {
		return g.Appender.Append(ctx, drafts)
	}
	<-shut
	outs := g.Appender.Append(context.WithoutCancel(ctx), drafts) // a suspended process does not notice its deadline
	g.done <- outs
	return outs
}

// shards is the number of shards of a fleet's store, fewer than its nodes.
const shards = 2

// nodeIDs are the ids of a fleet's nodes.
var nodeIDs = []string{"AAAAAAAAAAAAA", "BBBBBBBBBBBBB", "CCCCCCCCCCCCC"}

// newFleet starts size nodes. wait is how long their Writers wait for a home; 0 means the default.
func newFleet(t *testing.T, size int, wait time.Duration) *fleet {
	t.Helper()
	f := &fleet{nats: testkit.NATS(t)}
	database := testkit.MongoDatabase(t)
	for i := range size {
		n := &node{results: map[string]int{}}
		var err error
		n.store, err = mongostore.Open(t.Context(), mongostore.Config{
			URI: testkit.MongoURI(t), Database: database, Shards: shards,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := n.store.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		n.bus, err = natsbus.Connect(t.Context(), natsbus.Config{URL: f.nats.URL(), Shards: shards})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := n.bus.Close(); err != nil {
				t.Error(err)
			}
		})
		n.local = message.NewWriter(n.store, shards, message.WriterConfig{
			OnInsert: func(int, time.Duration, error) { n.inserts.Add(1) },
		})
		lifecycletest.Start(t, n.local)
		n.gate = &gate{Appender: n.local, done: make(chan []message.Outcome, 16)}
		n.Roster = cluster.NewRoster(cluster.RosterConfig{
			ID: nodeIDs[i], Transport: n.bus.Nodes(), Probe: n.bus.Ping,
		})
		lifecycletest.Start(t, n.Roster)
		n.writer = remote.NewWriter(cluster.NewEndpoint(n, n.bus.Nodes(), nil), n, n.gate, message.Buckets, remote.WriterConfig{
			Wait: wait, OnForward: n.forwarded,
		})
		lifecycletest.Start(t, n.writer)
		f.nodes = append(f.nodes, n)
	}
	f.settle(t, f.nodes...)
	return f
}

func (n *node) forwarded(result string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.results[result]++
}

func (n *node) forwards(result string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.results[result]
}

// settle waits until the nodes agree on the owners, all of them among these nodes.
func (f *fleet) settle(t *testing.T, nodes ...*node) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		for bucket := range message.Buckets {
			owners := 0
			for _, n := range nodes {
				if n.Owner(bucket) != nodes[0].Owner(bucket) {
					return fmt.Errorf("bucket %d is %s's and %s's", bucket, n.Owner(bucket), nodes[0].Owner(bucket))
				}
				if n.Owns(bucket) {
					owners++
				}
			}
			if owners != 1 {
				return fmt.Errorf("bucket %d has %d owners", bucket, owners)
			}
		}
		return nil
	})
}

// of returns a channel whose home is the node, as all nodes know. It waits for nodes that do not
// trust their rosters because the machine was too busy for them.
func (f *fleet) of(t *testing.T, n *node) (channelID string) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		for i := range 10_000 {
			channelID = fmt.Sprintf("channel-%d", i)
			elsewhere := func(other *node) bool { return other.Owner(message.Bucket(channelID, message.Buckets)) != n.ID() }
			if !slices.ContainsFunc(f.nodes, elsewhere) {
				return nil
			}
		}
		return errors.New("the node is home to no bucket")
	})
	return channelID
}

// send returns drafts of one channel.
func send(channelID, prefix string, n int) []message.Draft {
	drafts := make([]message.Draft, n)
	for i := range drafts {
		id := fmt.Sprintf("%s-%d", prefix, i)
		drafts[i] = message.Draft{
			ChannelID: channelID, MsgID: "m-" + id, ClientMsgID: "c-" + id, FromID: "ann", MsgType: "text", Content: id,
		}
	}
	return drafts
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustAppend(t *testing.T, n *node, drafts []message.Draft) []message.Outcome {
	t.Helper()
	outs := n.writer.Append(context.Background(), drafts)
	for i, out := range outs {
		if out.Err != nil || out.MsgID != drafts[i].MsgID || out.ClientMsgID != drafts[i].ClientMsgID || out.Seq == 0 || out.Duplicate {
			t.Errorf("%s: %+v", drafts[i].MsgID, out)
		}
	}
	return outs
}

// log returns the msg_ids of a channel's log, which must be contiguous.
func (f *fleet) log(t *testing.T, channelID string) []string {
	t.Helper()
	entries, err := f.nodes[0].store.Entries(context.Background(), channelID, message.Range{Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range entries {
		if e := &entries[i]; e.Seq != int64(i)+1 || e.Count != int64(i)+1 {
			t.Fatalf("%s: entry %d has seq %d and count %d", channelID, i, e.Seq, e.Count)
		}
		ids = append(ids, entries[i].MsgID)
	}
	return ids
}

// holds checks that the channel's log contains exactly those of the sent messages that are of this
// channel, once each.
func (f *fleet) holds(t *testing.T, channelID string, sent ...message.Draft) {
	t.Helper()
	var want []string
	for _, d := range sent {
		if d.ChannelID == channelID {
			want = append(want, d.MsgID)
		}
	}
	got := f.log(t, channelID)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s", channelID, diff)
	}
}

func TestThreeNodesWriteOneLog(t *testing.T) {
	t.Parallel()
	const channels = 12 // of which each node is home to some
	f := newFleet(t, 3, 0)
	var mu sync.Mutex
	var sent []message.Draft
	var writing sync.WaitGroup
	for i, n := range f.nodes {
		for task := range 4 {
			writing.Go(func() {
				for round := range 10 {
					var drafts []message.Draft
					for c := range channels {
						drafts = append(drafts, send(fmt.Sprintf("c%d", c), fmt.Sprintf("%d-%d-%d-%d", i, task, round, c), 2)...)
					}
					outs := mustAppend(t, n, drafts)
					for d := 1; d < len(drafts); d++ { // each sender's order is kept
						if outs[d].ChannelID == outs[d-1].ChannelID && outs[d].Seq <= outs[d-1].Seq {
							t.Errorf("%s got %d after %d", drafts[d].MsgID, outs[d].Seq, outs[d-1].Seq)
						}
					}
					mu.Lock()
					sent = append(sent, drafts...)
					mu.Unlock()
				}
			})
		}
	}
	writing.Wait()
	for c := range channels {
		f.holds(t, fmt.Sprintf("c%d", c), sent...)
	}
	for _, n := range f.nodes {
		if n.forwards(remote.ForwardAnswered) == 0 {
			t.Errorf("a node forwarded nothing: %v", n.results)
		}
		if n.inserts.Load() == 0 {
			t.Errorf("node %s stored nothing: a node must be home to some channels, although there are more nodes than shards", n.ID())
		}
	}
}

func TestResumedHomeStoresNoDuplicates(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, 0)
	asker, home := f.nodes[0], f.nodes[1]
	channelID := f.of(t, home)
	before := send(channelID, "before", 2)
	mustAppend(t, home, before) // so that home knows the log's end
	open := home.gate.close()
	t.Cleanup(open)
	during := send(channelID, "during", 20)
	began := time.Now()
	here := mustAppend(t, asker, during)
	if took := time.Since(began); took < 500*time.Millisecond || took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	// While home is suspended, it must not delay further appends.
	after := send(channelID, "after", 20)
	mustAppend(t, asker, after)
	if unanswered, shunned := asker.forwards(remote.ForwardUnanswered), asker.forwards(remote.ForwardShunned); unanswered != 1 || shunned != 1 {
		t.Errorf("%d forwards were unanswered, and %d shunned", unanswered, shunned)
	}
	open()
	woken := <-home.gate.done
	for i := range woken {
		if woken[i].Err != nil || woken[i].Seq != here[i].Seq || woken[i].MsgID != here[i].MsgID {
			t.Errorf("it says %+v of what is %+v", woken[i], here[i])
		}
	}
	f.holds(t, channelID, slices.Concat(before, during, after)...)
}

func TestConcurrentHomes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, 0)
	asker, home := f.nodes[0], f.nodes[1]
	channelID := f.of(t, home)
	var sent []message.Draft
	for round := range 5 {
		open := home.gate.close()
		timer := time.AfterFunc(500*time.Millisecond, open) // when the asker begins to write
		drafts := send(channelID, fmt.Sprint(round), 50)
		here := mustAppend(t, asker, drafts)
		woken := <-home.gate.done
		timer.Stop()
		for i := range woken {
			if woken[i].Err != nil || woken[i].Seq != here[i].Seq || woken[i].MsgID != here[i].MsgID {
				t.Errorf("it says %+v of what is %+v", woken[i], here[i])
			}
		}
		sent = append(sent, drafts...)
		<-time.After(time.Second) // until home is no longer shunned
	}
	f.holds(t, channelID, sent...)
}

func TestHomeShutdown(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, patience)
	ending, rest := f.nodes[2], f.nodes[:2]
	channelID := f.of(t, ending)
	stop := make(chan struct{})
	var mu sync.Mutex
	var sent []message.Draft
	var writing sync.WaitGroup
	for i, n := range rest {
		writing.Go(func() {
			for round := 0; ; round++ {
				select {
				case <-stop:
					return
				default:
				}
				drafts := send(channelID, fmt.Sprintf("%d-%d", i, round), 3)
				began := time.Now()
				mustAppend(t, n, drafts)
				if took := time.Since(began); took > patience/2 {
					t.Errorf("a write took %s: it waited for what had ended", took)
				}
				mu.Lock()
				sent = append(sent, drafts...)
				mu.Unlock()
			}
		})
	}
	testkit.Eventually(t, patience, func() error {
		if rest[0].forwards(remote.ForwardAnswered) < 5 {
			return errors.New("nothing was forwarded yet")
		}
		return nil
	})
	ending.Leave()
	lifecycletest.Stop(t, ending.writer)
	lifecycletest.Stop(t, ending.local)
	lifecycletest.Stop(t, ending.Roster)
	f.settle(t, rest...)
	close(stop)
	writing.Wait()
	f.holds(t, channelID, sent...)
}

func TestWithoutNATSEachNodeWritesItself(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, 0)
	channelID := f.of(t, f.nodes[1])
	f.nats.Stop()
	var sent []message.Draft
	for round := range 3 {
		for i, n := range f.nodes {
			drafts := send(channelID, fmt.Sprintf("%d-%d", i, round), 5)
			mustAppend(t, n, drafts)
			sent = append(sent, drafts...)
		}
	}
	testkit.Eventually(t, patience, func() error {
		for bucket := range message.Buckets {
			for _, n := range f.nodes {
				if n.Owner(bucket) != n.ID() {
					return fmt.Errorf("bucket %d is %s's", bucket, n.Owner(bucket))
				}
			}
		}
		return nil
	})
	f.nats.Start()
	f.settle(t, f.nodes...)
	f.holds(t, channelID, sent...)
}
