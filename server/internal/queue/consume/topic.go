package consume

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/dispatch"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// reviewEvery is how often the leases of a topic are compared with what they should be.
	reviewEvery = 2 * time.Second
	// reviewPause is the time between two reviews at least.
	reviewPause = 50 * time.Millisecond
	// trustFor is how long a node that announced that it holds a lease is taken to live.
	trustFor = 10 * time.Second
	// neededFor is how long a topic without sessions is kept after a call was about it, and its leases
	// if no node with sessions has them.
	neededFor = 30 * time.Second
)

// lease is what an engine knows about who holds a lease.
type lease struct {
	node  string
	epoch int64
	// learnt is when another node said so; zero if the store did.
	learnt time.Time
}

// topic is what an engine knows about one topic. It belongs to the engine's goroutine.
type topic struct {
	e    *engine
	name string
	// settings are the latest that were read, at most two seconds old.
	settings *qlog.Topic
	sessions map[*session]bool
	// members are the nodes with sessions of the group, also those that died within the last hour.
	// alone: no other living node is among them.
	members []member
	alone   bool
	// strangers are members that were not heard of, with since when that is known: new nodes, or such
	// that died long ago.
	strangers map[string]time.Time
	// leases are the holders of the partitions as far as is known.
	leases []lease
	// waiting are errands for partitions without a holder. needed is when a call last was about the
	// topic, and claimed until when the node holds leases for such calls.
	waiting         []*errand
	needed, claimed time.Time
	// capacity is what the store has been told.
	capacity  int
	review    time.Time
	reviewing bool
	// looked is when the latest review began.
	looked   time.Time
	unlisten func()

	// offered is when messages were last offered to other nodes. answered: one took some.
	offered  time.Time
	answered bool
	// assigned are the partitions of sessions of an exclusive group, as they were told.
	assigned map[string][]int
}

// topic returns what the engine knows about a topic.
func (e *engine) topic(name string) *topic {
	t := e.topics[name]
	if t == nil {
		t = &topic{e: e, name: name, sessions: map[*session]bool{}, assigned: map[string][]int{}}
		e.topics[name] = t
		t.listen()
	}
	return t
}

// listen has holders read new messages when a hint arrives.
func (t *topic) listen() {
	hints := t.e.svc.cfg.Hints
	if hints == nil {
		return
	}
	cancel, err := hints.Listen(t.name, func(p int) {
		t.e.post(func(time.Time) {
			if h := t.e.holders[partition{t.name, p}]; h != nil && h.phase == serving {
				h.d.Hint()
			}
		})
	})
	if err != nil {
		t.e.trouble("listen", err) // without hints holders look now and then
		return
	}
	t.unlisten = cancel
}

// join adds a session.
func (t *topic) join(now time.Time, s *session) {
	if !t.sessions[s] && !s.Loose {
		t.counted(1)
	}
	t.sessions[s] = true
	t.needed = now
	if !s.Loose {
		t.reviewSoon(now)
	}
	t.e.serving(func(h *holder) {
		if h.ref.Topic == t.name {
			h.attach(s)
		}
	})
}

// leave removes a session.
func (t *topic) leave(now time.Time, s *session) {
	if t.sessions[s] && !s.Loose {
		t.counted(-1)
	}
	delete(t.sessions, s)
	delete(t.assigned, s.ID)
	if !s.Loose {
		t.reviewSoon(now)
	}
}

// counted notes that a session was added (by is 1) or removed (-1).
func (t *topic) counted(by int) {
	t.e.svc.counted(t.name, by)
	t.e.svc.cfg.Metrics.session(t.name, t.e.group, by)
}

func (t *topic) close() {
	if t.unlisten != nil {
		t.unlisten()
	}
}

// reviewSoon has the leases looked at now, or a little later if they have just been.
func (t *topic) reviewSoon(now time.Time) {
	at := now
	if earliest := t.looked.Add(reviewPause); earliest.After(at) {
		at = earliest
	}
	if at.Before(t.review) {
		t.review = at
	}
}

// holder returns the other node that holds the lease of a partition, empty if none is known to live.
func (t *topic) holder(p int) string {
	if p >= len(t.leases) || t.e.svc.cfg.Peers == nil {
		return ""
	}
	node := t.leases[p].node
	l := &t.leases[p]
	// What a node announced of itself is news also if the beats cannot be read.
	if node == t.e.svc.cfg.Node || !t.e.svc.cfg.Fleet.Alive(node) && time.Since(l.learnt) > trustFor {
		return ""
	}
	return node
}

