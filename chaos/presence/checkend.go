package presence

import (
	"slices"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// expected returns the state of a user while the devices stood still at the end. It reports false
// if a connection of the user began or ended meanwhile.
func (c *checker) expected(user string) (s State, stable bool) {
	stable = true
	from, to := c.h.Settled, c.h.Leaving
	for i := range c.h.Conns {
		conn := &c.h.Conns[i]
		if conn.User != user || conn.Begin > to || conn.End != 0 && conn.End < from {
			continue
		}
		if conn.First == 0 || conn.First > from || conn.Handover != 0 && conn.Handover < to || conn.End != 0 && conn.End < to {
			stable = false
			continue
		}
		background := conn.Background
		for _, op := range c.flips[conn.ID] {
			if op.Outcome == chaos.OK {
				background = op.Background
			}
		}
		s = s.with(conn.Platform, background)
	}
	return s, stable
}

// checkSettled checks that the final reads of every node have the devices' states.
func (c *checker) checkSettled() {
	if c.h.Unsettled != "" {
		c.Reportf(Missed, "", 0, "not all views agreed in time after all was mended: %s", c.h.Unsettled)
	}
	for i := range c.h.Ops {
		op := &c.h.Ops[i]
		if !op.Final || op.Outcome != chaos.OK {
			continue
		}
		found := make(map[string]State)
		for _, s := range op.Users {
			found[s.User] = s.State
		}
		for user := range c.platforms {
			if want, stable := c.expected(user); stable && found[user] != want {
				c.Reportf(Missed, user, op.End, "at the end %s of %s has %q, and the devices are %q%s", op.Kind, op.Addr, found[user], want,
					c.story(user, op.End))
			}
		}
	}
}

// checkRedis checks the final contents of Redis.
func (c *checker) checkRedis() {
	s := &c.t.Settled
	states := s.states()
	for user := range c.platforms {
		want, stable := c.expected(user)
		if !stable {
			continue
		}
		if states[user] != want {
			c.Reportf(Missed, user, 0, "at the end Redis has %q, and the devices are %q%s", states[user], want, c.story(user, c.h.Settled))
		}
		if listed := slices.Contains(s.Online, user); listed != (want != "") {
			c.Reportf(Missed, user, 0, "at the end Redis lists the user as online: %t, and the devices are %q", listed, want)
		}
	}
	members := make(map[Member]bool)
	for _, m := range s.Members {
		members[m] = true
	}
	for _, p := range s.Parts {
		if m := (Member{Node: p.Node, User: p.User}); !members[m] {
			c.Reportf(Leak, p.User, 0, "the set of node %s lacks the user, of whom it has the part %q", p.Node, p.State)
		} else {
			delete(members, m)
		}
	}
	for m := range members {
		c.Reportf(Leak, m.User, 0, "the set of node %s has the user, of whom it has no part", m.Node)
	}
	l := &c.t.Left
	for _, p := range l.Parts {
		c.Reportf(Leak, p.User, 0, "after all devices have left, node %s has the part %q", p.Node, p.State)
	}
	for _, user := range l.Online {
		c.Reportf(Leak, user, 0, "after all devices have left, the user is listed as online")
	}
	for _, m := range l.Members {
		c.Reportf(Leak, m.User, 0, "after all devices have left, the set of node %s has the user", m.Node)
	}
	for _, addr := range c.h.Addrs {
		for _, name := range gauges {
			v, ok := c.t.Gauges[addr][name]
			if !ok {
				c.Reportf(chaos.Unobserved, "", 0, "node %s does not serve the figure %s", addr, name)
			}
			if v != 0 {
				c.Reportf(Leak, "", 0, "after all streams have ended, %s of node %s is %v", name, addr, v)
			}
		}
	}
}

// checkLogs checks that every entry of the logs is a change at a time at which there was a reason
// for one, and that the positions are dense. Each entry becomes an event for webhooks.
func (c *checker) checkLogs() {
	const skew = int64(100 * time.Millisecond)
	for i := range c.t.Settled.Logs {
		log := &c.t.Settled.Logs[i]
		last := make(map[string]*Entry)
		if len(log.Entries) == 0 && log.Seq > 0 {
			c.Reportf(Event, log.Shard, 0, "the log is empty; its end is %d", log.Seq)
		}
		for k := range log.Entries {
			e := &log.Entries[k]
			if k > 0 && e.Seq != log.Entries[k-1].Seq+1 || k == len(log.Entries)-1 && e.Seq != log.Seq {
				c.Reportf(Event, log.Shard, 0, "the log has the position %d where another is due; its end is %d", e.Seq, log.Seq)
			}
			if e.Login {
				continue
			}
			times := c.timesOf(e)
			at := times[0]
			unsettled := func(at int64) bool { return c.unsettled.touches(at, at) }
			if old := last[e.User]; old != nil && old.State == e.State && e.State != "" && !slices.ContainsFunc(c.timesOf(old), unsettled) {
				c.Reportf(Event, e.User, at, "the log has %q twice in a row, at %d and %d", e.State, old.Seq, e.Seq)
			}
			last[e.User] = e
			restless := func(at int64) bool { return c.restless[e.User].touches(at-skew, at+skew) }
			if !slices.ContainsFunc(times, restless) {
				c.Reportf(Event, e.User, at, "the log has %q at %d, and nothing has changed%s", e.State, e.Seq, c.story(e.User, at))
			}
		}
	}
}

// timesOf returns when an entry may have been written, by the history's clock: while the clock of
// Redis is moved, it shows a time at which it may also have been right.
func (c *checker) timesOf(e *Entry) []int64 {
	times := []int64{e.AtMS*int64(time.Millisecond) - c.h.Wall}
	for _, f := range c.h.Faults {
		by, err := time.ParseDuration(f.Target)
		if at := times[0] - int64(by); err == nil && f.Name == string(RedisClock) && f.Begin <= at && at <= f.End {
			times = append(times, at)
		}
	}
	return times
}

// checkLogins checks the login policy.
func (c *checker) checkLogins() {
	slots := make(map[string][]*Conn)
	for i := range c.h.Conns {
		conn := &c.h.Conns[i]
		if !conn.refused() {
			slot := c.slot(conn.User, conn.Platform)
			slots[slot] = append(slots[slot], conn)
		}
	}
	logins := make(map[string]*login)
	for slot, conns := range slots {
		for _, conn := range conns {
			l := logins[conn.Device]
			if l == nil {
				l = &login{slot: slot, began: conn.Begin}
				logins[conn.Device] = l
			}
			if conn.Fresh {
				l.began = min(l.began, conn.Begin)
				l.entered = max(l.entered, c.entered(conn))
			}
		}
	}
	for slot, conns := range slots {
		c.checkKicks(slot, conns, logins)
		c.checkWinners(slot, conns)
	}
}

// login is what is known of a login. Each has its own device id.
type login struct {
	slot string
	// began is before the login had a generation, and entered after.
	began, entered int64
}

// entered returns a time until which a new login was surely entered, if it was at all. A node that
// stood still finds the request when it goes on, although the client has given up.
func (c *checker) entered(conn *Conn) int64 {
	switch {
	case conn.First != 0:
		return conn.First
	case conn.End != 0:
		return c.nodes[conn.Addr].read.until(conn.End, delivery)
	default:
		return forever
	}
}

// slot returns the slot of a platform of a user under the policy of the fleet. Logins of one slot
// exclude each other.
func (c *checker) slot(user string, platform int) string {
	class := platform
	if c.h.Policy == policyClass {
		switch {
		case platform <= 4:
			class = 'm'
		case platform <= 7:
			class = 'd'
		default:
		}
	}
	return user + " " + string(rune(class+'0'))
}

// checkKicks checks who was kicked in a slot, and by whom.
func (c *checker) checkKicks(slot string, conns []*Conn, logins map[string]*login) {
	kicked, fresh := make(map[string]bool), 0
	for _, conn := range conns {
		if conn.Fresh {
			fresh++
		}
		k := conn.Kick
		if k == nil {
			continue
		}
		if kicked[conn.Device] {
			c.Reportf(KickLoop, slot, conn.End, "%s was kicked again%s", conn.Device, c.story(conn.User, conn.End))
		}
		kicked[conn.Device] = true
		by := logins[k.Device]
		switch {
		case k.Cause != byLogin && k.Cause != replaced, (k.Cause == replaced) != (k.Device == conn.Device):
			c.Reportf(WrongWinner, slot, conn.End, "%s was kicked by %s with the cause %s", conn.Device, k.Device, k.Cause)
		case by == nil || by.slot != slot:
			c.Reportf(WrongWinner, slot, conn.End, "%s was kicked by %s, which is not in the slot", conn.Device, k.Device)
		case k.Cause == byLogin && by.entered < logins[conn.Device].began:
			c.Reportf(WrongWinner, slot, conn.End, "%s, which logged in at %s, was kicked by %s, which had logged in by %s%s", conn.Device,
				seconds(logins[conn.Device].began), k.Device, seconds(by.entered), c.story(conn.User, conn.End))
		}
	}
	if fresh > 0 && len(kicked) >= fresh {
		c.Reportf(KickLoop, slot, 0, "all %d logins were kicked", fresh)
	}
}

// checkWinners checks that no two logins of a slot had streams at the same time for longer than it
// takes to end one.
func (c *checker) checkWinners(slot string, conns []*Conn) {
	for i, a := range conns {
		for _, b := range conns[i+1:] {
			from, to := max(a.First, b.First), min(a.Last, b.Last)
			if a.First == 0 || b.First == 0 || a.Device == b.Device || to <= from {
				continue
			}
			troubles := union(c.nodes[a.Addr].read, c.nodes[b.Addr].read)
			if deadline := troubles.until(from, kicks); to > deadline {
				c.Reportf(TwoWinners, slot, to, "%s at %s and %s at %s both had streams from %s to %s%s", a.Device, a.Addr, b.Device, b.Addr,
					seconds(from), seconds(to), c.story(a.User, to))
			}
		}
	}
}
