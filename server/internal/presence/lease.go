package presence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// storelessLimit is how long peers renew the lease of a node that cannot reach the store.
	storelessLimit = 15 * time.Second
	// handOverAfter is how long a node that alone cannot reach the store keeps its streams.
	handOverAfter = 10 * time.Second
	// reviveAfter is how long a node that learns that it was declared dead waits before it writes
	// again, so that the ends of connections that it has slept through are noticed first.
	reviveAfter = 500 * time.Millisecond
)

// lease renews this node's lease and those of the peers that it hears, and knows which nodes are
// alive and dead.
type lease struct {
	cfg *Config
	hub leaseHub

	mu sync.Mutex // guards the fields below
	// id is this node's presence id: the node's id and a number that grows with each death.
	id     string
	deaths int
	state  leaseState
	// peers holds the other nodes that were heard, by presence id.
	peers map[string]peer
	// alive holds when a node was last known to have a lease, by this node's clock.
	alive map[string]time.Time
	dead  []string
	// leased is when the last beat began that gave this id its lease. It is zero if none has.
	leased time.Time
	// stored is when the store last responded to a beat. peersSeen is set once another node was
	// heard, and sent once the streams of the present isolation were told to reconnect.
	stored    time.Time
	peersSeen bool
	sent      bool

	hurried chan struct{}
	began   time.Time
}

// leaseState is whether the node writes under its presence id.
//
//	leaseHeld ---- declaredDead --> leaseReviving
//	leaseHeld ---- leave ---------> leaseLeft
//	leaseReviving - leave --------> leaseLeft
//	leaseReviving - revived ------> leaseHeld
type leaseState uint8

const (
	// leaseHeld: it does, and renews its lease.
	leaseHeld leaseState = iota
	// leaseReviving: it was declared dead and has a new id, under which it renews its lease but does
	// not write yet.
	leaseReviving
	// leaseLeft: it shuts down. It lets its lease end, so that its users who do not return elsewhere
	// are removed.
	leaseLeft
)

type peer struct {
	heard        time.Time
	withoutStore time.Duration
}

// leaseHub is what a lease needs of the hub.
type leaseHub interface {
	// revive is called after this node was declared dead. Nothing is written until it has called
	// revived.
	revive()
	// deathsKnown is called with the nodes that are dead, after each beat.
	deathsKnown(dead []string)
	// handOver makes the streams reconnect to other nodes.
	handOver(reason string)
}

func newLease(cfg *Config, hub leaseHub) *lease {
	now := time.Now()
	return &lease{
		cfg: cfg, hub: hub, id: presenceIDOf(cfg.Node, 1), began: now, stored: now,
		peers: map[string]peer{}, alive: map[string]time.Time{}, hurried: make(chan struct{}, 1),
	}
}

func presenceIDOf(node string, n int) string { return fmt.Sprintf("%s.%d", cmp.Or(node, "node"), n) }

// nodeOf returns the id of the node that has a presence id.
func nodeOf(presenceID string) string {
	return presenceID[:max(strings.LastIndexByte(presenceID, '.'), 0)]
}

// current returns the presence id, and whether the node may write under it.
func (l *lease) current() (id string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id, l.state == leaseHeld
}

// leasedSince reports whether the store has this node's lease from a beat that began after a time.
// If it has not, the next beat happens at once.
func (l *lease) leasedSince(at time.Time) bool {
	l.mu.Lock()
	ok := l.leased.After(at)
	l.mu.Unlock()
	if !ok {
		l.hurry()
	}
	return ok
}

// leave ends the renewal of the lease and all writes, permanently.
func (l *lease) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = leaseLeft
}

// left reports whether leave was called.
func (l *lease) left() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == leaseLeft
}

// beats renews leases until ctx ends.
func (l *lease) beats(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-l.hurried:
		}
		if l.left() {
			return
		}
		began := time.Now()
		l.beat(ctx)
		timer.Reset(max(l.interval()-time.Since(began), 10*time.Millisecond))
	}
}

// hurry makes the next beat happen at once: a node is dead, and the beat's result says which.
func (l *lease) hurry() {
	select {
	case l.hurried <- struct{}{}:
	default:
	}
}

// interval returns the time between two beats: a quarter of the lease, and a sixteenth while a peer
// is silent, so that its death is noticed soon.
func (l *lease) interval() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, p := range l.peers {
		if now.Sub(p.heard) > l.cfg.LeaseTTL/2 {
			return l.cfg.LeaseTTL / 16
		}
	}
	return l.cfg.LeaseTTL / 4
}

