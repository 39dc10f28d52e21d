package bench_test

import (
	"math"
	"strings"
	"testing"

	"github.com/parleyhq/parley/bench"
)

// TestBarIsUnknownWithoutData checks that a bar is unknown if a floor or a value was too small to
// measure.
func TestBarIsUnknownWithoutData(t *testing.T) {
	t.Parallel()
	always := func(float64) bool { return true }
	for name, c := range map[string]struct{ values, floors []float64 }{
		"no floor":              {[]float64{1}, []float64{0}},
		"no value":              {[]float64{0}, []float64{1}},
		"one round of two":      {[]float64{1, 1}, []float64{1, 0}},
		"a round without floor": {[]float64{1, 1}, []float64{1}},
		"no number":             {[]float64{math.NaN()}, []float64{1}},
		"no rounds":             {nil, nil},
	} {
		f := bench.Figure{ID: "fake/time"}.WithFloor("floor", c.values, c.floors).WithRatioBar("bar", always)
		if f.Ratio != nil || f.BarMet != nil || f.Bar == "" {
			t.Errorf("%s: ratio %v, bar %q, met %v", name, f.Ratio, f.Bar, f.BarMet)
		}
		var out strings.Builder
		if err := (&bench.Text{W: &out}).Figures(bench.Area{}, []bench.Figure{f}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "bar: bar: not known") {
			t.Errorf("%s: %s", name, out.String())
		}
	}
	f := bench.Figure{}.WithFloor("floor", []float64{2}, []float64{1}).
		WithRatioBar("bar", func(ratio float64) bool { return ratio <= 1 })
	if f.BarMet == nil || *f.BarMet {
		t.Errorf("twice the floor: met %v", f.BarMet)
	}
}
