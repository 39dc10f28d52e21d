package cluster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/lifecycle"
)

const (
	// announceEvery is the time between two words of a node, forgetAfter how long the last one counts.
	announceEvery = 250 * time.Millisecond
	forgetAfter   = 1500 * time.Millisecond
	// settleAfter is how long a node listens before it takes work: whoever lives has spoken by then.
	settleAfter = 2 * announceEvery
	// stoppedAfter is how late the ticker must be for the process to have been stopped.
	stoppedAfter = time.Second
	// A probe every probeEvery, each of at most probeWait, and a node is able for ableFor after one that passed. So a single
	// failure moves no work about, and one that hangs makes the node unable all the same.
	probeEvery = 500 * time.Millisecond
	probeWait  = time.Second
	ableFor    = 1500 * time.Millisecond
)

// RosterConfig is what a Roster works with.
type RosterConfig struct {
	// ID is this node's; NewID's if empty.
	ID        string
	Transport Transport
	// Probe tells whether this node can do its work, by asking its store and NATS. It must return once ctx has ended, which
	// is after 1 s. Nil is always able.
	Probe func(ctx context.Context) error
	// Address is the API's, for people.
	Address string
	// Store names the store that this node works on. Nodes of another store are not heard.
	Store string
	// Logger is slog.Default if nil.
	Logger *slog.Logger
}

// Roster knows which nodes live, as far as one can know, and which of them does a bucket's work. Each node says four
// times a second that it is there. Who was not heard of for 1.5 s, by our own clock, is gone.
//
// Rosters of different nodes differ for moments, and for as long as nodes can't reach each other. So each answer is a
// hint, and whoever works by it must do no harm if it is wrong.
//
// Safe for concurrent use.
type Roster struct {
	id, address string
	store       string
	started     time.Time
	transport   Transport
	probe       func(ctx context.Context) error
	log         *slog.Logger

	// view is what Owner and Owns answer from, without a lock.
	view atomic.Pointer[view]

	life lifecycle.Base

	mu sync.Mutex // guards what follows
	// peers are the other nodes that live, by id.
	peers map[string]Node
	// draining has the other nodes that are leaving, by when they last said so. They do no bucket's work, and still answer
	// calls about what they hold.
	draining map[string]time.Time
	// listening is since when others are heard without a break.
	listening time.Time
	// passed is when a probe last passed.
	passed  time.Time
	leaving bool
	changed chan struct{}
}

// view is a moment's answer to who works. It is not changed once it is made.
type view struct {
	// ticked is when the ticker last went.
	ticked time.Time
	// nodes are those that work is shared out among, in order of their ids.
	nodes []string
	// settled is true once this node may work at all.
	settled bool
}

// NewRoster makes a Roster, which Start starts. Until then it knows this node alone, and gives it no work.
func NewRoster(config RosterConfig) *Roster {
	r := &Roster{
		id: cmp.Or(config.ID, NewID()), address: config.Address, store: config.Store, started: time.Now(), transport: config.Transport,
		probe: config.Probe, log: cmp.Or(config.Logger, slog.Default()), peers: make(map[string]Node),
		draining: make(map[string]time.Time), changed: make(chan struct{}),
	}
	if r.probe == nil {
		r.probe = func(context.Context) error { return nil }
	}
	r.view.Store(&view{})
	return r
}

// ID is this node's.
func (r *Roster) ID() string { return r.id }

// Start begins to listen, to probe and to announce this node, until Stop. It takes no work for the first half second, in
// which it hears who else is there. See lifecycle.Service.
func (r *Roster) Start(ctx context.Context) error {
	return r.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		now := time.Now()
		r.mu.Lock()
		r.listening = now
		r.update(now, true)
		r.mu.Unlock()
		unhear, err := r.transport.Listen(topicNodes, r.hear)
		if err != nil {
			return fmt.Errorf("listen to the other nodes: %w", err)
		}
		run.OnStop(func(context.Context) error { r.Leave(); return nil })
		run.Go(r.announcing)
		run.Go(r.probing)
		run.OnEnd(func(context.Context) error {
			r.announce() // for the last word must be that it leaves
			unhear()
			r.forget()
			return nil
		})
		return nil
	})
}

// Leave says that this node is about to end: the others share its work out at once, and it takes none any more. It goes
// on knowing the others. Nothing takes it back.
func (r *Roster) Leave() {
	r.mu.Lock()
	r.leaving = true
	r.update(time.Now(), false)
	r.mu.Unlock()
	r.announce()
}

// Stop leaves and ends what Start began. From then on Owner names this node for every bucket, and Owns none.
func (r *Roster) Stop(ctx context.Context) error { return r.life.Stop(ctx) }

// forget forgets the others.
func (r *Roster) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.peers)
	clear(r.draining)
	r.update(time.Now(), false)
}

// Nodes are the nodes that live, this one too, in order of their ids.
func (r *Roster) Nodes() []Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	nodes := append(slices.Collect(maps.Values(r.peers)),
		Node{ID: r.id, Able: r.able(now), Address: r.address, Started: r.started, Heard: now})
	slices.SortFunc(nodes, func(a, b Node) int { return strings.Compare(a.ID, b.ID) })
	return nodes
}

// Lives reports whether a node was heard of just now. This node lives.
func (r *Roster) Lives(node string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.peers[node]
	return ok || node == r.id
}

// Others implements Peers: the ids, sorted, of the other nodes that were heard of within the last 1.5 s, also of those that
// are leaving.
func (r *Roster) Others() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := slices.AppendSeq(slices.Collect(maps.Keys(r.peers)), maps.Keys(r.draining))
	slices.Sort(ids)
	return ids
}

