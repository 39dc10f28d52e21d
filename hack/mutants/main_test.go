package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/parleyhq/parley/internal/mutation"
	"github.com/parleyhq/parley/internal/rig"
)

// TestMutantsApply checks that every mutant applies to the source, and that its package exists.
// That tests notice it is what the program itself checks, which takes minutes.
func TestMutantsApply(t *testing.T) {
	t.Parallel()
	root, err := rig.Root()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, m := range mutants {
		if _, err := mutation.Apply(root, m.edits); err != nil || len(m.edits) == 0 {
			t.Errorf("%s: %d edits, %v", m.name, len(m.edits), err)
		}
		if info, err := os.Stat(filepath.Join(root, m.pkg)); err != nil || !info.IsDir() {
			t.Errorf("%s: %v", m.name, err)
		}
		if m.breaks == "" || m.tests == "" || seen[m.name] {
			t.Errorf("%+v", m)
		}
		seen[m.name] = true
	}
}

// TestOneMutant runs a mutant: its tests must pass without it and fail with it.
func TestOneMutant(t *testing.T) {
	t.Parallel()
	if err := run(t.Context(), []string{"hole-is-the-end"}, t.Output()); err != nil {
		t.Error(err)
	}
	if err := run(t.Context(), []string{"none"}, t.Output()); err == nil {
		t.Error("an unknown mutant was run")
	}
}

func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	exit := &exec.ExitError{}
	for _, c := range []struct {
		text string
		err  error
		want outcome
	}{
		{"ok  \tpkg\t0.1s", nil, passed},
		{"--- FAIL: TestX (0.00s)\nFAIL", exit, failed},
		{"panic: test timed out after 5m0s", exit, failed},
		{"FAIL\tpkg [build failed]", exit, 0},
		{"FAIL\tpkg [setup failed]", exit, 0},
		{"ok  \tpkg\t0.1s [no tests to run]", nil, 0},
		{"", errors.New("no go command"), 0},
	} {
		if got, err := outcomeOf(c.text, c.err); got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("%q, %v: %v, %v", c.text, c.err, got, err)
		}
	}
}
