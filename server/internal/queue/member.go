package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/stream"
)

// How often a group is looked at: while it is not balanced, and else. Shorter lives of leases shorten them.
const (
	tickUnsettled = 300 * time.Millisecond
	tickSettled   = time.Second
	// lookEvery is how often leases are looked at though nothing has changed.
	lookEvery = 5 * time.Second
	// acquireCalls is how many leases are acquired at once.
	acquireCalls = 8
)

// group is this node's part in one group of a topic: its sessions are members. One goroutine, run, keeps them so, looks at who holds
// what, and has them acquire and hand back partitions. It ends with its last session.
type group struct {
	hub  *Hub
	name groupName
	// wake holds a token when run is to look at once.
	wake chan struct{}
	// topic is as the catalog told last.
	topic atomic.Pointer[Topic]
	// done is closed when run has returned.
	done chan struct{}
	// listens is set while hints are listened to.
	listens atomic.Bool

	// What follows belongs to run. members are those that were told last, and beatAt when; quotas are this node's sessions'. lookAt is
	// when leases are to be looked at again, whatever happens.
	members  []Member
	beatAt   time.Time
	lookAt   time.Time
	unlisten func()

	// mu guards what follows. It may be taken with a session's mu held, but not the other way round.
	mu sync.Mutex
	// sessions take part, gone wait to be taken off the members. live counts those whose end is not yet complete.
	sessions map[string]*Session
	gone     []string
	live     int
	workers  map[int]*worker
	// changed says that leases must be looked at.
	changed bool
}

type groupName struct{ topic, group string }

func newGroup(h *Hub, name groupName, t *Topic) *group {
	g := &group{
		hub: h, name: name, wake: make(chan struct{}, 1), done: make(chan struct{}),
		sessions: map[string]*Session{}, workers: map[int]*worker{},
	}
	g.topic.Store(t)
	return g
}

// joins adds a session. The hub's mu is held.
func (g *group) joins(s *Session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sessions[s.core.ID] = s
	g.live++
	g.look()
}

// leaving ends a session's part: it is given no more partitions, and the others are given more.
func (g *group) leaving(s *Session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sessions[s.core.ID] != nil {
		delete(g.sessions, s.core.ID)
		g.gone = append(g.gone, s.core.ID)
	}
	g.look()
}

// left ends a session's stay for good: it holds nothing any more.
func (g *group) left(s *Session) {
	g.leaving(s)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.live--
	g.look()
}

// serves and dropped keep which worker serves a partition on this node, for hints. The session's mu is held.
func (g *group) serves(w *worker) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.workers[w.lease.Partition] = w
}

func (g *group) dropped(w *worker) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.workers[w.lease.Partition] == w {
		delete(g.workers, w.lease.Partition)
	}
	g.look()
}

// look has run look at leases at once. mu is held.
func (g *group) look() {
	g.changed = true
	g.poke()
}

func (g *group) poke() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// suspect has the topic looked up anew: the store knows no such topic or group.
func (g *group) suspect() {
	g.hub.cfg.Catalog.Forget(g.name.topic)
	g.poke()
}

// hint passes a hint on. It must not block.
func (g *group) hint(partition int) {
	g.mu.Lock()
	w := g.workers[partition]
	g.mu.Unlock()
	if w != nil {
		w.hint()
	}
}

// hinted reports whether hints come through.
func (g *group) hinted() bool { return g.listens.Load() && g.hub.cfg.Ready.Connected() }

// paused reports whether the topic gives nothing.
func (g *group) paused() bool { return g.topic.Load().ConsumePaused }

// run keeps the group until its last session is gone.
func (g *group) run() {
	defer close(g.done)
	defer func() {
		if g.unlisten != nil {
			g.unlisten()
		}
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := g.round()
		if g.hub.retire(g) {
			return
		}
		timer.Reset(wait)
		select {
		case <-g.wake:
		case <-timer.C:
		case <-g.hub.ctx.Done():
			return
		}
	}
}

// round does all that is due, and tells when to come again.
func (g *group) round() time.Duration {
	g.leave()
	g.listen()
	mine := g.mine()
	if len(mine) == 0 {
		return g.tick(tickSettled)
	}
	if !g.refresh(mine) {
		return g.tick(tickSettled)
	}
	if !g.beat(mine) {
		return g.tick(tickUnsettled)
	}
	if g.balance(mine) {
		return g.tick(tickSettled)
	}
	return g.tick(tickUnsettled)
}

