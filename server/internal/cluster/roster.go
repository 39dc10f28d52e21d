package cluster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/lifecycle"
)

const (
	// announceEvery is the time between two announcements of a node. A node that has not announced
	// itself for forgetAfter counts as gone.
	announceEvery = 250 * time.Millisecond
	forgetAfter   = 1500 * time.Millisecond
	// settleAfter is how long a node listens before it accepts work: every live node has announced
	// itself by then.
	settleAfter = 2 * announceEvery
	// If the ticker of the announcements has not fired for suspendedAfter, the process was
	// suspended.
	suspendedAfter = time.Second
	// A probe starts every probeEvery and may take probeWait. A node counts as able for ableFor
	// after a probe that passed. So a single failure moves no work, yet a probe that hangs makes
	// the node unable.
	probeEvery = 500 * time.Millisecond
	probeWait  = time.Second
	ableFor    = 1500 * time.Millisecond
)

// RosterConfig configures a Roster.
type RosterConfig struct {
	// ID is this node's id. Empty means a new one from NewID.
	ID        string
	Transport Transport
	// Probe returns nil if this node can work: its store and NATS answer. It is called about every
	// 500 ms and must return once ctx ends, after 1 s. Nil means always able.
	Probe func(ctx context.Context) error
	// Store names the store that this node uses. Announcements of nodes with another store are
	// ignored.
	Store string
	// Logger receives the logs. Nil means slog.Default.
	Logger *slog.Logger
}

// Roster tracks which nodes are alive and which of them works on a bucket. Each node announces
// itself four times a second. A node whose last announcement is older than 1.5 s, by this node's
// clock, is gone.
//
// Rosters of different nodes disagree for moments, and for as long as nodes can't reach each other.
// So every answer is a hint, and acting on a wrong one must do no harm.
//
// Safe for concurrent use.
type Roster struct {
	id        string
	store     string
	transport Transport
	probe     func(ctx context.Context) error
	log       *slog.Logger

	// view holds what Owner and Owns need, so that they take no lock.
	view atomic.Pointer[view]

	life lifecycle.Base

	mu sync.Mutex // guards the fields below
	// peers holds the other live nodes by id.
	peers map[string]peer
	// draining maps the ids of leaving nodes to the time of their last announcement. They work on
	// no bucket but still answer calls about what they hold.
	draining map[string]time.Time
	// listeningSince is when this node began to hear the others without interruption.
	listeningSince time.Time
	// lastProbePassed is when this node's probe last passed.
	lastProbePassed time.Time
	leaving         bool
	changed         chan struct{}
}

// peer is another live node.
type peer struct {
	// able is true if the node's probe has passed recently, according to its last announcement.
	able bool
	// lastAnnounced is when the node last announced itself, by this node's clock.
	lastAnnounced time.Time
}

// view is a snapshot of the nodes that share the work. It is immutable.
type view struct {
	// ticked is when the ticker last fired.
	ticked time.Time
	// nodes are the sorted ids of the nodes that share the work, and able is whether they are able:
	// if none is, they are all live ones.
	nodes []string
	able  bool
	// ready is true while this node may work: it has listened for settleAfter and is not leaving.
	ready bool
}

// NewRoster creates a Roster. Until Start it knows only this node and assigns it no work.
func NewRoster(config RosterConfig) *Roster {
	r := &Roster{
		id: cmp.Or(config.ID, NewID()), store: config.Store, transport: config.Transport,
		probe: config.Probe, log: cmp.Or(config.Logger, slog.Default()), peers: make(map[string]peer),
		draining: make(map[string]time.Time), changed: make(chan struct{}),
	}
	if r.probe == nil {
		r.probe = func(context.Context) error { return nil }
	}
	r.view.Store(&view{})
	return r
}

// ID returns this node's id.
func (r *Roster) ID() string { return r.id }

// Start listens, probes and announces this node until Stop. For the first half second this node
// accepts no work while it hears which others exist. See lifecycle.Service.
func (r *Roster) Start(ctx context.Context) error {
	return r.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		now := time.Now()
		r.mu.Lock()
		r.listeningSince = now
		r.update(now, true)
		r.mu.Unlock()
		cancel, err := r.transport.Listen(topicNodes, r.onAnnouncement)
		if err != nil {
			return fmt.Errorf("listen to the other nodes: %w", err)
		}
		run.OnStop(func(context.Context) error { r.Leave(); return nil })
		run.Go(r.announceLoop)
		run.Go(r.probeLoop)
		run.OnEnd(func(context.Context) error {
			r.announce() // the last announcement must be the leaving one
			cancel()
			r.forget()
			return nil
		})
		return nil
	})
}

// Leave announces that this node is about to end. The other nodes take over its work at once and it
// accepts no more. This node still tracks the others. Leave can't be undone.
func (r *Roster) Leave() {
	r.mu.Lock()
	r.leaving = true
	r.update(time.Now(), false)
	r.mu.Unlock()
	r.announce()
}

// Stop calls Leave and ends what Start began. Afterwards Owner returns this node for every bucket,
// and Owns is always false.
func (r *Roster) Stop(ctx context.Context) error { return r.life.Stop(ctx) }

// forget removes all other nodes.
func (r *Roster) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.peers)
	clear(r.draining)
	r.update(time.Now(), false)
}

// Alive implements Peers.
func (r *Roster) Alive(node string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.peers[node]
	return ok || node == r.id
}

