package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// Summary is what several rounds gave.
type Summary struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Summarize gives the summary of at least one value. Of an even number it takes the upper one of the two in the middle.
func Summarize(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(values))
	return Summary{Median: sorted[len(sorted)/2], Min: sorted[0], Max: sorted[len(sorted)-1]}
}

// Ratios gives the summary of each round's value by the same round's floor, nil if a round lacks either: what is not above
// zero was too little to be measured.
func Ratios(values, floors []float64) *Summary {
	if len(values) == 0 || len(values) != len(floors) {
		return nil
	}
	ratios := make([]float64, len(values))
	for i := range values {
		if !(values[i] > 0 && floors[i] > 0) { // NaN, too
			return nil
		}
		ratios[i] = values[i] / floors[i]
	}
	s := Summarize(ratios)
	return &s
}

// Figure is one thing that was measured.
type Figure struct {
	// ID names the figure for programs: its area, a slash, and what was measured. It is unique in a run and does not depend on
	// the options.
	ID string `json:"id"`
	// Name says what was measured, Unit in what.
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Value Summary `json:"value"`
	// Floor is what FloorName gave in the same rounds, in the same unit; nil if there is none. Ratio is the value by the
	// floor, round by round; nil if a round gave too little for one.
	Floor     *Summary `json:"floor,omitempty"`
	FloorName string   `json:"floor_name,omitempty"`
	Ratio     *Summary `json:"ratio,omitempty"`
	// Bar is what must hold, BarMet whether it does, by the median, nil if that is not known.
	Bar    string `json:"bar,omitempty"`
	BarMet *bool  `json:"bar_met,omitempty"`
	// Setup is under what conditions: cores, payload, connections, rate, duration, stores, fsync.
	Setup map[string]string `json:"setup"`
	// Notes are what else must be known to judge the figure.
	Notes []string `json:"notes,omitempty"`
}

// WithFloor gives the figure with its floor and the ratio to it.
func (f Figure) WithFloor(name string, values, floors []float64) Figure {
	floor := Summarize(floors)
	f.Value, f.Floor, f.FloorName, f.Ratio = Summarize(values), &floor, name, Ratios(values, floors)
	return f
}

// WithRatioBar gives the figure with a bar for the ratio to its floor, which met judges by the median. Without a ratio
// nobody knows whether it is met.
func (f Figure) WithRatioBar(bar string, met func(ratio float64) bool) Figure {
	if f.Ratio == nil {
		f.Bar, f.BarMet = bar, nil
		return f
	}
	return f.WithBar(bar, met(f.Ratio.Median))
}

func atMost(bound float64) func(float64) bool  { return func(v float64) bool { return v <= bound } }
func atLeast(bound float64) func(float64) bool { return func(v float64) bool { return v >= bound } }

// WithBar gives the figure with its bar, and whether that is met.
func (f Figure) WithBar(bar string, met bool) Figure {
	f.Bar, f.BarMet = bar, &met
	return f
}

// text is the figure for people.
func (f Figure) text() string {
	var b strings.Builder
	width := 60
	if f.Floor != nil {
		width = max(width, len(f.FloorName)+len("floor: "))
	}
	width = max(width, len(f.Name))
	fmt.Fprintf(&b, "%-*s %s\n", width+2, f.Name, f.Value.text(f.Unit))
	if f.Floor != nil {
		fmt.Fprintf(&b, "  %-*s %s\n", width, "floor: "+f.FloorName, f.Floor.text(f.Unit))
	}
	if f.Ratio != nil {
		fmt.Fprintf(&b, "  %-*s %s\n", width, "ratio", f.Ratio.text(""))
	}
	if f.Bar != "" {
		fmt.Fprintf(&b, "  bar: %s%s\n", f.Bar, f.verdict())
	}
	if len(f.Setup) > 0 {
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(f.Setup)) {
			parts = append(parts, k+" "+f.Setup[k])
		}
		fmt.Fprintf(&b, "  with: %s\n", strings.Join(parts, ", "))
	}
	for _, n := range f.Notes {
		fmt.Fprintf(&b, "  note: %s\n", n)
	}
	b.WriteByte('\n')
	return b.String()
}

func (f Figure) verdict() string {
	switch {
	case f.BarMet == nil:
		return ": not known, for a round gave too little to measure"
	case *f.BarMet:
		return ": met"
	default:
		return ": NOT met"
	}
}

func (s Summary) text(unit string) string {
	if unit != "" {
		unit = " " + unit
	}
	if s.Min == s.Max {
		return number(s.Median) + unit
	}
	return fmt.Sprintf("%s%s (%s to %s)", number(s.Median), unit, number(s.Min), number(s.Max))
}

// number gives three digits, and all of those before the point.
func number(v float64) string {
	switch abs := math.Abs(v); {
	case v == math.Trunc(v) && abs < 1e15, abs >= 100:
		return fmt.Sprintf("%.0f", v)
	case abs >= 10:
		return fmt.Sprintf("%.1f", v)
	case abs >= 1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

// JSON reports for programs: one object per line on W, a Figure or {"area", "skipped"}.
type JSON struct{ W io.Writer }

// Figures implements Report.
func (j JSON) Figures(_ Area, figures []Figure) error {
	for i := range figures {
		if err := j.encode(&figures[i]); err != nil {
			return err
		}
	}
	return nil
}

// Skipped implements Report.
func (j JSON) Skipped(area Area, why error) error {
	return j.encode(map[string]string{"area": area.Name, "skipped": why.Error()})
}

func (j JSON) encode(v any) error {
	e := json.NewEncoder(j.W)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
