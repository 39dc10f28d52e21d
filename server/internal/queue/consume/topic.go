package consume

import (
	"context"
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

const (
	// reviewEvery is how often the leases of a topic are compared with what they should be.
	reviewEvery = 2 * time.Second
)

// topic is what an engine knows about one topic of its sessions. It belongs to the engine's
// goroutine.
type topic struct {
	e    *engine
	name string
	// settings are the latest that were read, at most two seconds old.
	settings *qlog.Topic
	sessions map[*session]bool
	// alone: no other living node has sessions of the group.
	alone bool
	// capacity is what the store has been told.
	capacity  int
	review    time.Time
	reviewing bool
	unlisten  func()
}

// listen has holders look for messages when a hint arrives.
func (t *topic) listen() {
	hints := t.e.svc.cfg.Hints
	if hints == nil {
		return
	}
	cancel, err := hints.Listen(t.name, func(p int) {
		t.e.post(func(now time.Time) {
			if h := t.e.holders[partition{t.name, p}]; h != nil {
				h.look(now)
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
func (t *topic) join(s *session) {
	t.sessions[s] = true
	t.review = time.Now()
	for _, h := range t.e.holders {
		if h.ref.Topic == t.name {
			h.attach(s)
		}
	}
}

// leave removes a session.
func (t *topic) leave(s *session) {
	delete(t.sessions, s)
	t.review = time.Now()
}

func (t *topic) close() {
	if t.unlisten != nil {
		t.unlisten()
	}
}

// step begins a review of the leases if one is due, and returns when the next one is.
func (t *topic) step(now time.Time) time.Time {
	if t.reviewing {
		return time.Time{}
	}
	if now.Before(t.review) {
		return t.review
	}
	t.reviewing, t.review = true, now.Add(reviewEvery)
	capacity := 0
	for s := range t.sessions {
		if s.state == sessionAttached || s.state == sessionDetached {
			capacity += s.concurrency
		}
	}
	told := t.capacity
	t.e.run.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		v, err := t.look(ctx, told, capacity)
		t.e.post(func(now time.Time) { t.reviewed(now, v, capacity, err) })
	})
	return time.Time{}
}

// view is what a review found.
type view struct {
	settings *qlog.Topic
	holders  []string
	epochs   []int64
	members  []member
}

// look reads the topic, the holders of its leases and the nodes of the group. It is called without
// the engine's goroutine.
func (t *topic) look(ctx context.Context, told, capacity int) (v view, err error) {
	cfg := &t.e.svc.cfg
	if v.settings, err = cfg.Topics.Topic(ctx, t.name); err != nil {
		return v, err
	}
	if told != capacity {
		if err = cfg.Nodes.SetCapacity(ctx, t.name, t.e.group, cfg.Node, capacity); err != nil {
			return v, err
		}
	}
	capacities, err := cfg.Nodes.Capacities(ctx, t.name, t.e.group)
	if err != nil {
		return v, err
	}
	for node, n := range capacities {
		if node == cfg.Node || cfg.Fleet.Alive(node) {
			v.members = append(v.members, member{node, n})
		}
	}
	v.holders, v.epochs = make([]string, v.settings.Partitions), make([]int64, v.settings.Partitions)
	for p := range v.settings.Partitions {
		ref := qlog.GroupRef{Ref: v.settings.Ref(p), Group: t.e.group}
		if v.holders[p], v.epochs[p], err = cfg.Store.Lease(ctx, ref); err != nil {
			return v, err
		}
	}
	return v, nil
}

// reviewed acquires and releases leases according to the plan.
func (t *topic) reviewed(now time.Time, v view, capacity int, err error) {
	t.reviewing = false
	if err != nil {
		t.e.trouble("review", err)
		t.review = now.Add(longestBackoff)
		return
	}
	cfg := &t.e.svc.cfg
	t.settings, t.capacity = v.settings, capacity
	t.alone = len(v.members) == 0 || len(v.members) == 1 && v.members[0].node == cfg.Node
	for p, node := range v.holders {
		h := t.e.holders[partition{t.name, p}]
		if h != nil && h.phase == serving && v.epochs[p] > h.epoch {
			// Another node has it, or the group was moved. A holder that has nothing to commit would not
			// find out.
			h.end(qlog.ErrFenced)
			h = nil
		}
		switch {
		case h != nil:
			v.holders[p] = cfg.Node
			if h.phase == serving {
				h.d.Configure(t.e.dispatchConfig(h.ref))
			}
		case node == cfg.Node, node != "" && cfg.Fleet.MayTakeOver() && !cfg.Fleet.Alive(node):
			// A lease of this node without a holder is one whose acquisition had no answer.
			v.holders[p] = ""
		}
	}
	todo := plan(v.holders, v.members, cfg.Node)
	for _, p := range todo.acquire {
		h := &holder{e: t.e, ref: qlog.GroupRef{Ref: v.settings.Ref(p), Group: t.e.group}, calls: map[*pending]bool{}}
		t.e.holders[partition{t.name, p}] = h
		t.e.order = append(t.e.order, h)
		h.acquire(v.epochs[p], nil)
	}
	t.release(todo.release)
	if len(t.sessions) == 0 && capacity == 0 && !t.holds() {
		t.close()
		delete(t.e.topics, t.name)
	}
}

// release releases n leases of the topic.
func (t *topic) release(n int) {
	for _, h := range t.e.order {
		if n == 0 {
			return
		}
		if h.ref.Topic == t.name && h.phase == serving {
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
