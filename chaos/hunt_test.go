package chaos

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestJudgeMutants checks, with runs of given results, that a mutant is caught only by its own
// violations and after a clean control.
func TestJudgeMutants(t *testing.T) {
	t.Parallel()
	schedule := func(n int) []Step { return []Step{{Wait: time.Duration(n)}} }
	mutant := func(name string, n int) Mutant {
		return Mutant{Name: name, Steps: schedule(n), Shows: []Name{"fence", "order"}}
	}
	for _, c := range []struct {
		name   string
		chosen []Mutant
		finds  map[string]string
		// ran are the expected runs in order. missed are the mutants that the error must name.
		ran, missed []string
	}{
		{
			"caught",
			[]Mutant{mutant("a", 1), mutant("b", 1), mutant("c", 2)},
			map[string]string{"a": "stuck order", "b": "fence", "c": "fence"},
			[]string{"control-a", "a", "b", "control-c", "c"},
			nil,
		},
		{
			"by something else",
			[]Mutant{mutant("a", 1), mutant("b", 1)},
			map[string]string{"a": "stuck blind", "b": "fence"},
			[]string{"control-a", "a", "b"},
			[]string{"a"},
		},
		{"by nothing", []Mutant{mutant("a", 1)}, nil, []string{"control-a", "a"}, []string{"a"}},
		{
			"the control is not clean",
			[]Mutant{mutant("a", 1), mutant("b", 1), mutant("c", 2)},
			map[string]string{"control-a": "fence", "a": "fence", "b": "fence", "c": "fence"},
			[]string{"control-a", "control-c", "c"},
			[]string{"a", "b"},
		},
		{"not run", []Mutant{mutant("a", 1)}, map[string]string{"a": "error"}, []string{"control-a", "a"}, []string{"a"}},
		{"the control is not run", []Mutant{mutant("a", 1)}, map[string]string{"control-a": "error"}, []string{"control-a"}, []string{"a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var ran []string
			var out strings.Builder
			err := judgeMutants(t.Context(), c.chosen, &out, func(_ context.Context, m *Mutant) (found []Violation, err error) {
				ran = append(ran, m.Name)
				for name := range strings.FieldsSeq(c.finds[m.Name]) {
					if name == "error" {
						return nil, errors.New("no fleet")
					}
					found = append(found, Violation{Name: Name(name)})
				}
				return found, nil
			})
			if !slices.Equal(ran, c.ran) {
				t.Errorf("ran %v, want %v", ran, c.ran)
			}
			switch want := "not caught: " + strings.Join(c.missed, ", "); {
			case len(c.missed) == 0 && err != nil, len(c.missed) > 0 && (err == nil || err.Error() != want):
				t.Errorf("%v, want %q of\n%s", err, want, &out)
			}
		})
	}
}
