package main

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

	"github.com/parleyhq/parley/chaos"
	"github.com/parleyhq/parley/chaos/mutants"
)

// hunt runs mutants, one after another, and says which ones the checker saw. One that it did not see by what it must show by is an
// error. Before the first mutant of a schedule comes a run of that schedule without one, in which nothing may be found.
func hunt(ctx context.Context, o *options, room *room, out io.Writer) error {
	chosen := room.mutants
	if o.mutants != "all" {
		chosen = nil
		for name := range strings.SplitSeq(o.mutants, ",") {
			at := slices.IndexFunc(room.mutants, func(m mutants.Mutant) bool { return m.Name == name })
			if at < 0 {
				return fmt.Errorf("no such mutant: %s", name)
			}
			chosen = append(chosen, room.mutants[at])
		}
	}
	return judge(ctx, chosen, out, func(ctx context.Context, m *mutants.Mutant) ([]chaos.Violation, error) {
		return one(ctx, o, room, m)
	})
}

// runner runs one mutant and gives what was found.
type runner func(ctx context.Context, m *mutants.Mutant) ([]chaos.Violation, error)

// judge runs mutants, and a control before the first of each schedule, and writes a line of each.
func judge(ctx context.Context, chosen []mutants.Mutant, out io.Writer, run runner) error {
	controls := make(map[string]bool) // whether it was clean, by schedule
	var failed []string
	try := func(m *mutants.Mutant, verdict func(found []chaos.Violation) string) (bool, error) {
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
			if clean, err = try(&control, dirty); err != nil {
				return err
			}
			controls[m.Schedule()] = clean
		}
		if !clean {
			_, _ = fmt.Fprintf(out, "%-28s %-12s NOT JUDGED: the control run of its schedule was not clean\n", m.Name, m.Heading)
			failed = append(failed, m.Name)
			continue
		}
		caught, err := try(m, func(found []chaos.Violation) string { return missed(m, found) })
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

// dirty says what is wrong with a control's run; empty if nothing was found in it.
func dirty(found []chaos.Violation) string {
	if len(found) > 0 {
		return fmt.Sprintf("NOT CLEAN: %s:", found[0])
	}
	return ""
}

// missed says why a mutant is not caught; empty if it is.
func missed(m *mutants.Mutant, found []chaos.Violation) string {
	switch {
	case m.Caught(found):
		return ""
	case len(found) == 0:
		return "SURVIVED"
	default:
		return fmt.Sprintf("SURVIVED: it must show by one of %v, and what was found is", m.Shows)
	}
}

// tally counts violations by name.
func tally(found []chaos.Violation) string {
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

// one is the runner: it builds the mutant and breaks a fleet of it by its steps.
func one(ctx context.Context, o *options, room *room, m *mutants.Mutant) ([]chaos.Violation, error) {
	binary, err := m.Build(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(binary) }()
	dir := filepath.Join(o.dir, m.Name)
	if o.dir == "" {
		if dir, err = os.MkdirTemp("", "parley-mutant-"); err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }() //nolint:gosec // made above
	}
	// A mutant may well stop the whole fleet. What shows is then that it does not come level, not that the run never ends.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	res, err := room.run(ctx, o, &job{dir: dir, plan: room.short(), steps: m.Steps, binary: binary, mutant: true})
	if err != nil {
		return nil, err
	}
	if o.verbose {
		res.summary(os.Stderr)
	}
	if len(res.violations) == 0 && res.calls == 0 {
		return nil, errors.New("nothing happened")
	}
	return res.violations, nil
}
