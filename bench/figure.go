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

// Summary summarizes the values of several rounds.
type Summary struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Summarize returns the summary of values, or a zero Summary without values. For an even number of
// values, the median is the upper of the two in the middle.
func Summarize(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(values))
	return Summary{Median: sorted[len(sorted)/2], Min: sorted[0], Max: sorted[len(sorted)-1]}
}

// Ratios returns the summary of each round's value divided by the same round's floor. It returns
// nil if a round lacks either, or has one that is not above zero: it was too small to measure.
func Ratios(values, floors []float64) *Summary {
	if len(values) == 0 || len(values) != len(floors) {
		return nil
	}
	ratios := make([]float64, len(values))
	for i := range values {
		if !(values[i] > 0 && floors[i] > 0) { // also false for NaN
			return nil
		}
		ratios[i] = values[i] / floors[i]
	}
	s := Summarize(ratios)
	return &s
}

// Figure is one measured quantity.
type Figure struct {
	// ID identifies the figure for programs: its area, a slash, and the quantity. It is unique in a
	// run and does not depend on the options.
	ID string `json:"id"`
	// Name describes the quantity. Unit is its unit.
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Value Summary `json:"value"`
	// Floor is the value of FloorName in the same rounds and the same unit, or nil if there is
	// none. Ratio is the value divided by the floor, per round. It is nil if a value or a floor was
	// too small to measure.
	Floor     *Summary `json:"floor,omitempty"`
	FloorName string   `json:"floor_name,omitempty"`
	// Rival is true if the floor is another product that does the same, not a minimal program.
	Rival bool     `json:"rival,omitempty"`
	Ratio *Summary `json:"ratio,omitempty"`
	// Bar is the condition that the figure must meet, or "" for none, and BarMet whether it does.
	// BarMet is nil if Bar is empty or a round gave too little to measure.
	Bar    string `json:"bar,omitempty"`
	BarMet *bool  `json:"bar_met,omitempty"`
	// Setup has the conditions: cores, payload, connections, rate, duration, stores, fsync.
	Setup map[string]string `json:"setup"`
	// Notes are further facts needed to judge the figure.
	Notes []string `json:"notes,omitempty"`
}

// WithFloor returns a copy of the figure with summaries of the values, the floors and their ratios.
// values and floors have one element per round. name is the name of the floor. See Ratios.
func (f Figure) WithFloor(name string, values, floors []float64) Figure {
	floor := Summarize(floors)
	f.Value, f.Floor, f.FloorName, f.Ratio = Summarize(values), &floor, name, Ratios(values, floors)
	return f
}

// WithRatioBar returns the figure with a bar for the ratio to its floor. met reports whether the
// median meets it. Without a ratio, BarMet is nil.
func (f Figure) WithRatioBar(bar string, met func(ratio float64) bool) Figure {
	if f.Ratio == nil {
		f.Bar, f.BarMet = bar, nil
		return f
	}
	return f.WithBar(bar, met(f.Ratio.Median))
}

func atMost(bound float64) func(float64) bool  { return func(v float64) bool { return v <= bound } }
func atLeast(bound float64) func(float64) bool { return func(v float64) bool { return v >= bound } }

// WithBar returns the figure with a bar and whether it is met.
func (f Figure) WithBar(bar string, met bool) Figure {
	f.Bar, f.BarMet = bar, &met
	return f
}

// text formats the figure as lines for people, with an empty line at the end.
func (f Figure) text() string {
	var b strings.Builder
	width, floor := 60, "floor: "+f.FloorName
	if f.Rival {
		floor = "rival: " + f.FloorName
	}
	if f.Floor != nil {
		width = max(width, len(floor))
	}
	width = max(width, len(f.Name))
	fmt.Fprintf(&b, "%-*s %s\n", width+2, f.Name, f.Value.text(f.Unit))
	if f.Floor != nil {
		fmt.Fprintf(&b, "  %-*s %s\n", width, floor, f.Floor.text(f.Unit))
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

// number formats a value with three significant digits, and with all digits before the point.
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

// JSON reports for programs. It writes one object per line to W: a Figure or {"area", "skipped"}.
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
