package presence

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// summarize writes a run's figures and violations, for people.
func summarize(w io.Writer, h *History, t *Truth, r *chaos.Result) {
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	ops := make(chaos.Tally[Kind])
	for i := range h.Ops {
		ops.Add(h.Ops[i].Kind, h.Ops[i].Outcome)
	}
	ends, logins, causes := make(map[How]int), 0, make(map[string]int)
	for i := range h.Conns {
		c := &h.Conns[i]
		ends[c.How]++
		if c.Fresh && c.First != 0 {
			logins++
		}
		if c.Kick != nil {
			causes[c.Kick.Cause]++
		}
	}
	ops.Write(w)
	states := 0
	for i := range h.Frames {
		states += len(h.Frames[i].Users)
	}
	p("policy %s: %d streams of devices, %d of them new logins; ends: %v; kicks: %v", h.Policy, len(h.Conns), logins, ends, causes)
	p("%d streams of watchers, %d frames with %d states; replies lost: %v", len(h.Watches), len(h.Frames), states, r.Lost)
	online, entries := t.Settled.states(), 0
	for i := range t.Settled.Logs {
		entries += len(t.Settled.Logs[i].Entries)
	}
	p("at the end %d users online; settled after %s; %d entries in the logs", len(online),
		time.Duration(h.Settled-h.Healed).Round(10*time.Millisecond), entries)
	slow := time.Duration(0)
	for _, s := range h.Stalls {
		slow += time.Duration(s.To - s.From)
	}
	p("the machine or Redis was slow %d times, for %s in all", len(h.Stalls), slow.Round(10*time.Millisecond))
	faults := make(map[string][]chaos.Fault)
	for _, f := range h.Faults {
		faults[f.Name] = append(faults[f.Name], f)
	}
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		met, broken := 0, time.Duration(0)
		for _, f := range faults[name] {
			met, broken = met+f.OpenReads+f.OpenWrites, broken+time.Duration(f.End-f.Begin)
		}
		p("  %-14s ×%-2d %7s in all, met %d calls and streams", name, len(faults[name]), broken.Round(10*time.Millisecond), met)
	}
	for _, v := range r.Violations {
		p("VIOLATION %s", v)
	}
}
