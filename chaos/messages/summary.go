package messages

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// summarize writes a run's figures and violations, for people.
func summarize(w io.Writer, h *History, t *Truth, r *chaos.Result) {
	ops := make(chaos.Tally[Kind])
	for i := range h.Ops {
		ops.Add(h.Ops[i].Kind, h.Ops[i].Outcome)
	}
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	ops.Write(w)
	p("%d deliveries in %d lives; %d entries in the logs; replies lost: %v", len(h.Deliveries), len(h.Lives),
		len(t.Entries), r.Lost)
	p("%d calls to channels whose messages expire, of %d messages", len(h.Trims), h.trimmedSends())
	h.summarizeSessions(w, t)
	p("calls to channels that are closed, opened and deleted:")
	h.changes().Write(w)
	h.summarizeLogins(w)
	for _, cost := range h.Costs {
		p("%d round trips to %s, of at most %d", cost.RoundTrips, cost.Engine, h.budget(cost.Engine))
	}
	for _, u := range h.Usages {
		p("%s, without clients: %.1f MiB of heap, %d unread bytes %s", u.Node, float64(u.Heap)/(1<<20), u.Unread, u.Err)
	}
	p("\n%-14s %-18s %8s %7s %6s %6s %9s", "fault", "target", "at", "took", "writes", "reads", "recovery")
	hits := 0
	for i := range h.Faults {
		f := &h.Faults[i]
		if f.OpenWrites+f.OpenReads > 0 {
			hits++
		}
		p("%-14s %-18s %7.1fs %6.1fs %6d %6d %8.2fs", f.Name, f.Target, seconds(f.Begin), seconds(f.End-f.Begin), f.OpenWrites,
			f.OpenReads, seconds(h.worstGap(f.Begin, min(f.End+int64(10*time.Second), cmp.Or(h.Healed, f.End)))))
	}
	p("%d of %d faults met calls under way; recovery is the longest time around a fault without any write acknowledged", hits,
		len(h.Faults))
	p("longest time without any write acknowledged: %.2fs", seconds(h.worstGap(0, h.Healed)))
	if len(r.Violations) == 0 {
		p("\nno violations")
		return
	}
	p("\n%d violations:", len(r.Violations))
	const most = 40
	for i, v := range r.Violations {
		if i == most {
			p("and %d more in violations.json", len(r.Violations)-most)
			break
		}
		text := v.String()
		if len(text) > 1200 {
			text = text[:1200] + " ..."
		}
		p("  %s", text)
	}
}

func seconds(ns int64) float64 { return time.Duration(ns).Seconds() }

// worstGap returns the longest time without an acknowledged write between from and to, in
// nanoseconds.
func (h *History) worstGap(from, to int64) int64 {
	var ends []int64
	for i := range h.Ops {
		if op := &h.Ops[i]; op.Kind.write() && op.Outcome == chaos.OK && op.End >= from && op.End <= to {
			ends = append(ends, op.End)
		}
	}
	slices.Sort(ends)
	last, worst := from, int64(0)
	for _, end := range append(ends, max(from, to)) {
		worst = max(worst, end-last)
		last = end
	}
	return worst
}

// summarizeSessions writes the figures of sessions.
func (h *History) summarizeSessions(w io.Writer, t *Truth) {
	deltas, ends := 0, make(map[Status]int)
	for i := range h.Deliveries {
		if h.Deliveries[i].Event == EventDelta {
			deltas++
		}
	}
	opened := make(map[string]bool)
	for i := range h.Generations {
		opened[h.Generations[i].MsgID] = true
	}
	abandoned := 0
	for i := range t.Entries {
		e := &t.Entries[i]
		if e.Kind == entrySend && opened[e.MsgID] {
			ends[e.Status]++
		}
		if strings.HasPrefix(e.ClientMsgID, abandonedPrefix) {
			abandoned++
		}
	}
	_, _ = fmt.Fprintf(w, "%d generations of %d messages in %d pieces, %d deltas delivered; %d complete, %d cancelled, %d failed, "+
		"of these %d abandoned, %d edited or recalled, %d open; %d lists; %d sessions deleted\n", len(h.Generations), len(opened), len(h.Pieces),
		deltas, ends[StatusComplete], ends[StatusCancelled], ends[StatusFailed], abandoned, ends[StatusEdited]+ends[StatusRecalled],
		ends[StatusOpen], len(t.Lists), len(h.Deletions))
}
