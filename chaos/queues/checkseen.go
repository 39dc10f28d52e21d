package queues

import (
	"slices"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// checkSeen holds that the leases and the counters were looked at, and whenever nothing was broken.
func (c *checker) checkSeen() {
	for name, n := range map[string]int{"lease": len(c.h.Leases), "count": len(c.h.Counts), "last count": len(c.t.Counts)} {
		if n == 0 {
			c.Reportf(chaos.Blind, "", 0, "no %s was seen", name)
		}
	}
	for i := range c.h.Failures {
		f := &c.h.Failures[i]
		took := time.Duration(f.End - f.Begin).Round(time.Millisecond)
		switch {
		case f.Who == Working:
			c.Reportf(Handling, "", f.Begin, "the SDK's worker %s gave up: %s", f.Addr, f.Err)
		case !c.explained(f):
			c.Reportf(chaos.Blind, "", f.Begin, "the %s could not ask %s (%s), though nothing was broken: %s", f.Who, f.Addr, took, f.Err)
		}
	}
}

// recovery is how long after a fault was mended it may still be felt: connections are made anew, after a wait.
const recovery = int64(3 * time.Second)

// explained reports whether a failure met a fault of whom it asked, or of Redis, from which all answers come. Replies that are lost to
// nodes explain one that a repeat made good.
func (c *checker) explained(f *Failure) bool {
	return slices.ContainsFunc(c.h.Faults, func(fault chaos.Fault) bool {
		hit := fault.Target == "redis" || f.Who == Auditing && (fault.Target == f.Addr || fault.Name == string(chaos.Roll) ||
			fault.Name == string(chaos.LostReplies) && f.Try < auditTries)
		return hit && fault.Begin <= f.End && f.Begin <= fault.End+recovery
	})
}
