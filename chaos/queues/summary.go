package queues

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// summarize writes a run's figures and violations, for people.
func summarize(w io.Writer, h *History, t *Truth, r *chaos.Result) {
	ops := make(chaos.Tally[Kind])
	for i := range h.Ops {
		ops.Add(h.Ops[i].Kind, h.Ops[i].Outcome)
	}
	ops.Write(w)
	again, letters := 0, 0
	for i := range h.Deliveries {
		if h.Deliveries[i].Attempt > 1 {
			again++
		}
	}
	for i := range t.Partitions {
		letters += len(t.Partitions[i].Dead)
	}
	_, _ = fmt.Fprintf(w, "  %d deliveries, %d of them not the first; %d dead letters; %d streams, %d leases seen; replies lost: %v\n",
		len(h.Deliveries), again, letters, len(h.Streams), len(h.Leases), r.Lost)
	faults := make(map[string][]chaos.Fault)
	for _, f := range h.Faults {
		faults[f.Name] = append(faults[f.Name], f)
	}
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		met, broken := 0, time.Duration(0)
		for _, f := range faults[name] {
			met, broken = met+f.OpenReads+f.OpenWrites, broken+time.Duration(f.End-f.Begin)
		}
		_, _ = fmt.Fprintf(w, "  %-14s ×%-2d %7s in all, met %d calls under way\n", name, len(faults[name]), broken.Round(10*time.Millisecond), met)
	}
	h.writeHandled(w)
	for _, topic := range []string{jobs, steps, due} {
		if l := lateness(h, topic); len(l) > 0 {
			_, _ = fmt.Fprintf(w, "  %d scheduled messages of %s came late by %s (median), %s (99 %%), %s (worst)\n", len(l), topic,
				l[len(l)/2], l[len(l)*99/100], l[len(l)-1])
		}
	}
	for _, v := range r.Violations {
		_, _ = fmt.Fprintf(w, "VIOLATION %s\n", v)
	}
}

// writeHandled writes how many messages the SDK's workers handled, and how many Failures each part
// of the harness has recorded.
func (h *History) writeHandled(w io.Writer) {
	handled, failures := make(map[string]int), make(map[string]int)
	for i := range h.Handled {
		handled[h.Handled[i].Client]++
	}
	_, _ = fmt.Fprintf(w, "  handled by the SDK's workers, by life: %v\n", handled)
	var longest time.Duration
	for i := range h.Failures {
		f := &h.Failures[i]
		failures[f.Who+" of "+f.Addr]++
		longest = max(longest, time.Duration(f.End-f.Begin))
	}
	_, _ = fmt.Fprintf(w, "  looks that failed: %v, the longest took %s\n", failures, longest.Round(time.Millisecond))
}

// lateness returns the delays between due time and first delivery to group a of a topic's scheduled
// messages, ascending, without rescheduled ones.
func lateness(h *History, topic string) []time.Duration {
	dues, first := make(map[string]int64), make(map[string]int64)
	for i := range h.Ops {
		op := &h.Ops[i]
		switch {
		case op.Topic == topic && op.Kind == Schedule && op.Outcome == chaos.OK:
			dues[op.Mark] = op.DueMS * int64(time.Millisecond)
		case op.Topic == topic && op.Kind == Reschedule:
			dues[op.Mark] = 0
		}
	}
	for i := range h.Deliveries {
		if d := &h.Deliveries[i]; d.Topic == topic && d.Group == "a" {
			first[d.Mark] = cmp.Or(first[d.Mark], d.At)
		}
	}
	var late []time.Duration
	for mark, at := range first {
		if dues[mark] != 0 {
			late = append(late, time.Duration(at-dues[mark]).Round(time.Microsecond*100))
		}
	}
	slices.Sort(late)
	return late
}
