package presence

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// The names of broken promises, besides those that all harnesses share.
const (
	// FalseOffline: a client was told that a user is offline on a platform on which the user was
	// surely online.
	FalseOffline chaos.Name = "false-offline"
	// Ghost: a client was told that a user is online on a platform on which the user had long not
	// been.
	Ghost chaos.Name = "ghost"
	// Missed: a watcher was not told a change in time, or at the end a watcher, GetPresence,
	// ListOnlineUsers or Redis has something else than the devices.
	Missed chaos.Name = "missed"
	// Repeat: a stream carried the same state of a user twice in a row.
	Repeat chaos.Name = "repeat"
	// Backwards: a stream carried a state with a revision that is not higher than that of the state
	// before.
	Backwards chaos.Name = "backwards"
	// TwoWinners: two logins of one slot both had streams for longer than a login takes to win.
	TwoWinners chaos.Name = "two-winners"
	// KickLoop: as many logins of a slot were kicked as there were.
	KickLoop chaos.Name = "kick-loop"
	// WrongWinner: an older login won, or one of another slot, or a kick has a wrong cause.
	WrongWinner chaos.Name = "wrong-winner"
	// List: a listing lacked a user that was online meanwhile, or had one twice.
	List chaos.Name = "list"
	// Event: a log has an entry without a change, or a gap.
	Event chaos.Name = "event"
	// Leak: after all devices had left, Redis or a node still had something of a user or a stream; or
	// the set of a node does not match the parts that it has.
	Leak chaos.Name = "leak"
)

// checker finds violations in a history by means of the model.
type checker struct {
	*model
	*chaos.Findings
}

// Check compares a history with the final contents of Redis. It returns no violations if every
// promise was kept.
func Check(h *History, t *Truth) []chaos.Violation {
	c := &checker{model: newModel(h, t), Findings: chaos.NewFindings(20, 0)}
	c.checkWatches()
	c.checkReads()
	c.checkLogins()
	c.checkSettled()
	c.checkRedis()
	c.checkLogs()
	c.checkSeen()
	c.checkLiveness()
	return c.Violations()
}

// text is a Stringer that is formatted only if needed: most violations of a wrong server are only
// counted.
type text func() string

// String calls the function.
func (t text) String() string { return t() }

// seconds formats a time as seconds since the run began.
func seconds(at int64) string {
	if at >= forever {
		return "never"
	}
	return fmt.Sprintf("%.3fs", time.Duration(at).Seconds())
}

// story describes the connections of a user around a time, and the faults.
func (c *checker) story(user string, at int64) fmt.Stringer {
	return text(func() string {
		const around = int64(20 * time.Second)
		var b []byte
		for i := range c.h.Conns {
			s := &c.h.Conns[i]
			if s.User != user || s.Begin > at || s.End != 0 && s.End < at-around {
				continue
			}
			b = fmt.Appendf(b, "; %s on platform %d at %s [%s, first %s, last %s, end %s] %s", s.Device, s.Platform, s.Addr, seconds(s.Begin),
				seconds(s.First), seconds(s.Last), seconds(cmp.Or(s.End, forever)), s.How)
		}
		for _, f := range c.h.Faults {
			if f.Begin <= at && f.End >= at-around {
				b = fmt.Appendf(b, "; %s of %s [%s to %s]", f.Name, f.Target, seconds(f.Begin), seconds(f.End))
			}
		}
		return string(b)
	})
}

// checkReads checks every answer of GetPresence and ListOnlineUsers. The promised age of an answer
// holds under every fault: a node that cannot ensure it must fail the call.
func (c *checker) checkReads() {
	for i := range c.h.Ops {
		op := &c.h.Ops[i]
		if op.Outcome != chaos.OK {
			continue
		}
		from := op.Begin - int64(late+reads)
		switch op.Kind {
		case GetPresence:
			for _, s := range op.Users {
				c.checkRead(op, s, from)
			}
		case ListOnline:
			c.checkList(op, from)
		default:
		}
	}
}