func (l *lease) beat(ctx context.Context) {
	began := time.Now()
	id, heard, withoutStore := l.prepare(began)
	l.cfg.Bus.Beat(NodeBeat{Node: id, WithoutStore: withoutStore})
	ctx, cancel := context.WithTimeout(ctx, min(l.cfg.StoreTimeout, l.cfg.LeaseTTL/2))
	defer cancel()
	r, err := l.cfg.Store.Beat(ctx, Beat{Node: id, TTL: l.cfg.LeaseTTL, Heard: heard})
	now := time.Now()
	if err != nil {
		if ctx.Err() == nil || errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			l.cfg.Logger.Debug("renewing the presence lease failed", slog.Any("error", err))
		}
		l.isolated(now)
		return
	}
	l.mu.Lock()
	l.stored, l.sent = now, false
	if id == l.id && !r.IsDead(id) {
		l.leased = began
	}
	for _, node := range r.Alive {
		l.alive[node] = now
	}
	for _, node := range r.Dead {
		delete(l.alive, node)
		delete(l.peers, node)
	}
	found := newDead(l.dead, r.Dead)
	l.dead = r.Dead
	l.mu.Unlock()
	for _, node := range found {
		l.cfg.Bus.Dead(node)
	}
	if r.IsDead(id) {
		l.declaredDead(id)
	}
	l.hub.deathsKnown(r.Dead)
}

// newDead returns the nodes of now that are not in before.
func newDead(before, now []string) []string {
	var found []string
	for _, node := range now {
		if !slices.Contains(before, node) {
			found = append(found, node)
		}
	}
	return found
}

// prepare returns what the next beat carries.
func (l *lease) prepare(now time.Time) (id string, heard []Heard, withoutStore time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for node, p := range l.peers {
		age := now.Sub(p.heard)
		if age > 2*l.cfg.LeaseTTL {
			delete(l.peers, node)
			continue
		}
		if p.withoutStore < storelessLimit {
			heard = append(heard, Heard{Node: node, Age: age})
		}
	}
	slices.SortFunc(heard, func(a, b Heard) int { return cmp.Compare(a.Node, b.Node) })
	if withoutStore = now.Sub(l.stored); withoutStore <= l.cfg.LeaseTTL/2 {
		withoutStore = 0
	}
	return l.id, heard, withoutStore
}

// heardOf records a peer's sign of life.
func (l *lease) heardOf(b NodeBeat) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.Node == l.id || slices.Contains(l.dead, b.Node) {
		return
	}
	l.peersSeen = true
	l.peers[b.Node] = peer{heard: time.Now(), withoutStore: b.WithoutStore}
}

// isolated makes the streams reconnect elsewhere if this node cannot reach the store and others
// can. It does so once if the node is cut off from the store and from its peers for so long that it
// is dead.
func (l *lease) isolated(now time.Time) {
	l.mu.Lock()
	storeless := now.Sub(l.stored)
	able, silent := false, true
	for _, p := range l.peers {
		able = able || p.withoutStore == 0 && now.Sub(p.heard) < l.cfg.LeaseTTL/2
		silent = silent && now.Sub(p.heard) > l.cfg.LeaseTTL/2
	}
	reason, again := "", l.sent
	switch {
	case able && storeless > handOverAfter:
		// Again and again, for clients may return to this node.
		reason = "this node cannot reach the store, others can"
	case again:
	case l.peersSeen && silent && storeless > l.cfg.LeaseTTL:
		reason = "this node reaches neither the store nor other nodes"
	}
	l.sent = l.sent || reason != ""
	l.mu.Unlock()
	if reason != "" {
		l.hub.handOver(reason)
	}
}

// declaredDead continues under a new presence id, if id is still the present one.
func (l *lease) declaredDead(id string) {
	l.mu.Lock()
	if l.id != id || l.state != leaseHeld {
		l.mu.Unlock()
		return
	}
	l.deaths++
	l.id, l.state = presenceIDOf(l.cfg.Node, 1+l.deaths), leaseReviving
	l.leased = time.Time{}
	next := l.id
	l.mu.Unlock()
	l.cfg.Logger.Warn("this node was declared dead, continuing under a new presence id",
		slog.String("presence_id", id), slog.String("new_presence_id", next))
	l.hub.revive()
}

// revived lets the node write again.
func (l *lease) revived() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == leaseReviving {
		l.state = leaseHeld
	}
}

// unable reports whether another node cannot reach the store, for all that it has announced. It is
// false until this node has listened for long enough to have heard the node.
func (l *lease) unable(node string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if node == l.cfg.Node || time.Since(l.began) < listenFirst {
		return false
	}
	for id, p := range l.peers {
		if p.withoutStore == 0 && nodeOf(id) == node {
			return false
		}
	}
	return true
}

// members returns the presence ids of the nodes that may have connections, for all that this node
// knows: itself, those with a lease within the last two lease times, and those heard.
func (l *lease) members() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := map[string]struct{}{l.id: {}}
	now := time.Now()
	for node, at := range l.alive {
		if now.Sub(at) > 2*l.cfg.LeaseTTL {
			delete(l.alive, node)
			continue
		}
		ids[node] = struct{}{}
	}
	for node := range l.peers {
		ids[node] = struct{}{}
	}
	members := make([]string, 0, len(ids))
	for node := range ids {
		members = append(members, node)
	}
	slices.Sort(members)
	return members
}
