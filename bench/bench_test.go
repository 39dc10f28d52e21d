package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/bench"
)

// fake is a Measure that returns made-up figures.
func fake(_ context.Context, env *bench.Env) ([]bench.Figure, error) {
	f := bench.Figure{ID: "fake/time", Name: "time per thing", Unit: "us", Setup: map[string]string{"rounds": "3", "fsync": "yes"}}.
		WithFloor("the bare thing", []float64{12, 11, 250}, []float64{4, 2, 100})
	f.Notes = []string{"nothing was measured"}
	return []bench.Figure{
		f.WithRatioBar("3 times at most", func(ratio float64) bool { return ratio <= 3 }),
		{ID: "fake/rate", Name: "things", Unit: "1/s", Value: bench.Summarize([]float64{1234567}), Setup: env.Setup(map[string]string{
			"cores": "", "server": "", "rounds": "", "payload": "",
		})},
	}, nil
}

func fakeAreas() []bench.Area {
	return []bench.Area{
		{Name: "fake", Measure: fake},
		{Name: "other", Measure: fake, Needs: func(*bench.Options) error { return errors.New("it wants what is not there") }},
	}
}

func TestTextReport(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := bench.Run(t.Context(), fakeAreas(), bench.Options{}, &bench.Text{W: &out}); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/report.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestJSONReport(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := bench.Run(t.Context(), fakeAreas(), bench.Options{}, bench.JSON{W: &out}); err != nil {
		t.Fatal(err)
	}
	var got []any
	for line := range strings.Lines(out.String()) {
		var v any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		got = append(got, v)
	}
	type object = map[string]any
	want := []any{
		object{
			"id": "fake/time", "name": "time per thing", "unit": "us", "floor_name": "the bare thing",
			"value": object{"median": 12.0, "min": 11.0, "max": 250.0},
			"floor": object{"median": 4.0, "min": 2.0, "max": 100.0},
			"ratio": object{"median": 3.0, "min": 2.5, "max": 5.5},
			"bar":   "3 times at most", "bar_met": true,
			"setup": object{"rounds": "3", "fsync": "yes"},
			"notes": []any{"nothing was measured"},
		},
		object{
			"id": "fake/rate", "name": "things", "unit": "1/s", "value": object{"median": 1234567.0, "min": 1234567.0, "max": 1234567.0},
			"setup": object{},
		},
		object{"area": "other", "skipped": "it wants what is not there"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestSelect(t *testing.T) {
	t.Parallel()
	names := func(areas []bench.Area) []string {
		var all []string
		for _, a := range areas {
			all = append(all, a.Name)
		}
		return all
	}
	all, err := bench.Select(fakeAreas(), nil)
	if diff := cmp.Diff([]string{"fake", "other"}, names(all)); diff != "" || err != nil {
		t.Errorf("all: %v (-want +got):\n%s", err, diff)
	}
	one, err := bench.Select(fakeAreas(), []string{"other"})
	if diff := cmp.Diff([]string{"other"}, names(one)); diff != "" || err != nil {
		t.Errorf("one: %v (-want +got):\n%s", err, diff)
	}
	families := []bench.Area{{Name: "a"}, {Name: "a-b"}, {Name: "ab"}}
	family, err := bench.Select(families, []string{"a"})
	if diff := cmp.Diff([]string{"a", "a-b"}, names(family)); diff != "" || err != nil {
		t.Errorf("a family: %v (-want +got):\n%s", err, diff)
	}
	if _, err := bench.Select(fakeAreas(), []string{"dance"}); !errors.Is(err, bench.ErrUnknownArea) {
		t.Errorf("unknown: %v", err)
	}
}

// TestFailuresAreReported checks that the failure of one area is returned after the others are
// measured.
func TestFailuresAreReported(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	areas := append([]bench.Area{
		{Name: "bad", Measure: func(context.Context, *bench.Env) ([]bench.Figure, error) { return nil, broken }},
	}, fakeAreas()...)
	var got collector
	err := bench.Run(t.Context(), areas, bench.Options{}, &got)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "bad") {
		t.Errorf("error: %v", err)
	}
	if diff := cmp.Diff([]string{"fake/time", "fake/rate"}, ids(got.figures)); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
}

// TestOptions checks that invalid options are refused.
func TestOptions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]bench.Options{
		"no room for a time": {Payload: 8},
		"nor in a queue's":   {QueuePayload: 8},
		"negative":           {Rounds: -1},
		"no address":         {Addrs: []string{"http://"}},
		"TLS":                {Addrs: []string{"https://127.0.0.1:8080"}},
	} {
		var got collector
		if err := bench.Run(t.Context(), fakeAreas(), o, &got); err == nil || got.figures != nil {
			t.Errorf("%s: %v, %d figures", name, err, len(got.figures))
		}
	}
}

// TestOwnServersOnly checks that areas that require own servers are skipped for a running server.
func TestOwnServersOnly(t *testing.T) {
	t.Parallel()
	areas, err := bench.Select(bench.Areas(), []string{"idle", "telemetry", "reconnect"})
	if err != nil {
		t.Fatal(err)
	}
	var got collector
	if err := bench.Run(t.Context(), areas, bench.Options{Addrs: []string{"127.0.0.1:1"}}, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.skipped) != 3 || got.figures != nil {
		t.Errorf("left out: %v; figures: %v", got.skipped, got.figures)
	}
}
