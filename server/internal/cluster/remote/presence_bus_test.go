package remote

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/cluster/clustertest"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/presence"
)

// presenceHeard records what a node hears on its bus.
type presenceHeard struct {
	mu            sync.Mutex
	announcements []presence.Announcement
	heads         []presence.ShardHead
	beats         []presence.NodeBeat
	dead          []string
}

func (h *presenceHeard) handler() presence.BusHandler {
	return presence.BusHandler{
		Announcement: func(a presence.Announcement) { add(h, &h.announcements, a) },
		Heads:        func(heads []presence.ShardHead) { add(h, &h.heads, heads...) },
		Beat:         func(b presence.NodeBeat) { add(h, &h.beats, b) },
		Dead:         func(node string) { add(h, &h.dead, node) },
	}
}

func add[T any](h *presenceHeard, list *[]T, items ...T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*list = append(*list, items...)
}

// busOf starts the bus of a node, and records what it hears.
func busOf(t *testing.T, endpoint *cluster.Endpoint) (*PresenceBus, *presenceHeard) {
	t.Helper()
	bus, heard := NewPresenceBus(endpoint, nil), &presenceHeard{}
	lifecycletest.Start(t, bus)
	cancel, err := bus.Listen(heard.handler())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cancel)
	return bus, heard
}

func TestPresenceBusReachesAllNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := clustertest.NewNet()
		a, atA := busOf(t, endpointOf(net, nodeA))
		_, atB := busOf(t, endpointOf(net, nodeB))
		now := time.UnixMicro(1_700_000_000_123_456)
		winner := &presence.Winner{
			Slot: "p1", Generation: 1 << 50, Order: 1<<50 + 1, Connection: "C", Node: "n.1", Platform: presence.Other, Device: "phone",
		}
		var want []presence.Announcement
		for shard := range presence.Shards {
			want = append(want, presence.Announcement{Shard: shard, Epoch: "e", Entries: []presence.Entry{
				{Seq: 1, At: now, UserID: "a:{b}*", State: presence.State(0).With(presence.IOS, true), Cause: presence.Repaired},
				{Seq: 2, At: now, UserID: "b", Login: winner},
				{Seq: 3, UserID: "c"},
			}})
			a.Announce(want[shard])
		}
		a.Announce(presence.Announcement{Shard: 1, Epoch: "e"}) // without entries: nothing to send
		heads := []presence.ShardHead{
			{Shard: 255, Now: now, Head: presence.Head{Epoch: "e", Seq: 9, LastAt: now.Add(-time.Second), Opened: now.Add(-time.Hour), SettledAt: now.Add(-time.Minute)}}, {Shard: 0},
		}
		beat := presence.NodeBeat{Node: "n.1", WithoutStore: 1500 * time.Millisecond}
		a.Heads(heads)
		a.Beat(beat)
		a.Dead("n.2")
		synctest.Wait()
		for name, heard := range map[string]*presenceHeard{"own": atA, "other": atB} {
			diff := cmp.Diff(want, heard.announcements) + cmp.Diff(heads, heard.heads) + cmp.Diff([]presence.NodeBeat{beat}, heard.beats) +
				cmp.Diff([]string{"n.2"}, heard.dead)
			if diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	})
}

func TestLargeAnnouncementsAreSplit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := clustertest.NewNet()
		a, heard := busOf(t, endpointOf(net, nodeA))
		var all presence.Announcement
		all.Epoch, all.Shard = "e", 17
		for i := range 10_000 {
			all.Entries = append(all.Entries, presence.Entry{Seq: int64(i) + 1, UserID: strings.Repeat("u", 128)})
		}
		a.Announce(all)
		synctest.Wait()
		var entries []presence.Entry
		for _, piece := range heard.announcements {
			if size := len(piece.Entries) * 128; size > maxAnnouncementBytes || piece.Epoch != "e" || piece.Shard != 17 {
				t.Errorf("a piece of shard %d, epoch %q, has %d bytes", piece.Shard, piece.Epoch, size)
			}
			entries = append(entries, piece.Entries...)
		}
		if diff := cmp.Diff(all.Entries, entries); diff != "" || len(heard.announcements) < 5 {
			t.Errorf("%d pieces: %s", len(heard.announcements), diff)
		}
	})
}

// stuckTransport is a transport whose broadcasts block until open is closed.
type stuckTransport struct {
	cluster.Transport

	open chan struct{}
}

func (s *stuckTransport) Broadcast(topic string, payload []byte) error {
	<-s.open
	return s.Transport.Broadcast(topic, payload)
}