// Others implements Peers.
func (r *Roster) Others() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := slices.AppendSeq(slices.Collect(maps.Keys(r.peers)), maps.Keys(r.draining))
	slices.Sort(ids)
	return ids
}

// RecentlyAble reports whether a node announced within that time that it is alive and able. For
// this node it is false.
func (r *Roster) RecentlyAble(node string, within time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.peers[node]
	return ok && p.able && time.Since(p.lastAnnounced) <= within
}

// Owner returns the home of a bucket's writes: the able node that rendezvous hashing chooses. If no
// node is able, it chooses among all live ones, so that work does not move while the store is
// unavailable.
//
// It returns this node if it knows of no other, for example when it has lost NATS. A node that has
// just started or was suspended discards what it knew and is not chosen itself until it has
// listened for half a second.
func (r *Roster) Owner(bucket int) string {
	v := r.view.Load()
	if len(v.nodes) == 0 || v.stale() {
		return r.id
	}
	return rendezvous(v.nodes, bucket)
}

// Owns reports whether this node should work on a bucket: it is the Owner, is not leaving, has
// listened for half a second, and was not just suspended.
func (r *Roster) Owns(bucket int) bool {
	v := r.view.Load()
	return v.ready && !v.stale() && len(v.nodes) > 0 && rendezvous(v.nodes, bucket) == r.id
}

// AnyAble reports whether any node is able, as far as this one knows. It is true if that is not
// known because this node was just suspended.
func (r *Roster) AnyAble() bool {
	v := r.view.Load()
	return v.able || v.stale()
}

// Changed returns a channel that is closed at the next change of the nodes that share the work.
// Owner and Owns may then return something else.
func (r *Roster) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// stale reports whether the ticker is overdue: then the process was suspended and its knowledge is
// old.
func (v *view) stale() bool { return time.Since(v.ticked) > suspendedAfter }

// able reports whether a probe of this node has passed within ableFor. The caller holds mu.
func (r *Roster) able(now time.Time) bool {
	return !r.lastProbePassed.IsZero() && now.Sub(r.lastProbePassed) <= ableFor
}

// update recomputes the view, and closes changed if its nodes or ready differ from before. ticked
// is true if the ticker called it. The caller holds mu.
func (r *Roster) update(now time.Time, ticked bool) {
	old := r.view.Load()
	v := &view{ticked: old.ticked, ready: !r.leaving && now.Sub(r.listeningSince) >= settleAfter}
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
	for id, p := range r.peers {
		take(id, p.able)
	}
	if v.ready {
		take(r.id, r.able(now))
	}
	v.nodes, v.able = able, len(able) > 0
	if !v.able {
		v.nodes = live
	}
	slices.Sort(v.nodes)
	r.view.Store(v)
	if v.ready == old.ready && slices.Equal(v.nodes, old.nodes) {
		return
	}
	r.log.Info("bucket owners changed", "node_id", r.id, "nodes", v.nodes, "ready", v.ready)
	close(r.changed)
	r.changed = make(chan struct{})
}

// announceLoop announces this node and forgets silent ones until ctx ends.
func (r *Roster) announceLoop(ctx context.Context) {
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

// tick forgets nodes that have not announced themselves for forgetAfter. If this process was
// suspended, it forgets all other nodes.
func (r *Roster) tick(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if late := now.Sub(r.view.Load().ticked); late > suspendedAfter {
		r.log.Warn("process was suspended, forgetting other nodes", "duration", late)
		clear(r.peers)
		clear(r.draining)
		r.listeningSince = now
	}
	maps.DeleteFunc(r.peers, func(_ string, p peer) bool { return now.Sub(p.lastAnnounced) > forgetAfter })
	maps.DeleteFunc(r.draining, func(_ string, heard time.Time) bool { return now.Sub(heard) > forgetAfter })
	r.update(now, true)
}

// announce broadcasts once that this node is alive, or that it is leaving.
func (r *Roster) announce() {
	r.mu.Lock()
	announcement := &clusterv1.Announcement{
		NodeId: r.id, Able: r.able(time.Now()), Leaving: r.leaving, Store: r.store,
	}
	r.mu.Unlock()
	payload, err := proto.Marshal(announcement)
	if err == nil {
		err = r.transport.Broadcast(topicNodes, payload)
	}
	if err != nil {
		r.log.Debug("announcing this node failed", "error", err)
	}
}

// onAnnouncement records another node's announcement. It uses the time of receipt, because clocks
// differ.
func (r *Roster) onAnnouncement(payload []byte) {
	var announcement clusterv1.Announcement
	if err := proto.Unmarshal(payload, &announcement); err != nil || announcement.GetNodeId() == "" {
		r.log.Warn("decoding an announcement failed", "error", err)
		return
	}
	if announcement.GetNodeId() == r.id || announcement.GetStore() != r.store {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if announcement.GetLeaving() {
		delete(r.peers, announcement.GetNodeId())
		r.draining[announcement.GetNodeId()] = now
	} else {
		delete(r.draining, announcement.GetNodeId())
		r.peers[announcement.GetNodeId()] = peer{able: announcement.GetAble(), lastAnnounced: now}
	}
	r.update(now, false)
}

// probeLoop runs the probe periodically until ctx ends.
func (r *Roster) probeLoop(ctx context.Context) {
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
			r.log.WarnContext(ctx, "probe of this node failed", "error", err)
		case now.Sub(began) > probeWait: // an answer from before a suspension
		default:
			r.mu.Lock()
			r.lastProbePassed = now
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