// learn notes who holds a lease. It reports false if a later holder is known.
func (t *topic) learn(now time.Time, p int, node string, epoch int64) bool {
	if p >= len(t.leases) {
		t.reviewSoon(now)
		return true
	}
	if epoch < t.leases[p].epoch {
		return false
	}
	if t.leases[p].node != node || t.leases[p].epoch != epoch {
		t.leases[p] = lease{node, epoch, now}
		t.wake(now)
	}
	return true
}

// doubtHolder notes that a node says it does not hold a lease, or did not answer.
func (t *topic) doubtHolder(now time.Time, p int, node string) {
	if p < len(t.leases) && t.leases[p].node == node {
		t.leases[p].node = ""
		t.reviewSoon(now)
	}
}

// wake routes what waited for a holder.
func (t *topic) wake(now time.Time) {
	waiting := t.waiting
	t.waiting = nil
	for _, x := range waiting {
		t.e.route(now, x)
	}
}

// step begins a review of the leases if one is due, and returns when it is to be called again.
func (t *topic) step(now time.Time) time.Time {
	next := t.offerSpare(now)
	t.assign()
	if t.reviewing {
		return next
	}
	if now.Before(t.review) {
		return earliest(next, t.review)
	}
	t.reviewing, t.looked, t.review = true, now, now.Add(reviewEvery)
	demand, told, gone := t.demand(now), t.capacity, t.gone(now)
	t.e.background(func(ctx context.Context) {
		v, err := t.look(ctx, told, demand, gone)
		v.began = now
		t.e.post(func(now time.Time) { t.reviewed(now, v, demand, err) })
	})
	return next
}

// view is what a review found.
type view struct {
	began    time.Time
	settings *qlog.Topic
	leases   []lease
	members  []member
}

// look reads the topic, the holders of its leases and the nodes of the group, of which it removes those
// that are gone. It is called without the engine's goroutine.
func (t *topic) look(ctx context.Context, told, demand int, gone []string) (v view, err error) {
	cfg := &t.e.svc.cfg
	if v.settings, err = cfg.Topics.Topic(ctx, t.name); err != nil {
		return v, err
	}
	if v.settings.Group(t.e.group) == nil {
		return v, groupGone(t.name, t.e.group)
	}
	if told != demand {
		if err = cfg.Nodes.SetCapacity(ctx, t.name, t.e.group, cfg.Node, demand); err != nil {
			return v, err
		}
	}
	capacities, err := cfg.Nodes.Capacities(ctx, t.name, t.e.group)
	if err != nil {
		return v, err
	}
	if demand != 0 && capacities[cfg.Node] != demand { // another node removed it before it heard of this one
		if err = cfg.Nodes.SetCapacity(ctx, t.name, t.e.group, cfg.Node, demand); err != nil {
			return v, err
		}
		capacities[cfg.Node] = demand
	}
	for node, n := range capacities {
		if slices.Contains(gone, node) && cfg.Fleet.Until(node).IsZero() {
			if err = cfg.Nodes.SetCapacity(ctx, t.name, t.e.group, node, 0); err != nil {
				return v, err
			}
			continue
		}
		v.members = append(v.members, member{node, n})
	}
	v.leases = make([]lease, v.settings.Partitions)
	for p := range v.settings.Partitions {
		l := &v.leases[p]
		l.node, l.epoch, err = t.e.lease(ctx, v.settings, p)
		if err != nil {
			return v, err
		}
	}
	return v, nil
}

func groupGone(topic, group string) *fault.Error {
	f := fault.New(fault.NotFound, fault.GroupNotFound, "topic %s has no consumer group %s", topic, group)
	f.Field = "group"
	return f
}

// reviewed acquires and releases leases according to the plan.
func (t *topic) reviewed(now time.Time, v view, demand int, err error) {
	t.reviewing = false
	if err != nil {
		t.reviewFailed(now, err)
		return
	}
	t.settings, t.capacity, t.members = v.settings, demand, v.members
	t.meet(now)
	t.merge(now, v)
	t.dropForeign()
	todo := t.plan(v)
	if !t.e.draining {
		for _, p := range todo.acquire {
			t.acquire(p, v.leases[p].epoch)
		}
	}
	t.release(todo.release)
	if t.e.draining {
		if demand == t.demand(now) {
			t.release(len(t.leases))
		} else {
			t.review = now // the review began before
		}
	}
	t.wake(now)
	t.claim(now)
	idle := len(t.sessions)+len(t.waiting) == 0 && now.Sub(t.needed) > neededFor
	if idle && demand == 0 && !t.holds() {
		t.close()
		delete(t.e.topics, t.name)
	}
}