// A transport that hangs holds nobody up, and what waits for it has a bound. What is queued before
// Stop is sent.
func TestPresenceBusIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := clustertest.NewNet()
		_, heard := busOf(t, endpointOf(net, nodeB))
		stuck := &stuckTransport{net.Link(), make(chan struct{})}
		peers := clustertest.Peers{Node: nodeA, Nodes: []string{nodeA, nodeB}}
		bus := NewPresenceBus(cluster.NewEndpoint(peers, stuck, nil), nil)
		bus.Dead("before Start")
		if err := bus.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		bus.Dead("first")
		synctest.Wait() // it is being sent, so it no longer counts
		for i := range 2 * maxPresenceQueue {
			bus.Dead(fmt.Sprint(i))
		}
		close(stuck.open)
		if err := bus.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		bus.Dead("after Stop")
		if n := len(heard.dead); n != 1+maxPresenceQueue || heard.dead[0] != "first" || heard.dead[n-1] != fmt.Sprint(maxPresenceQueue-1) {
			t.Errorf("%d messages arrived", n)
		}
	})
}

// deafTransport fails to listen to one topic.
type deafTransport struct {
	cluster.Transport

	topic string
	mu    *sync.Mutex // guards open
	open  *int
}

func (d deafTransport) Listen(topic string, fn func(payload []byte)) (func(), error) {
	if topic == d.topic {
		return nil, errors.New("deaf")
	}
	cancel, err := d.Transport.Listen(topic, fn)
	d.count(1)
	return func() { d.count(-1); cancel() }, err
}

func (d deafTransport) count(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*d.open += n
}

func TestPresenceBusListensToAllOrNone(t *testing.T) {
	t.Parallel()
	for _, topic := range []string{"presence-0", "presence-15", "presence-heads", "presence-beat", "presence-dead"} {
		var open int
		transport := deafTransport{clustertest.NewNet().Link(), topic, &sync.Mutex{}, &open}
		bus := NewPresenceBus(cluster.NewEndpoint(clustertest.Peers{Node: nodeA}, transport, nil), nil)
		if _, err := bus.Listen((&presenceHeard{}).handler()); err == nil || open != 0 {
			t.Errorf("%s: %v, %d subscriptions are left", topic, err, open)
		}
	}
}

func TestPresenceBusDropsWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := clustertest.NewNet()
		endpoint := endpointOf(net, nodeA)
		_, heard := busOf(t, endpoint)
		entry := func(change func(*clusterv1.PresenceEntry)) *clusterv1.PresenceAnnouncement {
			e := &clusterv1.PresenceEntry{Seq: 2, UserId: "b", Login: &clusterv1.PresenceWinner{Platform: 1}}
			change(e)
			return &clusterv1.PresenceAnnouncement{Shard: 1, Epoch: "e", Entries: []*clusterv1.PresenceEntry{{Seq: 1, UserId: "a"}, e}}
		}
		for _, w := range []*clusterv1.PresenceAnnouncement{
			{},
			{Shard: -1, Epoch: "e"},
			{Shard: presence.Shards, Epoch: "e"},
			{Shard: 1},
			entry(func(e *clusterv1.PresenceEntry) { e.Seq = 0 }), entry(func(e *clusterv1.PresenceEntry) { e.UserId = "" }),
			entry(func(e *clusterv1.PresenceEntry) { e.Cause = 256 }), entry(func(e *clusterv1.PresenceEntry) { e.Cause = -1 }),
			entry(func(e *clusterv1.PresenceEntry) { e.Login.Platform = 0 }), entry(func(e *clusterv1.PresenceEntry) { e.Login.Platform = 10 }),
			entry(func(*clusterv1.PresenceEntry) {}),
		} {
			if err := cluster.Publish(endpoint, presenceChanges[1], w); err != nil {
				t.Fatal(err)
			}
		}
		err := errors.Join(
			cluster.Publish(endpoint, presenceHeads, &clusterv1.PresenceHeads{Heads: []*clusterv1.PresenceHead{{Shard: -1}, {Shard: 256}, {Shard: 3}}}),
			cluster.Publish(endpoint, presenceBeat, &clusterv1.PresenceBeat{}),
			cluster.Publish(endpoint, presenceBeat, &clusterv1.PresenceBeat{Node: "n", WithoutStoreMs: -1}),
			cluster.Publish(endpoint, presenceDead, &clusterv1.PresenceDead{}),
		)
		synctest.Wait()
		if len(heard.announcements) != 1 || len(heard.heads) != 1 || len(heard.beats)+len(heard.dead) > 0 || err != nil {
			t.Errorf("heard %d announcements, %d heads, %d beats, %d dead: %v",
				len(heard.announcements), len(heard.heads), len(heard.beats), len(heard.dead), err)
		}
	})
}
