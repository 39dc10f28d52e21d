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

// hunt runs mutants, one after another, and says which ones the checker saw. One that it did not see is an error.
func hunt(ctx context.Context, o *options, out io.Writer) error {
	chosen := mutants.All
	if o.mutants != "all" {
		chosen = nil
		for name := range strings.SplitSeq(o.mutants, ",") {
			m, ok := mutants.Find(name)
			if !ok {
				return fmt.Errorf("no such mutant: %s", name)
			}
			chosen = append(chosen, *m)
		}
	}
	var survived []string
	for i := range chosen {
		m := &chosen[i]
		began := time.Now()
		names, err := one(ctx, o, m)
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
func one(ctx context.Context, o *options, m *mutants.Mutant) ([]string, error) {
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
	res, err := chaos.Run(ctx, chaos.Config{
		Dir: dir, Seed: o.seed, Steps: m.Steps, Plan: chaos.ShortPlan(), KeepReplies: o.keep, Binary: binary,
		NATSServers: o.nats, Logger: o.logger(),
	})
	if err != nil {
		return nil, err
	}
	if o.verbose {
		res.Summary(os.Stderr)
	}
	counts := make(map[string]int)
	for _, v := range res.Violations {
		counts[string(v.Name)]++
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		names = append(names, fmt.Sprintf("%s×%d", name, counts[name]))
	}
	if len(names) == 0 && len(res.History.Ops) == 0 {
		return nil, errors.New("nothing happened")
	}
	return names, nil
}
