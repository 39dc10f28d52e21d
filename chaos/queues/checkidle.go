package queues

import (
	"cmp"
	"slices"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// idleLimit is how long a message may wait though a session with an idle handler is there.
const idleLimit = int64(3 * time.Second)

// load is how many deliveries a session has from a time on.
type load struct {
	at int64
	n  int
}

// checkIdle reports messages without a key that waited for their first delivery though a session of
// the group had an idle handler all the time, without a fault.
func (c *checker) checkIdle() {
	loads := c.loads()
	for _, msg := range c.sorted() {
		if msg.key() != "" || !msg.accepted() || c.topics[msg.topic] == nil {
			continue
		}
		from := int64(0)
		for _, op := range slices.Concat(msg.requested, msg.changes) {
			from = max(from, op.End, op.DueMS*int64(time.Millisecond))
			if op.Outcome == chaos.Unknown {
				from = forever
			}
		}
		for _, group := range c.groups(msg.topic) {
			f := msg.in(group)
			if len(f.deliveries) == 0 || f.deliveries[0].At-from <= idleLimit || from == forever {
				continue
			}
			if s := c.idleSession(loads, msg.topic, group, from, f.deliveries[0].At); s != nil {
				c.Reportf(Idle, msg.topic, f.deliveries[0].At, "%s waited in group %s from %s on, though %s (%.8s) had an idle handler%s", msg.mark, group,
					c.since(from), s.Client, s.Session, c.story(f))
			}
		}
	}
}

// idleSession returns a stream of a session that had an idle handler for longer than idleLimit
// between two times, during which nothing was broken, or nil.
func (c *checker) idleSession(loads map[string][]load, topic, group string, from, to int64) *Stream {
	for _, f := range c.h.Faults {
		if f.Name != string(chaos.LostReplies) && f.Begin <= to && from <= f.End+recovery+idleLimit {
			return nil
		}
	}
	for i := range c.h.Streams {
		s := &c.h.Streams[i]
		if s.Topic != topic || s.Group != group || s.Slow || s.End == 0 {
			continue
		}
		begin, end := max(from, s.Begin), min(to, s.End)
		idle := begin // since when a handler is idle, or forever
		for _, l := range slices.Concat(loads[s.Session], []load{{at: forever}}) {
			if min(l.at, end)-idle > idleLimit {
				return s
			}
			switch {
			case l.n >= s.Concurrency:
				idle = forever
			case idle == forever:
				idle = max(l.at, begin)
			}
		}
	}
	return nil
}

// loads returns how many deliveries each session has over time.
func (c *checker) loads() map[string][]load {
	all := make(map[string][]load)
	for i := range c.h.Deliveries {
		d := &c.h.Deliveries[i]
		end := int64(forever)
		for _, op := range c.byToken[held{d.Session, d.Token}] {
			if op.Kind.settles() && op.Outcome != chaos.Unknown {
				end = min(end, op.End)
			}
		}
		all[d.Session] = append(all[d.Session], load{d.At, 1}, load{end, -1})
	}
	for _, list := range all {
		slices.SortFunc(list, func(a, b load) int { return cmp.Compare(a.at, b.at) })
		n := 0
		for i := range list {
			n += list[i].n
			list[i].n = n
		}
	}
	return all
}

// checkFull reports settlements that failed while Redis was out of memory and nothing else was
// broken.
func (c *checker) checkFull() {
	for _, f := range c.h.Faults {
		if f.Name != string(chaos.RedisMemory) {
			continue
		}
		alone := !slices.ContainsFunc(c.h.Faults, func(other chaos.Fault) bool {
			return other.Name != f.Name && other.Begin <= f.End && f.Begin <= other.End+recovery
		})
		for i := range c.h.Ops {
			op := &c.h.Ops[i]
			if alone && op.Kind.settles() && op.Outcome == chaos.Unknown && f.Begin <= op.Begin && op.End <= f.End && !c.stopped(op) {
				c.Reportf(Full, op.Topic, op.Begin, "%s while Redis was out of memory: %s", c.op(op), op.Err)
			}
		}
	}
}
