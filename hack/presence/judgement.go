package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// quantiles returns the median, the 99th percentile and the maximum of times, in milliseconds. It
// sorts them.
func quantiles(all []time.Duration) string {
	slices.Sort(all)
	at := func(q float64) float64 { return all[int(q*float64(len(all)-1))].Seconds() * 1000 }
	return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms, at most %.0f ms (%d times)", at(0.5), at(0.99), at(1), len(all))
}

// phaseNames are the phases as they are reported.
var phaseNames = map[phase]string{calm: "without faults", disturbed: "in parts with faults", ending: "at the end, when all leave at once"}

// timesOf returns a line for each phase that has times.
func timesOf(name string, all map[phase][]time.Duration) (lines []string) {
	for _, p := range []phase{calm, disturbed, ending} {
		if len(all[p]) > 0 {
			lines = append(lines, fmt.Sprintf("%s, %s: %s", name, phaseNames[p], quantiles(all[p])))
		}
	}
	return lines
}

// kinds returns the names of all calls and streams that the thieves try.
func kinds() []string {
	return append(slices.Sorted(maps.Keys(calls)), slices.Sorted(maps.Keys(openers))...)
}

// lines describes what was counted and measured.
func (g *ledger) lines() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	lines := timesOf("a call of SignOut", g.signOuts)
	lines = append(lines, timesOf("from its return to the first refusal, on each node", g.refusals)...)
	lines = append(lines, timesOf("from its return to the end of a live stream", g.ends)...)
	if len(g.admitted) > 0 {
		lines = append(lines, fmt.Sprintf("%d calls were admitted after its return; sent after: %s", len(g.admitted), quantiles(g.admitted)))
	}
	for _, kind := range kinds() {
		lines = append(lines, g.kindLine(kind))
	}
	var faults []string
	for key := range g.during {
		if !slices.Contains(faults, key.fault) {
			faults = append(faults, key.fault)
		}
	}
	slices.Sort(faults)
	for _, name := range faults {
		for _, is := range []age{unrevoked, revoked} {
			var parts []string
			for _, a := range answers {
				parts = append(parts, fmt.Sprintf("%d %s", g.during[faultKey{name, is, a}], a))
			}
			lines = append(lines, fmt.Sprintf("in the part of the fault %q, with %s: %s", name, is, strings.Join(parts, ", ")))
		}
	}
	for _, what := range slices.Sorted(maps.Keys(g.others)) {
		lines = append(lines, fmt.Sprintf("%d %s", g.others[what], what))
	}
	return lines
}

// kindLine returns how often a call or a stream had each answer, on each node. The caller holds mu.
func (g *ledger) kindLine(kind string) string {
	var ages []string
	for _, is := range []age{unrevoked, fresh, revoked} {
		var parts []string
		for _, a := range answers {
			var nodes []string
			for node := range maxNodes {
				nodes = append(nodes, strconv.Itoa(g.answers[answerKey{kind, node, is, a}]))
			}
			parts = append(parts, fmt.Sprintf("%s %s", strings.Join(nodes, "+"), a))
		}
		ages = append(ages, fmt.Sprintf("%v: %s", is, strings.Join(parts, ", ")))
	}
	return kind + " on the nodes, with " + strings.Join(ages, "; with ")
}

// summary describes what is right.
func (g *ledger) summary() string {
	n := len(g.signedOut())
	g.mu.Lock()
	defer g.mu.Unlock()
	counts := make(map[faultKey]int)
	for key, n := range g.answers {
		counts[faultKey{"", key.age, key.answer}] += n
	}
	of := func(is age, a answer) int { return counts[faultKey{"", is, a}] }
	return fmt.Sprintf("%d users signed out: of the calls and streams with their tokens from 1 s later on, %d were refused, none was admitted, for %d a node "+
		"could not tell, and %d had no answer; with other tokens %d were admitted, none was refused as revoked, for %d a node could not tell, and %d had "+
		"no answer", n, of(revoked, refused), of(revoked, unsure), of(revoked, unknown), of(unrevoked, admitted), of(unrevoked, unsure), of(unrevoked, unknown))
}

// problems describes everything that breaks a promise, and what was not tried.
func (g *ledger) problems() (wrong []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range slices.Sorted(maps.Keys(g.offences)) {
		var cases []string
		for _, c := range g.offences[o].worst {
			cases = append(cases, c.text)
		}
		wrong = append(wrong, fmt.Sprintf("%d %s: %s", g.offences[o].n, o, strings.Join(cases, "; ")))
	}
	for _, kind := range kinds() {
		for node := range maxNodes {
			if g.answers[answerKey{kind, node, revoked, refused}] == 0 {
				wrong = append(wrong, fmt.Sprintf("no %s with a revoked token was refused on node %d", kind, node))
			}
			if g.answers[answerKey{kind, node, unrevoked, admitted}] == 0 {
				wrong = append(wrong, fmt.Sprintf("no %s with another token was admitted on node %d", kind, node))
			}
		}
	}
	ends := 0
	for _, all := range g.ends {
		ends += len(all)
	}
	if ends == 0 {
		wrong = append(wrong, "no live stream was ended by a sign-out")
	}
	return wrong
}
