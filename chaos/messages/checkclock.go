package messages

import (
	"time"

	"github.com/parleyhq/parley/chaos"
)

const (
	// clockSlack is how much the time of a message may differ from the time of the call that sent
	// it. A server leaves differences of half a second as they are.
	clockSlack = 1500 * time.Millisecond
	// clockNoticed is how long after a clock was moved messages may have wrong times. A server
	// compares its clock every 10 s, and times do not go back within a channel, so that they stand
	// still after a clock that was 10 s fast.
	clockNoticed = 25 * time.Second
)

// checkClock reports messages whose time is not between the begin and the end of the call that sent
// them. It skips what was sent soon after a clock was moved, and calls that are not the only one of
// their client_msg_id or whose outcome is unknown.
func (c *checker) checkClock() {
	for key, p := range c.asked {
		op := p.ops[0]
		if len(p.ops) > 1 || op.Outcome != chaos.OK || op.TimeMS == 0 || op.Duplicate || c.clockMoved(op.Begin, op.End) {
			continue
		}
		at := time.Duration(op.TimeMS*int64(time.Millisecond) - c.h.Began)
		early, late := time.Duration(op.Begin)-at, at-time.Duration(op.End)
		if c.h.Began != 0 && max(early, late) > clockSlack {
			c.Reportf(Clock, key.channel, op.End, "%s has the time %.3fs", op.brief(), at.Seconds())
		}
	}
}

// clockMoved reports whether times that nodes gave between begin and end may be wrong, because a
// clock was moved then or shortly before.
func (c *checker) clockMoved(begin, end int64) bool {
	for i := range c.h.Faults {
		f := &c.h.Faults[i]
		if f.Name == string(chaos.NodeClock) && f.Begin <= end && begin <= f.End+int64(clockNoticed) {
			return true
		}
	}
	return false
}
