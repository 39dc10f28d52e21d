package bench_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/parleyhq/parley/bench"
	"github.com/parleyhq/parley/internal/rig"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == bench.FloorCommand {
		if err := bench.RunFloor(context.Background(), os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// buildParleyd builds the server once for all tests.
var buildParleyd = sync.OnceValues(func() (string, error) {
	return rig.BuildParleyd(context.Background()) // not the first test's context
})

// tiny returns options for short runs, whose figures are meaningless.
func tiny(t *testing.T) bench.Options {
	t.Helper()
	parleyd, err := buildParleyd()
	if err != nil {
		t.Fatal(err)
	}
	return bench.Options{
		Rounds: 1, Duration: 200 * time.Millisecond, Subscribers: 10, Streams: 30, Senders: 4, Channels: 3, Delayed: 100,
		Parleyd: parleyd, Dir: t.TempDir(),
		Progress: func(line string) { t.Log(line) },
	}
}

// collector is a Report that stores its input.
type collector struct {
	figures []bench.Figure
	skipped map[string]error
}

// Figures implements bench.Report.
func (c *collector) Figures(_ bench.Area, figures []bench.Figure) error {
	c.figures = append(c.figures, figures...)
	return nil
}

// Skipped implements bench.Report.
func (c *collector) Skipped(area bench.Area, why error) error {
	if c.skipped == nil {
		c.skipped = make(map[string]error)
	}
	c.skipped[area.Name] = why
	return nil
}

// area returns the area with exactly this name.
func area(t *testing.T, name string) []bench.Area {
	t.Helper()
	areas, err := bench.Select(bench.Areas(), []string{name})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(areas, func(a bench.Area) bool { return a.Name != name })
}

// measure takes an area's figures, and fails the test if there are none.
func measure(t *testing.T, name string, options bench.Options) []bench.Figure {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var got collector
	if err := bench.Run(ctx, area(t, name), options, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.figures) == 0 {
		t.Fatalf("%s: no figures, left out: %v", name, got.skipped)
	}
	return got.figures
}

// ids returns the ids of the figures.
func ids(figures []bench.Figure) []string {
	var all []string
	for _, f := range figures {
		all = append(all, f.ID)
	}
	return all
}
