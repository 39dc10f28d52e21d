package main

import "fmt"

// verdict is the judgement of a gauge.
type verdict int

// The verdicts. A leak fails the run.
const (
	steady verdict = iota
	// unclear means that the slope's standard error is more than half of the bar.
	unclear
	leak
)

func (v verdict) String() string { return [...]string{"steady", "unclear", "LEAK"}[v] }

// judge judges a line. bar is the growth in slopeUnit that is allowed, in percent of the line's
// start.
func judge(l line, bar float64) verdict {
	allowed := bar / 100 * l.start
	switch {
	case l.slope > allowed && l.slope > 2*l.err:
		return leak
	case l.err > allowed/2:
		return unclear
	default:
		return steady
	}
}

// report returns a line of text about a gauge, for people.
func (g *gauge) report(l line, v verdict) string {
	percent := func(x float64) float64 {
		if l.start == 0 {
			return 0
		}
		return 100 * x / l.start
	}
	return fmt.Sprintf("%-18s mean %10.1f %-3s  %+9.3f ± %.3f in 10 min, %+7.2f %% ± %.2f %%  %s",
		g.name, l.mean/g.scale, g.unit, l.slope/g.scale, l.err/g.scale, percent(l.slope), percent(l.err), v)
}