// checkRead checks that a state was right at some time between from and the answer.
func (c *checker) checkRead(op *Op, s Seen, from int64) {
	for _, platform := range c.platforms[s.User] {
		online, offline := c.possible(place{s.User, platform}, from, op.End)
		switch {
		case s.State.has(platform) && !online:
			c.Reportf(Ghost, s.User, op.End, "%s of %s [%s to %s] has %q, and platform %d is long offline%s", op.Kind, op.Addr,
				seconds(op.Begin), seconds(op.End), s.State, platform, c.story(s.User, op.End))
		case !s.State.has(platform) && !offline:
			c.Reportf(FalseOffline, s.User, op.End, "%s of %s [%s to %s] has %q without platform %d%s", op.Kind, op.Addr,
				seconds(op.Begin), seconds(op.End), s.State, platform, c.story(s.User, op.End))
		}
	}
}

// checkList checks that a listing has every user once that was online during the whole listing.
func (c *checker) checkList(op *Op, from int64) {
	times := make(map[string]int)
	for _, s := range op.Users {
		times[s.User]++
		c.checkRead(op, s, from)
	}
	for user, platforms := range c.platforms {
		sure := slices.ContainsFunc(platforms, func(p int) bool { return c.sure[place{user, p}].covers(from, op.End) })
		if times[user] > 1 || times[user] == 0 && sure {
			c.Reportf(List, user, op.End, "list of %s [%s to %s] has the user %d times%s", op.Addr, seconds(op.Begin), seconds(op.End),
				times[user], c.story(user, op.End))
		}
	}
}

// checkSeen reports parts of the workload that did not take place.
func (c *checker) checkSeen() {
	reads := make(map[string]int)
	for i := range c.h.Ops {
		if op := &c.h.Ops[i]; op.Outcome == chaos.OK {
			reads[string(op.Kind)+" of "+op.Addr]++
		}
	}
	for _, addr := range c.h.Addrs {
		for _, kind := range []Kind{GetPresence, ListOnline} {
			if reads[string(kind)+" of "+addr] == 0 {
				c.Reportf(chaos.Unobserved, "", 0, "no %s of %s was answered", kind, addr)
			}
		}
	}
	if len(c.h.Frames) == 0 {
		c.Reportf(chaos.Unobserved, "", 0, "no watcher was told a state")
	}
	if c.h.Settled == 0 || c.h.Leaving == 0 || len(c.t.Settled.Parts) == 0 {
		c.Reportf(chaos.Unobserved, "", 0, "the states at the end were not read")
	}
}

// explained is how long after a fault it explains a failed call.
const explained = 20 * time.Second

// checkLiveness reports calls that took too long, calls and streams that failed although nothing
// was broken, and nodes that exited unexpectedly.
func (c *checker) checkLiveness() {
	const limit = callLimit + 3*time.Second
	for i := range c.h.Ops {
		op := &c.h.Ops[i]
		took := time.Duration(op.End - op.Begin)
		switch {
		case took > limit && op.Kind != ListOnline && !c.machine.touches(op.Begin, op.End):
			c.Reportf(chaos.Liveness, "", op.End, "%s of %s took %s", op.Kind, op.Addr, took)
		case op.Outcome != chaos.OK && !c.broken(op.Begin, op.End) && !c.excused(op):
			c.Reportf(chaos.Liveness, "", op.End, "%s of %s failed although nothing is broken: %s", op.Kind, op.Addr, op.Err)
		}
	}
	for i := range c.h.Conns {
		s := &c.h.Conns[i]
		if s.How == Lost && !c.broken(s.Begin, s.End) {
			c.Reportf(chaos.Liveness, s.User, s.End, "the stream of %s to %s [%s to %s] broke although nothing is broken: %s", s.Device, s.Addr,
				seconds(s.Begin), seconds(s.End), s.Err)
		}
	}
	c.ReportExits(c.h.Exits)
}

// broken reports whether any fault but lost replies explains a failure between two times.
func (c *checker) broken(from, to int64) bool {
	return c.stalls.extended(explained).touches(from, to) || slices.ContainsFunc(c.h.Faults, func(f chaos.Fault) bool {
		return f.Name != string(chaos.LostReplies) && f.Begin <= to && f.End+int64(explained) >= from
	})
}

// excused reports whether a call failed because its stream had ended, or because the reply of Redis
// to a read was lost.
func (c *checker) excused(op *Op) bool {
	if op.Stream != "" {
		return strings.HasPrefix(op.Err, "not_found") || strings.HasPrefix(op.Err, "canceled")
	}
	return strings.HasPrefix(op.Err, "unavailable") && c.faults("", chaos.LostReplies).touches(op.Begin, op.End)
}