// reviewFailed takes up a failed review. The sessions of a topic or group that was deleted end.
func (t *topic) reviewFailed(now time.Time, err error) {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Reason != fault.TopicNotFound && f.Reason != fault.GroupNotFound {
		t.e.trouble("review", err)
		t.review = now.Add(longestBackoff)
		t.wake(now) // those whose time is over fail
		return
	}
	for s := range t.sessions {
		if s.stream != nil {
			s.stream.end(f)
		}
		t.e.lost(now, s)
	}
	for _, x := range t.waiting {
		t.e.fail(x, settleError(dispatch.ErrLost))
	}
	t.waiting = nil
	t.e.serving(func(h *holder) {
		if h.ref.Topic == t.name {
			h.end(err)
		}
	})
	if !t.holds() {
		t.close()
		delete(t.e.topics, t.name)
	}
}

// merge notes the holders that a review found. What other nodes said after it began is newer.
func (t *topic) merge(now time.Time, v view) {
	known := t.leases
	t.leases = slices.Clone(v.leases)
	for p := range known {
		if p < len(t.leases) && known[p].learnt.After(v.began) && known[p].epoch > t.leases[p].epoch {
			t.leases[p] = known[p]
		}
	}
	t.alone = true
	for _, m := range t.members {
		if m.node != t.e.svc.cfg.Node && t.e.svc.cfg.Fleet.Until(m.node).After(now) {
			t.alone = false
		}
	}
	t.e.serving(func(h *holder) {
		switch {
		case h.ref.Topic != t.name:
		case h.ref.UID != t.settings.UID, h.ref.Partition >= len(t.leases):
			h.end(qlog.ErrNoTopic) // it was of an earlier topic of the name
		case t.leases[h.ref.Partition].epoch > h.epoch:
			h.end(qlog.ErrFenced) // the group was moved, or another node has it
		default:
			h.d.Configure(t.e.dispatchConfig(h.ref))
		}
	})
}

// dropForeign drops deliveries of partitions that the topic does not have: a consumer made them up, or
// the topic is another one now.
func (t *topic) dropForeign() {
	for s := range t.sessions {
		for token := range s.held {
			if token.Topic == t.name && token.Partition >= t.settings.Partitions {
				s.drop(token)
				if s.stream != nil {
					s.stream.lose(Lost{[]Token{token}, CauseNoContact})
				}
			}
		}
	}
}

// plan returns what the node should do about the leases.
func (t *topic) plan(v view) target {
	cfg := &t.e.svc.cfg
	holders := make([]string, len(v.leases))
	for p, l := range t.leases {
		switch {
		case t.e.holders[partition{t.name, p}] != nil:
			holders[p] = cfg.Node
		case l.node == cfg.Node, l.node != "" && cfg.Fleet.MayTakeOver() && !cfg.Fleet.Alive(l.node):
			// A lease of this node without a holder is one whose acquisition had no answer.
		default:
			holders[p] = l.node
		}
	}
	var living []member
	for _, m := range t.members {
		if m.capacity > 0 && (m.node == cfg.Node || cfg.Fleet.Alive(m.node)) {
			living = append(living, m)
		}
	}
	return plan(holders, living, cfg.Node)
}

func (t *topic) acquire(p int, epoch int64) {
	ref := qlog.GroupRef{Ref: t.settings.Ref(p), Group: t.e.group}
	h := &holder{e: t.e, ref: ref, calls: map[*pending]bool{}, counts: t.e.svc.cfg.Metrics.holding(ref)}
	t.e.holders[h.at()] = h
	t.e.order = append(t.e.order, h)
	h.acquire(epoch, nil)
}

// claim makes the node a holder although it has no sessions, because calls need one and no other node
// has any.
func (t *topic) claim(now time.Time) {
	if len(t.waiting) == 0 || !t.alone || t.e.draining {
		return
	}
	for _, x := range t.waiting {
		if h := t.e.holders[x.at]; h != nil {
			continue
		}
		t.claimed = now.Add(neededFor)
		if t.capacity == 0 {
			t.reviewSoon(now)
		}
	}
}

// release releases n leases of the topic, those included that are being released.
func (t *topic) release(n int) {
	for _, h := range t.e.order {
		if h.ref.Topic == t.name && h.phase == serving && h.d.Releasing() {
			n--
		}
	}
	for _, h := range t.e.order {
		if n > 0 && h.ref.Topic == t.name && h.phase == serving && !h.d.Releasing() {
			h.d.Release()
			n--
		}
	}
}

// holds reports whether the engine has a lease of the topic.
func (t *topic) holds() bool {
	for _, h := range t.e.order {
		if h.ref.Topic == t.name {
			return true
		}
	}
	return false
}
