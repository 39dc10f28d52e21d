package consume

import (
	"time"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// draining is the capacity of a node that stops. It gets no leases, and is still waited for: its
// sessions have deliveries.
const draining = -1

// demand is how many messages the topic's sessions handle at a time, or how many sessions there are if
// each has partitions of its own.
func (t *topic) demand(now time.Time) (n int) {
	exclusive := t.exclusive()
	for s := range t.sessions {
		switch {
		case s.Loose || s.state == Leaving && len(s.held) == 0:
		case exclusive:
			n++
		default:
			n += s.concurrency
		}
	}
	switch {
	case t.e.draining && (n > 0 || t.capacity != 0):
		return draining
	case n == 0 && now.Before(t.claimed) && !t.e.draining:
		return 1
	}
	return n
}

func (t *topic) exclusive() bool {
	if t.settings == nil {
		return false
	}
	g := t.settings.Group(t.e.group)
	return g != nil && g.Mode == qlog.Exclusive
}

// gone returns the members that died long ago: all nodes that live were heard of by now.
func (t *topic) gone(now time.Time) (nodes []string) {
	for node, since := range t.strangers {
		if now.Sub(since) >= beatTTL && t.e.svc.cfg.Fleet.MayTakeOver() {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// meet notes which members were not heard of.
func (t *topic) meet(now time.Time) {
	known := t.strangers
	t.strangers = map[string]time.Time{}
	for _, m := range t.members {
		if m.node == t.e.svc.cfg.Node || !t.e.svc.cfg.Fleet.Until(m.node).IsZero() {
			continue
		}
		if t.strangers[m.node] = now; !known[m.node].IsZero() {
			t.strangers[m.node] = known[m.node]
		}
	}
}
