package main

import (
	"fmt"
	"math"
	"time"
)

// slopeUnit is the time in which slopes are stated.
const slopeUnit = 10 * time.Minute

// blocks is the number of parts of the time whose means give the second standard error.
const blocks = 10

// point is a sample of a gauge.
type point struct {
	at    time.Duration // since the load began
	value float64
}

// line is a straight line through samples.
type line struct {
	mean float64
	// start is the value at the time 0, and at least 0.
	start float64
	// slope is the growth in slopeUnit, and err its standard error.
	slope, err float64
}

// fit fits a line to samples by least squares. It requires three samples at different times. Its
// standard error is the larger of two: that of the samples, which is right if these are
// independent, and that of the means of blocks of samples, which is right if samples depend on
// their neighbours.
func fit(samples []point) (line, error) {
	l, err := leastSquares(samples)
	if err != nil || len(samples) < 2*blocks {
		return l, err
	}
	var means []point
	for b := range blocks {
		part := samples[b*len(samples)/blocks : (b+1)*len(samples)/blocks]
		var m point
		for _, p := range part {
			m.at += p.at / time.Duration(len(part))
			m.value += p.value / float64(len(part))
		}
		means = append(means, m)
	}
	if coarse, err := leastSquares(means); err == nil {
		l.err = max(l.err, coarse.err)
	}
	return l, nil
}

// leastSquares fits a line to samples that are independent.
func leastSquares(samples []point) (line, error) {
	n := float64(len(samples))
	if n < 3 {
		return line{}, fmt.Errorf("%d samples, which are too few for a line", len(samples))
	}
	var t, y float64
	for _, p := range samples {
		t += p.units() / n
		y += p.value / n
	}
	var tt, ty float64
	for _, p := range samples {
		tt += (p.units() - t) * (p.units() - t)
		ty += (p.units() - t) * (p.value - y)
	}
	if tt == 0 {
		return line{}, fmt.Errorf("all samples are of one time")
	}
	slope, rest := ty/tt, 0.0
	for _, p := range samples {
		d := p.value - y - slope*(p.units()-t)
		rest += d * d
	}
	return line{mean: y, start: max(0, y-slope*t), slope: slope, err: math.Sqrt(rest / (n - 2) / tt)}, nil
}

// units returns the time of a sample in slopeUnit.
func (p point) units() float64 { return float64(p.at) / float64(slopeUnit) }
