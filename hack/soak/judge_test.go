package main

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// series returns a sample every 10 s for 25 minutes.
func series(value func(minutes float64) float64) []point {
	var all []point
	for at := 5 * time.Minute; at < 30*time.Minute; at += 10 * time.Second {
		all = append(all, point{at, value(at.Minutes())})
	}
	return all
}

// TestJudge checks the verdicts on synthetic series with a bar of 1 % in 10 minutes.
func TestJudge(t *testing.T) {
	t.Parallel()
	// The noise is the same in each run: a verdict by two standard errors is wrong for a few series in
	// a hundred.
	rng := rand.New(rand.NewPCG(1, 0))
	const mb = 1e6
	noise := func(size float64) float64 { return size * rng.NormFloat64() }
	for _, tt := range []struct {
		name  string
		value func(minutes float64) float64
		want  verdict
	}{
		{"constant", func(float64) float64 { return 30 * mb }, steady},
		{"nothing", func(float64) float64 { return 0 }, steady},
		{"noise of 0.3 %", func(float64) float64 { return 30*mb + noise(0.1*mb) }, steady},
		{"falling", func(m float64) float64 { return (40 - m/10) * mb }, steady},
		{"half of the bar", func(m float64) float64 { return (30 + 0.015*m) * mb }, steady},
		{"twice the bar", func(m float64) float64 { return (30 + 0.06*m) * mb }, leak},
		{"twice the bar under noise of 0.3 %", func(m float64) float64 { return (30+0.06*m)*mb + noise(0.1*mb) }, leak},
		{"ten times the bar under noise of 5 %", func(m float64) float64 { return (30+0.3*m)*mb + noise(1.5*mb) }, leak},
		{"half of the bar under noise of 20 %", func(m float64) float64 { return (30+0.015*m)*mb + noise(6*mb) }, unclear},
		{"a sawtooth of 20 % in 7 minutes", func(m float64) float64 { return 30*mb + 6*mb*math.Mod(m, 7)/7 }, unclear},
		{"a leak that is all there is", func(m float64) float64 { return mb * m }, leak},
		{"a step of 3 % at the end", func(m float64) float64 {
			if m > 25 {
				return 31 * mb
			}
			return 30 * mb
		}, leak},
	} {
		l, err := fit(series(tt.value))
		if err != nil {
			t.Fatal(err)
		}
		if got := judge(l, 1); got != tt.want {
			t.Errorf("%s: got %v, want %v: %+v", tt.name, got, tt.want, l)
		}
	}
}

// TestFit checks the line through exact samples, its standard error against that of another way of
// computing it, and what cannot be fitted.
func TestFit(t *testing.T) {
	t.Parallel()
	l, err := fit(series(func(m float64) float64 { return 100 + 3*m }))
	if err != nil || math.Abs(l.slope-30) > 1e-6 || l.err > 1e-6 {
		t.Errorf("got %+v, %v, want a slope of 30 in 10 minutes", l, err)
	}
	// Four samples by hand: y = 0, 1, 0, 1 at 0, 10, 20, 30 minutes; slope 0.2, residual squares
	// 0.8.
	var few []point
	for i := range 4 {
		few = append(few, point{time.Duration(i) * slopeUnit, float64(i % 2)})
	}
	if l, err = fit(few); err != nil || math.Abs(l.slope-0.2) > 1e-9 || math.Abs(l.err-math.Sqrt(0.8/2/5)) > 1e-9 || l.mean != 0.5 || math.Abs(l.start-0.2) > 1e-9 {
		t.Errorf("got %+v, %v", l, err)
	}
	if l, err := fit(few[:2]); err == nil {
		t.Errorf("two samples give %+v", l)
	}
	if l, err := fit([]point{few[0], few[0], few[0]}); err == nil {
		t.Errorf("samples of one time give %+v", l)
	}
}

// TestRecent checks the ring of sent messages.
func TestRecent(t *testing.T) {
	t.Parallel()
	var r recent
	if m, ok := r.get(0); ok {
		t.Errorf("got %v of none", m)
	}
	for i := range int64(300) {
		r.add(message{seq: i})
	}
	for back, want := range map[int]int64{0: 299, 1: 298, 255: 44} {
		if m, ok := r.get(back); !ok || m.seq != want {
			t.Errorf("%d before the last: %v, %v, want %d", back, m, ok, want)
		}
	}
	if m, ok := r.get(256); ok {
		t.Errorf("got %v, which is no longer there", m)
	}
}
