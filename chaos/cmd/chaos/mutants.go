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

	"github.com/parleyhq/parley/chaos/mutants"
)

// hunt runs mutants, one after another, and says which ones the checker saw. One that it did not see is an error.
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
	var survived []string
	for i := range chosen {
		m := &chosen[i]
		began := time.Now()
		names, err := one(ctx, o, room, m)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		verdict := strings.Join(names, " ")
		switch {
		case err != nil && len(names) == 0:
			verdict = "NOT RUN: " + err.Error()
			survived = append(survived, m.Name)
		case len(names) == 0:
			verdict = "SURVIVED"
			survived = append(survived, m.Name)
		}
		_, _ = fmt.Fprintf(out, "%-22s %-12s %5s  %s\n", m.Name, m.Heading, time.Since(began).Round(time.Second), verdict)
	}
	if len(survived) > 0 {
		return fmt.Errorf("not caught: %s", strings.Join(survived, ", "))
	}
	return nil
}

// one runs one mutant and gives the names of the violations that it showed.
func one(ctx context.Context, o *options, room *room, m *mutants.Mutant) ([]string, error) {
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
	counts := make(map[string]int)
	for _, v := range res.violations {
		counts[string(v.Name)]++
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		names = append(names, fmt.Sprintf("%s×%d", name, counts[name]))
	}
	if len(names) == 0 && res.calls == 0 {
		return nil, errors.New("nothing happened")
	}
	return names, nil
}
