package presence

import (
	"slices"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// model is what follows from a history for the presence of users.
//
// A user is surely online on a platform from the first frame of a stream until the stream's end.
// That excludes times at which the step in Redis may be late, and those at which the node may be
// declared dead. Brief absences that the server must not show count as online. A user may be online
// from the call of Connect until some time after the end of the stream, which depends on how it
// ended. Between these, every state is right.
type model struct {
	h *History
	t *Truth

	sure, maybe map[place]spans
	// restless are the times at which an entry may be logged for a user.
	restless map[string]spans
	// platforms are the platforms of each user.
	platforms map[string][]int
	nodes     map[string]*node
	// stores are the times at which Redis was away or lost data, and all those of any trouble.
	stores, all spans
	// stalls are the times at which the machine or Redis was slow, machine those of the machine.
	stalls, machine spans
	// unsettled are the times at which parts may be written without an entry of the log.
	unsettled spans
	// rolledBack are the times at which Redis may show what it had long before.
	rolledBack spans
	watches    map[string]*Watch
	// updates are the calls of UpdateWatch of each watch, and flips those of SetBackground of each
	// connection.
	updates, flips map[string][]*Op
}

// place is a platform of a user.
type place struct {
	user     string
	platform int
}

// node is the troubles of a node. Those of all nodes count as its own.
type node struct {
	// write are the times at which its steps in Redis may fail or be late.
	write spans
	// read are the times at which what it sends may be late.
	read spans
	// dying are the times at which it may have been declared dead, or handed its streams over.
	dying spans
	// killed are the times at which it did not run.
	killed spans
	// isolated are the times at which its clients could not reach it.
	isolated spans
}

func newModel(h *History, t *Truth) *model {
	m := &model{
		h: h, t: t, sure: make(map[place]spans), maybe: make(map[place]spans), restless: make(map[string]spans),
		platforms: make(map[string][]int), nodes: make(map[string]*node), watches: make(map[string]*Watch),
		updates: make(map[string][]*Op), flips: make(map[string][]*Op),
	}
	for _, s := range h.Stalls {
		if s.Who == Machine {
			m.machine = union(m.machine, spansOf(span{s.From, s.To}))
		}
		m.stalls = union(m.stalls, spansOf(span{s.From, s.To}))
	}
	m.stores = union(
		m.stalls, m.faults("redis", chaos.RedisKill, RedisStop, RedisSlow, chaos.RedisPast, chaos.RedisFlush), m.faults("", RedisClock),
	).extended(recovery)
	m.unsettled = m.faults("redis", chaos.RedisFlush, chaos.RedisPast, chaos.RedisKill).extended(settling)
	m.rolledBack = m.faults("redis", chaos.RedisPast).extended(death + recovery)
	for _, addr := range h.Addrs {
		m.nodes[addr] = m.node(addr)
		m.all = union(m.all, m.nodes[addr].write, m.nodes[addr].read)
	}
	for i := range h.Watches {
		m.watches[h.Watches[i].ID] = &h.Watches[i]
	}
	for i := range h.Ops {
		switch op := &h.Ops[i]; op.Kind {
		case UpdateWatch:
			m.updates[op.Stream] = append(m.updates[op.Stream], op)
		case SetBackground:
			m.flips[op.Stream] = append(m.flips[op.Stream], op)
		default:
		}
	}
	m.addConns()
	return m
}

// faults returns the times of faults by name that hit a target.
func (m *model) faults(target string, names ...chaos.FaultName) spans {
	var all []span
	for _, f := range m.h.Faults {
		if slices.Contains(names, chaos.FaultName(f.Name)) && (f.Target == target || target == "") {
			all = append(all, span{f.Begin, max(f.End, f.Begin+1)})
		}
	}
	return spansOf(all...)
}

// node returns the troubles of a node.
func (m *model) node(addr string) *node {
	var exits []span
	for _, e := range m.h.Exits {
		if e.Node == addr {
			exits = append(exits, span{e.At - int64(delivery), e.At + int64(delivery)})
		}
	}
	n := &node{killed: union(m.faults(addr, chaos.NodeKill), spansOf(exits...)), isolated: m.faults(addr, chaos.NodeIsolate)}
	stopped, both := m.faults(addr, chaos.NodeStop), m.faults(addr, CutBoth)
	redis := union(m.faults(addr, chaos.CutRedis, chaos.StallRedis), both)
	nats := union(m.faults(addr, chaos.CutNATS, chaos.StallNATS), both, m.faults("", chaos.NATSAway, chaos.NATSKill))
	down := union(n.killed, stopped, m.faults("", chaos.Roll))
	n.write = union(union(redis, down).extended(recovery), m.stores)
	n.read = union(n.write, nats.extended(recovery), n.isolated.extended(recovery))

	away := union(redis, m.faults("redis", chaos.RedisKill, RedisStop, chaos.RedisPast))
	n.dying = union(n.killed.extended(recovery), m.faults("redis", chaos.RedisPast).extended(recovery),
		longer(union(stopped, m.machine, intersect(away, nats)), silence), longer(redis, storeless))
	return n
}

// longer returns the times after limit of those spans that are longer than that, until recovery
// after their end.
func longer(s spans, limit time.Duration) spans {
	var all []span
	for _, x := range s {
		if x.to-x.from > int64(limit) {
			all = append(all, span{x.from + int64(limit), x.to + int64(recovery)})
		}
	}
	return spansOf(all...)
}

// addConns adds the timelines of all connections.
func (m *model) addConns() {
	type stay struct {
		span

		brief time.Duration
	}
	stays, maybe, restless := make(map[place][]stay), make(map[place][]span), make(map[string][]span)
	for i := range m.h.Conns {
		c := &m.h.Conns[i]
		p := place{c.User, c.Platform}
		if !slices.Contains(m.platforms[c.User], c.Platform) {
			m.platforms[c.User] = append(m.platforms[c.User], c.Platform)
		}
		if c.refused() {
			continue
		}
		from, to, gone := m.sureBegin(c), m.sureEnd(c), m.gone(c)
		maybe[p] = append(maybe[p], span{c.Begin, gone})
		restless[c.User] = append(restless[c.User], m.restlessOf(c, from, to, gone)...)
		alive := spansOf(span{from, to}).without(m.nodes[c.Addr].dying)
		for _, s := range alive {
			one := stay{span: s}
			if s.to == to {
				one.brief = m.briefAfter(c)
			}
			stays[p] = append(stays[p], one)
		}
	}
	for p, list := range maybe {
		m.maybe[p] = union(spansOf(list...), m.rolledBack)
	}
	for user, list := range restless {
		m.restless[user] = union(spansOf(list...), m.rolledBack)
	}
	for p, list := range stays {
		var all []span
		for i := range list {
			s := list[i].span
			for k := range list {
				// An absence that is brief counts as online.
				if next := list[k].from; k != i && next >= s.to && next-s.to <= int64(list[i].brief) {
					s.to = next
				}
			}
			all = append(all, s)
		}
		m.sure[p] = spansOf(all...)
	}
}

// sureBegin returns when a connection is surely known to the node, which can write it.
func (m *model) sureBegin(c *Conn) int64 {
	if c.First == 0 {
		return forever
	}
	// A trouble may begin before the write.
	return m.nodes[c.Addr].write.until(c.First, late) - int64(late)
}

// sureEnd returns until when the server surely had no reason to end a connection.
func (m *model) sureEnd(c *Conn) int64 {
	end := int64(forever)
	for _, at := range []int64{c.End, c.Handover, c.Leave} {
		if at != 0 {
			end = min(end, at)
		}
	}
	if end == forever || c.How == Closed && end == c.End {
		return end
	}
	if end == c.Leave {
		return end
	}
	// The server ended the stream, or a fault did, after the last frame and before the client saw it.
	return min(end, c.Last) - int64(delivery)
}

// briefAfter returns how long the user may be away after a connection without being shown offline.
func (m *model) briefAfter(c *Conn) time.Duration {
	switch {
	case c.Handover != 0, m.nodes[c.Addr].killed.touches(c.Last, c.End):
		return briefHandover + delivery // sureEnd is earlier by delivery
	case c.How == Closed && c.Leave == 0:
		return brief
	default:
		return 0
	}
}

// died reports whether a connection's node may have died before it wrote the connection's end.
func (m *model) died(c *Conn) bool {
	n := m.nodes[c.Addr]
	to := c.End + int64(offlineAfter+late)
	return c.Handover != 0 || n.dying.touches(c.Begin, to) || n.killed.touches(c.Begin, to) || m.faults("", chaos.Roll).touches(c.Begin, to)
}

// gone returns when a connection surely shows the user online no more.
func (m *model) gone(c *Conn) int64 {
	if c.End == 0 {
		return forever
	}
	n := m.nodes[c.Addr]
	limit := offlineAfter + late
	switch c.How {
	case Left, Kicked:
		limit = late
	default:
		if n.isolated.extended(pings).touches(c.Begin, c.End) {
			limit += pings
		}
	}
	deadline := n.write.until(c.End, limit)
	if m.died(c) {
		deadline = max(deadline, m.all.until(c.End, death))
	}
	return deadline
}

// restlessOf returns the times at which a connection may cause an entry of the log.
func (m *model) restlessOf(c *Conn, from, to, gone int64) []span {
	n := m.nodes[c.Addr]
	var all []span
	if from == forever {
		all = append(all, span{c.Begin, gone})
	} else {
		all = append(all, span{c.Begin, n.write.until(from, late)}, span{to, gone})
	}
	all = append(all, intersect(n.dying.extended(late), spansOf(span{c.Begin, gone}))...)
	for _, op := range m.flips[c.ID] {
		all = append(all, span{op.Begin, n.write.until(op.End, late)})
	}
	return all
}

// possible reports whether a platform may be online, and whether it may be offline, at some time of
// a span, both ends included.
func (m *model) possible(p place, from, to int64) (online, offline bool) {
	return m.maybe[p].touches(from, to), !m.sure[p].covers(from, to)
}