// tick is the time to wait, with jitter so that nodes don't act in step.
func (g *group) tick(d time.Duration) time.Duration {
	d = min(d, g.hub.cfg.LeaseTTL/4)
	return d*7/8 + rand.N(d/4)
}

// mine are the sessions that take part, in order of their ids.
func (g *group) mine() []*Session {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*Session, 0, len(g.sessions))
	for _, s := range g.sessions {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Session) int { return strings.Compare(a.core.ID, b.core.ID) })
	return all
}

// leave takes sessions that are gone off the members. Only run does, between beats, so that no beat brings one back.
func (g *group) leave() {
	g.mu.Lock()
	gone := slices.Clone(g.gone)
	g.mu.Unlock()
	if len(gone) == 0 {
		return
	}
	ctx, cancel := g.hub.call(g.hub.ctx)
	err := g.hub.cfg.Store.Leave(ctx, g.name.topic, g.name.group, gone)
	cancel()
	if err != nil {
		g.hub.trouble("leave", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// Once nobody is left to try again, their time on the list ends them.
	if err == nil || len(g.sessions) == 0 {
		g.gone = slices.Delete(g.gone, 0, len(gone))
		g.beatAt = time.Time{}
	}
}

// listen listens to hints, and tries again at each round if that fails.
func (g *group) listen() {
	if g.unlisten != nil || g.hub.cfg.Ready == nil {
		return
	}
	cancel, err := g.hub.cfg.Ready.Listen(g.name.topic, g.hint)
	if err != nil {
		g.hub.trouble("listen to hints", err)
		return
	}
	g.unlisten = cancel
	g.listens.Store(true)
}

// refresh looks the topic up, ends the sessions if it or the group is gone, and reports whether to go on.
func (g *group) refresh(mine []*Session) bool {
	ctx, cancel := g.hub.call(g.hub.ctx)
	defer cancel()
	t, err := g.hub.cfg.Catalog.Topic(ctx, g.name.topic)
	was := g.topic.Load()
	var gone *fault.Error
	switch {
	case err != nil && !fault.Is(err, fault.TopicNotFound):
		// What is known still serves; the store will tell.
		return true
	case err != nil, t.UID != was.UID:
		gone = fault.New(fault.NotFound, fault.TopicNotFound, "the topic is gone")
	case !hasGroup(t, g.name.group):
		gone = groupGone()
	}
	if gone != nil {
		for _, s := range mine {
			s.end(gone)
		}
		return false
	}
	if t == was {
		return true
	}
	g.topic.Store(t)
	if t.ConsumePaused != was.ConsumePaused || t.Partitions != was.Partitions {
		g.mu.Lock()
		for _, w := range g.workers {
			w.poke()
		}
		g.look()
		g.mu.Unlock()
		for _, s := range mine {
			s.mu.Lock()
			s.core.Wake()
			s.mu.Unlock()
		}
	}
	return true
}

// beat says that this node's sessions live, and learns who else does.
func (g *group) beat(mine []*Session) bool {
	now := time.Now()
	known := make([]Member, 0, len(mine))
	fresh := false
	for _, s := range mine {
		if !s.takes() {
			continue
		}
		m := Member{StreamID: s.core.ID, Consumer: s.request.Consumer, NodeID: g.hub.cfg.Node}
		i := slices.IndexFunc(g.members, func(o Member) bool { return o.StreamID == s.core.ID })
		if i >= 0 {
			m.Joined = g.members[i].Joined
		} else {
			fresh = true
		}
		known = append(known, m)
	}
	if len(known) == 0 {
		return true
	}
	// Rounds that come quickly, while partitions move, need no beat of their own.
	if !fresh && now.Before(g.beatAt) {
		return true
	}
	ctx, cancel := g.hub.call(g.hub.ctx)
	defer cancel()
	members, err := g.hub.cfg.Store.Beat(ctx, g.name.topic, g.name.group, known, g.hub.cfg.LeaseTTL)
	if err != nil {
		g.hub.trouble("beat", err)
		return false
	}
	g.beatAt = now.Add(min(tickUnsettled, g.hub.cfg.LeaseTTL/8))
	if !slices.EqualFunc(members, g.members, func(a, b Member) bool { return a.StreamID == b.StreamID }) {
		g.mu.Lock()
		g.changed = true
		g.mu.Unlock()
	}
	g.members = members
	return true
}

// balance gives each of this node's sessions its portion, and reports whether all have theirs. Where nothing has changed since they had,
// it does not even look.
func (g *group) balance(mine []*Session) bool {
	now := time.Now()
	g.mu.Lock()
	due := g.changed || !now.Before(g.lookAt)
	g.changed = false
	g.mu.Unlock()
	if !due {
		return true
	}
	ctx, cancel := g.hub.call(g.hub.ctx)
	leases, err := g.hub.cfg.Store.Leases(ctx, g.topic.Load(), g.name.group)
	cancel()
	settled := err == nil
	if err != nil {
		g.failed("leases", err)
	} else {
		portions := share(leases, g.members)
		for _, s := range mine {
			p, member := portions[s.core.ID]
			if !member {
				continue
			}
			settled = g.adjust(s, p, leases) && settled
		}
	}
	g.lookAt = now.Add(min(lookEvery, g.hub.cfg.LeaseTTL/2))
	if !settled {
		g.mu.Lock()
		g.changed = true
		g.mu.Unlock()
	}
	return settled
}

// adjust has a session acquire and hand back, and reports whether it has just what it should.
func (g *group) adjust(s *Session, p portion, leases []Lease) bool {
	wanted := s.shed(p.quota)
	if wanted < 0 {
		return false
	}
	if wanted == 0 {
		return true
	}
	// A lease that is the session's own, without a worker: the answer to acquire was lost. Then those that are free.
	take := make([]Lease, 0, wanted)
	for _, l := range leases {
		if len(take) < wanted && (l.Holder == s.core.ID || slices.Contains(p.take, l.Partition)) && !s.has(l.Partition) {
			take = append(take, l)
		}
	}
	var (
		calls sync.WaitGroup
		slots = make(chan struct{}, acquireCalls)
		got   atomic.Int32
	)
	ctx, cancel := g.hub.call(s.ctx)
	defer cancel()
	for _, l := range take {
		slots <- struct{}{}
		calls.Go(func() {
			if g.acquire(ctx, s, l.Partition) {
				got.Add(1)
			}
			<-slots
		})
	}
	calls.Wait()
	return int(got.Load()) == wanted
}

// acquire acquires a partition for a session, and reports whether it serves it now.
func (g *group) acquire(ctx context.Context, s *Session, partition int) bool {
	sent := time.Now()
	lease, err := g.hub.cfg.Store.Acquire(ctx, g.topic.Load().Ref(partition), g.name.group, s.core.ID, g.hub.cfg.LeaseTTL)
	if err != nil {
		g.failed("acquire", err)
		return false
	}
	if s.start(lease, sent) {
		return true
	}
	// The session ended meanwhile. Its context may have, too.
	free, cancel := g.hub.call(g.hub.ctx)
	defer cancel()
	if err := g.hub.cfg.Store.Free(free, lease); err != nil {
		g.hub.trouble("free", err)
	}
	return false
}

func (g *group) failed(what string, err error) {
	switch {
	case errors.Is(err, ErrHeld):
		// Another was quicker, or sees the group otherwise for a moment.
	case errors.Is(err, ErrNoTopic), errors.Is(err, ErrNoGroup):
		g.suspect()
	default:
		g.hub.trouble(what, err)
	}
}

// shed hands back what a session has above its quota, beginning with what it is least busy with, and keeps what it has begun to hand
// back if it may. It gives how many partitions it lacks; -1 while it has too many.
func (s *Session) shed(quota int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.welcomed {
		// One that gets nothing is told so.
		s.welcomed, s.assigned = true, true
		s.core.Wake()
	}
	if s.core.State() != stream.Live {
		return 0
	}
	var keep, stopping []*worker
	for _, w := range s.workers {
		if w.stopping || w.freeing {
			stopping = append(stopping, w)
		} else {
			keep = append(keep, w)
		}
	}
	for _, w := range stopping {
		if len(keep) < quota && w.resume() {
			keep = append(keep, w)
		}
	}
	slices.SortFunc(keep, func(a, b *worker) int {
		return (len(a.inFlight) + len(a.buffer)) - (len(b.inFlight) + len(b.buffer))
	})
	for i := range len(keep) - quota {
		keep[i].stop()
	}
	if len(keep) > quota || len(s.workers) > quota {
		return -1
	}
	return quota - len(s.workers)
}

// has reports whether the session serves the partition.
func (s *Session) has(partition int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.workers[partition] != nil
}

// hasGroup reports whether the topic has the group.
func hasGroup(t *Topic, group string) bool {
	return slices.ContainsFunc(t.Groups, func(g Group) bool { return g.Name == group })
}

func groupGone() *fault.Error {
	return fault.New(fault.NotFound, fault.GroupNotFound, "the topic has no such consumer group")
}