// Works reports whether a node has said within that time that it lives and is able. This node is not asked.
func (r *Roster) Works(node string, within time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	peer, ok := r.peers[node]
	return ok && peer.Able && time.Since(peer.Heard) <= within
}

// Owner is the home of a bucket's writes: of the able nodes, the one that rendezvous hashing chooses. If none is able it
// is chosen of all that live, so that work is not moved about while the store is away. It is this node if it knows of no
// other, as when it has lost NATS; a node that has just started, or that was stopped meanwhile, counts as unknown until
// it has listened for half a second, and so does all that it knew before.
func (r *Roster) Owner(bucket int) string {
	v := r.view.Load()
	if len(v.nodes) == 0 || v.stale() {
		return r.id
	}
	return rendezvous(v.nodes, bucket)
}

// Owns reports whether this node is to do a bucket's work: it is its Owner, and neither leaves nor is new, nor was it
// stopped just now.
func (r *Roster) Owns(bucket int) bool {
	v := r.view.Load()
	return v.settled && !v.stale() && len(v.nodes) > 0 && rendezvous(v.nodes, bucket) == r.id
}

// Changed gives a channel that is closed when the answers of Owner and Owns may have changed since this call.
func (r *Roster) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// stale reports whether the ticker should have gone long ago: then the process was stopped, and what it knows is old.
func (v *view) stale() bool { return time.Since(v.ticked) > stoppedAfter }

// able reports whether this node can work. mu is held.
func (r *Roster) able(now time.Time) bool { return !r.passed.IsZero() && now.Sub(r.passed) <= ableFor }

// update makes the view anew. ticked says that it is the ticker that asks. mu is held.
func (r *Roster) update(now time.Time, ticked bool) {
	old := r.view.Load()
	v := &view{ticked: old.ticked, settled: !r.leaving && now.Sub(r.listening) >= settleAfter}
	if ticked {
		v.ticked = now
	}
	able, live := make([]string, 0, len(r.peers)+1), make([]string, 0, len(r.peers)+1)
	take := func(id string, isAble bool) {
		live = append(live, id)
		if isAble {
			able = append(able, id)
		}
	}
	for id, peer := range r.peers {
		take(id, peer.Able)
	}
	if v.settled {
		take(r.id, r.able(now))
	}
	v.nodes = able
	if len(able) == 0 {
		v.nodes = live
	}
	slices.Sort(v.nodes)
	r.view.Store(v)
	if v.settled == old.settled && slices.Equal(v.nodes, old.nodes) {
		return
	}
	r.log.Info("work is shared out anew", "node_id", r.id, "nodes", v.nodes, "settled", v.settled)
	close(r.changed)
	r.changed = make(chan struct{})
}

// announcing tells the others of this node, and forgets those that are silent, until ctx ends.
func (r *Roster) announcing(ctx context.Context) {
	tick := time.NewTicker(announceEvery)
	defer tick.Stop()
	for {
		r.announce()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.tick(time.Now())
		}
	}
}

// tick forgets those who are silent, and all that it knew if the process was stopped.
func (r *Roster) tick(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if late := now.Sub(r.view.Load().ticked); late > stoppedAfter {
		r.log.Warn("this process was stopped; what it knew of other nodes is forgotten", "for", late)
		clear(r.peers)
		clear(r.draining)
		r.listening = now
	}
	maps.DeleteFunc(r.peers, func(_ string, n Node) bool { return now.Sub(n.Heard) > forgetAfter })
	maps.DeleteFunc(r.draining, func(_ string, heard time.Time) bool { return now.Sub(heard) > forgetAfter })
	r.update(now, true)
}

// announce says once that this node is there, or that it leaves.
func (r *Roster) announce() {
	r.mu.Lock()
	word := &clusterv1.Announcement{
		NodeId: r.id, Able: r.able(time.Now()), Leaving: r.leaving, StartedMs: r.started.UnixMilli(), Address: r.address, Store: r.store,
	}
	r.mu.Unlock()
	payload, err := proto.Marshal(word)
	if err == nil {
		err = r.transport.Broadcast(topicNodes, payload)
	}
	if err != nil {
		r.log.Debug("announce this node", "error", err)
	}
}

// hear takes another node's word. The time that counts is now: clocks differ.
func (r *Roster) hear(payload []byte) {
	var word clusterv1.Announcement
	if err := proto.Unmarshal(payload, &word); err != nil || word.GetNodeId() == "" {
		r.log.Warn("a node's word can't be read", "error", err)
		return
	}
	if word.GetNodeId() == r.id || word.GetStore() != r.store {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if word.GetLeaving() {
		delete(r.peers, word.GetNodeId())
		r.draining[word.GetNodeId()] = now
	} else {
		delete(r.draining, word.GetNodeId())
		r.peers[word.GetNodeId()] = Node{
			ID: word.GetNodeId(), Able: word.GetAble(), Address: word.GetAddress(),
			Started: time.UnixMilli(word.GetStartedMs()).UTC(), Heard: now,
		}
	}
	r.update(now, false)
}

// probing asks whether this node can work, until ctx ends.
func (r *Roster) probing(ctx context.Context) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		began := time.Now()
		probe, cancel := context.WithTimeout(ctx, probeWait)
		err := r.probe(probe)
		cancel()
		now := time.Now()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.log.WarnContext(ctx, "this node's own probe failed", "error", err)
		case now.Sub(began) > probeWait: // an answer from before a stop
		default:
			r.mu.Lock()
			r.passed = now
			r.update(now, false)
			r.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
