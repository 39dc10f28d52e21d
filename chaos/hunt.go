package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// hunt runs the chosen mutants one after another and writes which ones were caught. It returns an
// error if a mutant was not caught by a violation in its Shows. Before the first mutant of a
// schedule, hunt runs the unchanged server with that schedule, in which nothing may be found.
func hunt(ctx context.Context, o *options, out io.Writer) error {
	all := o.harness.mutants
	chosen := all
	if o.mutants != "all" {
		chosen = nil
		for name := range strings.SplitSeq(o.mutants, ",") {
			at := slices.IndexFunc(all, func(m Mutant) bool { return m.Name == name })
			if at < 0 {
				return fmt.Errorf("unknown mutant %q", name)
			}
			chosen = append(chosen, all[at])
		}
	}
	return judgeMutants(ctx, chosen, out, func(ctx context.Context, m *Mutant) ([]Violation, error) { return runMutant(ctx, o, m) })
}

// runner runs one mutant and returns the violations found.
type runner func(ctx context.Context, m *Mutant) ([]Violation, error)

// judgeMutants runs mutants, and a control before the first of each schedule, and writes a line for
// each. Its error names the mutants that were not caught.
func judgeMutants(ctx context.Context, chosen []Mutant, out io.Writer, run runner) error {
	controls := make(map[string]bool) // whether the control was clean, by schedule
	var failed []string
	try := func(m *Mutant, verdict func(found []Violation) string) (bool, error) {
		began := time.Now()
		found, err := run(ctx, m)
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		wrong := verdict(found)
		if err != nil {
			wrong = "NOT RUN: " + err.Error()
		}
		_, _ = fmt.Fprintf(out, "%-28s %-12s %5s  %s\n", m.Name, m.Heading, time.Since(began).Round(time.Second),
			strings.TrimSpace(wrong+" "+tally(found)))
		return wrong == "", nil
	}
	for i := range chosen {
		m := &chosen[i]
		clean, known := controls[m.Schedule()]
		if !known {
			control := m.Control()
			var err error
			if clean, err = try(&control, unusable); err != nil {
				return err
			}
			controls[m.Schedule()] = clean
		}
		if !clean {
			_, _ = fmt.Fprintf(out, "%-28s %-12s NOT JUDGED: the control run of its schedule was not clean\n", m.Name, m.Heading)
			failed = append(failed, m.Name)
			continue
		}
		caught, err := try(m, func(found []Violation) string { return missed(m, found) })
		if err != nil {
			return err
		}
		if !caught {
			failed = append(failed, m.Name)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("not caught: %s", strings.Join(failed, ", "))
	}
	return nil
}

// unusable describes what was found in a control's run. It returns "" if nothing was found.
func unusable(found []Violation) string {
	if len(found) > 0 {
		return fmt.Sprintf("NOT CLEAN: %s:", found[0])
	}
	return ""
}

// missed describes why a mutant was not caught. It returns "" if it was caught.
func missed(m *Mutant, found []Violation) string {
	switch {
	case m.Caught(found):
		return ""
	case len(found) == 0:
		return "SURVIVED"
	default:
		return fmt.Sprintf("SURVIVED: it must show by one of %v, and what was found is", m.Shows)
	}
}

// tally formats the number of violations of each name, such as "loss×2 order×1".
func tally(found []Violation) string {
	counts := make(map[string]int)
	for _, v := range found {
		counts[string(v.Name)]++
	}
	names := make([]string, 0, len(counts))
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		names = append(names, fmt.Sprintf("%s×%d", name, counts[name]))
	}
	return strings.Join(names, " ")
}

// runMutant is the runner that builds the mutant and runs it with its steps.
func runMutant(ctx context.Context, o *options, m *Mutant) ([]Violation, error) {
	binary, err := o.harness.withSeams(m).Build(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(binary) }()
	dir := filepath.Join(o.dir, m.Name)
	if o.dir == "" {
		if dir, err = os.MkdirTemp("", "parley-mutant-"); err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
	}
	// A mutant may stop the whole fleet, so that the run would never end.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	c := o.config()
	c.Dir, c.Plan, c.Steps, c.Binary, c.Size = dir, o.harness.short(), m.Steps, binary, Minimal
	res, err := o.harness.Run(ctx, c)
	if err != nil {
		return nil, err
	}
	if o.verbose {
		res.Summary(os.Stderr)
	}
	if len(res.Violations) == 0 && res.Calls == 0 {
		return nil, errors.New("the run made no calls")
	}
	return res.Violations, nil
}
