package main

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/parleyhq/parley/internal/rig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestJudgeAll checks that a run fails by the gauges that it judges, and that the error is the last
// line and names them.
func TestJudgeAll(t *testing.T) {
	t.Parallel()
	gauges := []*gauge{
		{name: "steady", scale: 1, samples: series(func(float64) float64 { return 7 })},
		{name: "growing", scale: 1, samples: series(func(m float64) float64 { return 100 + m })},
		{name: "within its own bar", scale: 1, bar: 50, samples: series(func(m float64) float64 { return 100 + m })},
		{name: "noisy", scale: 1, samples: series(func(m float64) float64 { return 100 + 20*math.Mod(m, 7)/7 })},
	}
	for _, tt := range []struct {
		judge []string
		allow bool
		want  string
	}{
		{nil, false, "growing"},
		{[]string{"growing"}, true, "growing"},
		{[]string{"steady"}, false, ""},
		{[]string{"within its own bar"}, false, ""},
		{[]string{"steady", "noisy"}, false, "noisy"},
		{[]string{"steady", "noisy"}, true, ""},
	} {
		var out strings.Builder
		err := judgeAll(gauges, &flags{Bar: 1, Judge: tt.judge, AllowUnclear: tt.allow}, &out)
		if (err != nil) != (tt.want != "") || err != nil && !strings.HasSuffix(err.Error(), ": "+tt.want) {
			t.Errorf("judged %q: %v", tt.judge, err)
		}
		if n := strings.Count(out.String(), "\n"); n != len(gauges) {
			t.Errorf("reported %d gauges: %s", n, out.String())
		}
	}
}

// TestShort runs the load on a real server for a minute. A gauge that grows must fail the run. In
// so short a time others grow too, until they reach their limits, and so only goroutines are judged
// besides, with a bar that a leak of one for each call would exceed.
func TestShort(t *testing.T) {
	if testing.Short() {
		t.Log("not part of the quick tests")
		return
	}
	t.Parallel()
	began := time.Now()
	growing := &gauge{name: "growing", scale: 1, read: func(context.Context) (float64, error) { return time.Since(began).Seconds(), nil }}
	f := &flags{For: time.Minute, Settle: 20 * time.Second, Every: 5 * time.Second, Bar: 500, Judge: []string{"goroutines", "growing"}, AllowUnclear: true}
	var out strings.Builder
	err := run(t.Context(), f, rig.Options{}, &out, growing)
	t.Logf("%s%v", &out, err)
	if err == nil || !strings.HasSuffix(err.Error(), "500 % for mongod: growing") {
		t.Fatal("want a failure of the gauge that grows, and of no other")
	}
	for _, name := range []string{"heap after GC", "goroutines", "redis used_memory", "JetStream bytes", "mongod resident", "mongod allocated"} {
		if !strings.Contains(out.String(), "\n"+name) {
			t.Errorf("%s was not sampled", name)
		}
	}
}
