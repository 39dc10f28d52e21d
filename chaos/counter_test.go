package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parleyhq/parley/chaos"
)

// counter is the service under test. A careless one loses its count when it is killed.
type counter struct {
	mu             sync.Mutex // guards the fields below
	down, careless bool
	count, written int
}

var errDown = errors.New("the counter is down")

// add increments the count and returns it.
func (c *counter) add() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return 0, errDown
	}
	if c.count++; !c.careless {
		c.written = c.count
	}
	return c.count, nil
}

// kill is the fault: the counter stops and restarts with the count that it had written.
func (c *counter) kill(context.Context, chaos.Planned) (target string, mend chaos.Mend, err error) {
	set := func(down bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.down, c.count = down, c.written
	}
	set(true)
	return "counter", func(context.Context) error { set(false); return nil }, nil
}

// counterOp is one call. counterLine and counterHistory record all calls.
type (
	counterOp struct {
		Outcome chaos.Outcome `json:"outcome"`
		Count   int           `json:"count"`
	}
	counterLine struct {
		chaos.Line

		Op *counterOp `json:"op,omitempty"`
	}
	counterHistory struct {
		chaos.History

		Ops []counterOp
	}
	// counterTruth is the final count.
	counterTruth struct {
		Count int `json:"count"`
	}
)

func (h *counterHistory) add(l *counterLine) {
	if h.Add(&l.Line); l.Op != nil {
		h.Ops = append(h.Ops, *l.Op)
	}
}

const countLost chaos.Name = "count-lost"

// checkCounter checks that every acknowledged call was counted, and only once.
func checkCounter(h *counterHistory, t *counterTruth) []chaos.Violation {
	f := chaos.NewFindings(10, 0)
	seen := make(map[int]bool)
	for _, op := range h.Ops {
		switch {
		case op.Outcome == chaos.OK && op.Count > t.Count:
			f.Reportf(countLost, "counter", 0, "%d was acknowledged; in the end there are %d", op.Count, t.Count)
		case op.Outcome == chaos.OK && seen[op.Count]:
			f.Reportf(countLost, "counter", 0, "%d was acknowledged twice", op.Count)
		}
		seen[op.Count] = op.Outcome == chaos.OK
	}
	return f.Violations()
}

// driveCounter runs a client that calls add repeatedly, and faults that kill the counter meanwhile.
func driveCounter(ctx context.Context, r *chaos.Run, c *counter) (*counterHistory, *counterTruth, error) {
	h := new(counterHistory)
	rec, err := chaos.NewRecorder(r.HistoryPath(), chaos.RunClock(), h.add, func(l chaos.Line) counterLine { return counterLine{Line: l} })
	if err != nil {
		return nil, nil, err
	}
	counting, group := r.Group(ctx)
	group.Go(func() {
		for rng := chaos.Source(r.Seed, "client"); chaos.Pause(counting, rng, 100*time.Millisecond); {
			rec.Begin(true)
			n, err := c.add()
			op := counterOp{Outcome: chaos.OK, Count: n}
			if err != nil {
				op.Outcome = chaos.Failed
			}
			rec.End(true)
			rec.Write(counterLine{Op: &op})
		}
	})
	nemesis := r.NewNemesis(chaos.NemesisConfig{Log: rec, Own: map[chaos.FaultName]chaos.Break{"counter-kill": c.kill}})
	if err := nemesis.Run(ctx); err != nil {
		return nil, nil, err
	}
	if err := nemesis.Healed(ctx); err != nil {
		return nil, nil, err
	}
	group.Stop()
	return h, &counterTruth{Count: c.written}, rec.Close()
}

func counterPlan() chaos.Plan {
	return chaos.Plan{Scale: 0.2, Counts: map[chaos.FaultName]int{"counter-kill": 3}, Targets: map[chaos.FaultName]int{"counter-kill": 1}}
}

// counterHarness returns the complete harness.
func counterHarness(c *counter) *chaos.Harness {
	return chaos.New(chaos.Spec[counterHistory, counterTruth]{
		Name: "counter", Short: counterPlan, Long: counterPlan, Check: checkCounter,
		Drive: func(ctx context.Context, r *chaos.Run) (*counterHistory, *counterTruth, error) {
			return driveCounter(ctx, r, c)
		},
		Read: func(path string) (*counterHistory, error) {
			h := new(counterHistory)
			return h, chaos.ReadJournal(path, h.add)
		},
		Calls: func(h *counterHistory) int { return len(h.Ops) },
		Summarize: func(w io.Writer, h *counterHistory, _ *counterTruth, r *chaos.Result) {
			_, _ = fmt.Fprintln(w, len(h.Faults), "faults, called:", r.Calls > 0, "violations:", len(r.Violations) > 0)
		},
	})
}

// TestCounter checks that the core suffices for a harness: a careful counter keeps every promise, a
// careless one breaks one, and Judge reports the same violations as the run.
func TestCounter(t *testing.T) {
	t.Parallel()
	for name, careless := range map[string]bool{"careful": false, "careless": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				h := counterHarness(&counter{careless: careless})
				ran, err := h.Run(t.Context(), chaos.Config{Dir: dir, Seed: 7, Plan: counterPlan()})
				if err != nil {
					t.Fatal(err)
				}
				judged, err := h.Judge(dir)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(ran.Violations, judged.Violations, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("judged again (-run +judged):\n%s", diff)
				}
				found := slices.ContainsFunc(ran.Violations, func(v chaos.Violation) bool { return v.Name == countLost })
				if found != careless || ran.Calls == 0 {
					t.Errorf("found %v in %d calls", ran.Violations, ran.Calls)
				}
				var out strings.Builder
				ran.Summary(&out)
				if want := fmt.Sprintf("3 faults, called: true violations: %t\n", careless); out.String() != want {
					t.Errorf("%q, want %q", &out, want)
				}
			})
		})
	}
}
