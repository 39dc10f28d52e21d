package messages

import (
	"slices"
	"strings"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// grace is the time after its answer within which the removal of a member must take effect.
const grace = second

// Membership: a user was allowed or refused a call, or received an entry, contrary to their
// membership. MyChannels: a user's list of channels, or the answer to a MarkRead call, contradicts
// the logs or the memberships.
const (
	Membership chaos.Name = "membership"
	MyChannels chaos.Name = "my-channels"
)

// belonging is what is known about a user's membership during a time: maybe, inside or outside.
type belonging int

const (
	maybe belonging = iota
	inside
	outside
)

// tenure is one user's membership of one channel. Each change holds from its time until the next.
type tenure struct {
	changes []struct {
		from int64
		is   belonging
	}
}

func (t *tenure) set(from int64, is belonging) {
	t.changes = append(t.changes, struct {
		from int64
		is   belonging
	}{from, is})
}

// during returns the membership from begin to end. It returns maybe if the membership changed or is
// unknown.
func (t *tenure) during(begin, end int64) belonging {
	is := outside
	for _, c := range t.changes {
		if c.from <= begin {
			is = c.is
			continue
		}
		if c.from <= end && c.is != is {
			return maybe
		}
	}
	return is
}

type tenant struct{ channel, user string }

// tenures returns every membership, derived from the recorded calls that create channels and add
// and remove members.
func (c *checker) tenures() map[tenant]*tenure {
	all := make(map[tenant]*tenure)
	for i := range c.h.Ops {
		op := &c.h.Ops[i]
		if op.Kind != Create && op.Kind != Add && op.Kind != Remove {
			continue
		}
		for _, user := range op.Users {
			t := all[tenant{op.Channel, user}]
			if t == nil {
				t = new(tenure)
				all[tenant{op.Channel, user}] = t
			}
			if op.Outcome == chaos.Failed {
				continue
			}
			t.set(op.Begin, maybe)
			switch {
			case op.Outcome == chaos.Unknown:
			case op.Kind == Remove:
				t.set(op.End+grace, outside)
			default:
				t.set(op.End, inside)
			}
		}
	}
	return all
}

// checkMembers checks, for members-only channels, that calls of guests were allowed while they were
// members and refused while they were not.
func (c *checker) checkMembers() {
	tenures := c.tenures()
	if len(tenures) == 0 {
		return
	}
	clubs := make(map[string]bool)
	for t := range tenures {
		clubs[t.channel] = true
	}
	for i := range c.h.Ops {
		op := &c.h.Ops[i]
		user, guest := op.guest()
		if !guest || !clubs[op.Channel] {
			continue
		}
		t := tenures[tenant{op.Channel, user}]
		if t == nil {
			t = new(tenure)
		}
		switch is := t.during(op.Begin, op.End); {
		case is == outside && op.Outcome == chaos.OK:
			c.Reportf(Membership, op.Channel, op.End, "%s was accepted, but %s was never a member meanwhile", op.brief(), user)
		case is == inside && op.Reason == notMember:
			c.Reportf(Membership, op.Channel, op.End, "%s was refused, but %s was always a member meanwhile", op.brief(), user)
		}
	}
	c.checkStreams(tenures, clubs)
}

// guest returns the user of a guest's op, whose token requires membership. It returns false for an
// op of another client.
func (op *Op) guest() (string, bool) {
	for _, prefix := range []string{"guest-caller-", "guest-stream-"} {
		if user, ok := strings.CutPrefix(op.Client, prefix); ok {
			return user, true
		}
	}
	return "", false
}

// checkStreams reports entries that were delivered to a user who was not a member at any time from
// the entry's request to its delivery.
func (c *checker) checkStreams(tenures map[tenant]*tenure, clubs map[string]bool) {
	lives := make(map[int64]*Life)
	for i := range c.h.Lives {
		if l := &c.h.Lives[i]; l.User != "" && clubs[l.Channel] {
			lives[l.ID] = l
		}
	}
	begun := c.begins()
	for i := range c.h.Deliveries {
		d := &c.h.Deliveries[i]
		l := lives[d.Life]
		if l == nil || d.Copy == unset {
			continue
		}
		t := tenures[tenant{l.Channel, l.User}]
		if t == nil {
			t = new(tenure)
		}
		at, ok := begun[messageKey{l.Channel, d.Seq}]
		if ok && t.during(at, d.At) == outside && !c.held(l.Addr, at-5*second, d.At) {
			c.Reportf(Membership, l.Channel, d.At, "life %d of %s at %s was delivered %d, requested at %.3fs, but %s was never a member meanwhile",
				l.ID, l.Client, l.Addr, d.Seq, time.Duration(at).Seconds(), l.User)
		}
	}
}

// begins returns when each entry was first requested.
func (c *checker) begins() map[messageKey]int64 {
	begun := make(map[messageKey]int64)
	for channel, log := range c.logs {
		for i := range log {
			if p := c.payloadOf(&log[i]); p != nil {
				first := p.ops[0].Begin
				for _, op := range p.ops {
					first = min(first, op.Begin)
				}
				begun[messageKey{channel, log[i].Seq}] = first
			}
		}
	}
	return begun
}

// cursor is the range, with both ends, in which a user's read cursor must be.
type cursor struct{ low, high int64 }

// cursors returns the range of every read cursor, derived from sends and MarkRead calls.
func (c *checker) cursors() map[tenant]*cursor {
	all := make(map[tenant]*cursor)
	move := func(channel, user string, low, high int64) {
		at := all[tenant{channel, user}]
		if at == nil {
			at = new(cursor)
			all[tenant{channel, user}] = at
		}
		at.low, at.high = max(at.low, low), max(at.high, low, high)
	}
	tenures, begun, unread := c.tenures(), c.begins(), c.maybeUnread()
	for channel, log := range c.logs {
		for i := range log {
			if _, session := sessionOf(channel); session || log[i].Kind != entrySend {
				continue
			}
			low := log[i].Seq
			if t := tenures[tenant{channel, log[i].From}]; t != nil && t.during(begun[messageKey{channel, low}], c.h.Ended) != inside {
				low = 0 // the cursor stays if the user has been removed before the feed reaches the entry
			}
			if unread[messageKey{channel, log[i].Seq}] {
				low = 0 // as docs/operations.md says of a full event stream
			}
			move(channel, log[i].From, low, log[i].Seq)
		}
	}
	for i := range c.h.Ops {
		op := &c.h.Ops[i]
		if op.Kind != MarkRead || op.Outcome == chaos.Failed {
			continue
		}
		user, _ := op.guest()
		if op.Outcome == chaos.OK {
			move(op.Channel, user, op.MinSeq, op.MinSeq)
		} else {
			move(op.Channel, user, 0, op.MinSeq)
		}
	}
	return all
}

// count returns the number of messages in the log up to and including seq.
func (c *checker) count(channel string, seq int64) int64 {
	log := c.logs[channel]
	if seq < 1 || len(log) == 0 {
		return 0
	}
	return log[min(seq, int64(len(log)))-1].Count
}

// checkMyChannels checks the final lists of users' channels, and the answers to MarkRead calls.
func (c *checker) checkMyChannels() {
	c.checkMarked()
	cursors, tenures := c.cursors(), c.tenures()
	for i := range c.h.Mines {
		m := &c.h.Mines[i]
		if m.Err != "" {
			c.Reportf(chaos.Liveness, "", c.h.Ended, "%s can't list their channels at %s: %s", m.User, m.Addr, m.Err)
			continue
		}
		listed := make(map[string]bool)
		for k := range m.Channels {
			mc := &m.Channels[k]
			if listed[mc.Channel] {
				c.Reportf(MyChannels, mc.Channel, c.h.Ended, "%s at %s: listed twice", m.User, m.Addr)
			}
			listed[mc.Channel] = true
			c.checkUserChannel(m, mc, cursors[tenant{mc.Channel, m.User}])
			if t := tenures[tenant{mc.Channel, m.User}]; t != nil && t.during(c.h.Ended, c.h.Ended) == outside {
				c.Reportf(MyChannels, mc.Channel, c.h.Ended, "%s at %s: listed, but not a member", m.User, m.Addr)
			}
		}
		for t, at := range cursors {
			if t.user == m.User && at.low > 0 && !listed[t.channel] && tenures[tenant{t.channel, m.User}] == nil {
				c.Reportf(MyChannels, t.channel, c.h.Ended, "%s at %s: not listed, but has read up to %d", m.User, m.Addr, at.low)
			}
		}
		for t, tenure := range tenures {
			if t.user == m.User && !listed[t.channel] && tenure.during(c.h.Ended, c.h.Ended) == inside {
				c.Reportf(MyChannels, t.channel, c.h.Ended, "%s at %s: not listed, but a member", m.User, m.Addr)
			}
		}
	}
}

func (c *checker) checkUserChannel(m *channelList, mc *UserChannel, at *cursor) {
	head := int64(len(c.logs[mc.Channel]))
	if at == nil {
		at = new(cursor)
	}
	if mc.Head != head || mc.Count != c.count(mc.Channel, head) {
		c.Reportf(MyChannels, mc.Channel, c.h.Ended, "%s at %s: head %d, count %d; the log has %d, %d", m.User, m.Addr, mc.Head, mc.Count, head,
			c.count(mc.Channel, head))
	}
	if mc.ReadSeq < at.low || mc.ReadSeq > at.high {
		c.Reportf(MyChannels, mc.Channel, c.h.Ended, "%s at %s: read up to %d; it must be %d to %d", m.User, m.Addr, mc.ReadSeq, at.low, at.high)
	}
	if unread := mc.Count - c.count(mc.Channel, mc.ReadSeq); mc.Unread != unread {
		c.Reportf(MyChannels, mc.Channel, c.h.Ended, "%s at %s: %d unread of %d after %d; it must be %d", m.User, m.Addr, mc.Unread, mc.Count,
			mc.ReadSeq, unread)
	}
	sends := c.sends[mc.Channel]
	switch {
	case mc.Last == unset && len(sends) > 0:
		c.Reportf(MyChannels, mc.Channel, c.h.Ended, "%s at %s: without the last message", m.User, m.Addr)
	case mc.Last == unset:
	default:
		cp := &c.h.Copies[mc.Last]
		if !slices.Contains(sends, cp.Seq) || cp.Seq != sends[len(sends)-1] {
			c.Reportf(MyChannels, mc.Channel, c.h.Ended, "%s at %s: the last message is %d", m.User, m.Addr, cp.Seq)
		}
		c.checkFresh(cp, head, mc.Channel, c.h.Ended, "the list of channels of "+m.User+" at "+m.Addr)
	}
}

// checkMarked checks the answers to MarkRead calls: the cursor is at or after the requested seq and
// never moves back, and unread counts the messages after it in a log that includes all writes
// acknowledged a second before the call.
func (c *checker) checkMarked() {
	type seen struct{ end, seq int64 }
	last := make(map[tenant][]seen)
	for i := range c.h.Ops {
		op := &c.h.Ops[i]
		if op.Kind != MarkRead || op.Outcome != chaos.OK {
			continue
		}
		user, _ := op.guest()
		key := tenant{op.Channel, user}
		if op.Seq < op.MinSeq {
			c.Reportf(MyChannels, op.Channel, op.End, "%s marked %d and was told %d", op.brief(), op.MinSeq, op.Seq)
		}
		for _, s := range last[key] {
			if s.end < op.Begin && s.seq > op.Seq {
				c.Reportf(MyChannels, op.Channel, op.End, "%s was told %d, and %d before", op.brief(), op.Seq, s.seq)
			}
		}
		last[key] = append(last[key], seen{op.End, op.Seq})
		read := c.count(op.Channel, op.Seq)
		low := c.count(op.Channel, max(op.Seq, c.acks[op.Channel].by(op.Begin-second))) - read
		high := c.count(op.Channel, int64(len(c.logs[op.Channel]))) - read
		if op.Count < low || op.Count > high {
			c.Reportf(MyChannels, op.Channel, op.End, "%s: got %d unread after %d, want %d to %d", op.brief(), op.Count, op.Seq, low, high)
		}
	}
}
