package queues

import (
	"slices"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// checkSeen checks that leases and counters were observed whenever no fault was active, and that no
// worker of the SDK gave up.
func (c *checker) checkSeen() {
	for name, n := range map[string]int{
		"lease": len(c.h.Leases), "contact": len(c.h.Contacts), "count": len(c.h.Counts), "last count": len(c.t.Counts),
	} {
		if n == 0 {
			c.Reportf(chaos.Unobserved, "", 0, "no %s was seen", name)
		}
	}
	for i := range c.h.Failures {
		f := &c.h.Failures[i]
		took := time.Duration(f.End - f.Begin).Round(time.Millisecond)
		switch {
		case f.Who == Working:
			c.Reportf(Handling, "", f.Begin, "the SDK's worker %s gave up: %s", f.Addr, f.Err)
		case !c.explained(f):
			c.Reportf(chaos.Unobserved, "", f.Begin, "the %s could not ask %s (%s), though nothing was broken: %s", f.Who, f.Addr, took, f.Err)
		}
	}
}

// recovery is how long a fault may have effects after it was mended: clients reconnect after a
// wait.
const recovery = int64(3 * time.Second)

// explained reports whether a failure coincided with a fault of its target, or of Redis, where all
// answers come from. Lost replies don't explain the failure of the last try.
func (c *checker) explained(f *Failure) bool {
	return slices.ContainsFunc(c.h.Faults, func(fault chaos.Fault) bool {
		hit := fault.Target == "redis" || f.Who == Auditing && (fault.Target == f.Addr || fault.Name == string(chaos.Roll) ||
			fault.Name == string(chaos.LostReplies) && f.Try < auditTries)
		return hit && fault.Begin <= f.End && f.Begin <= fault.End+recovery
	})
}
