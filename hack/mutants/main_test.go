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

func TestTestsPassed(t *testing.T) {
	t.Parallel()
	exit := &exec.ExitError{}
	for _, c := range []struct {
		text        string
		err         error
		passed, ran bool
	}{
		{"ok  \tpkg\t0.1s", nil, true, true},
		{"--- FAIL: TestX (0.00s)\nFAIL", exit, false, true},
		{"panic: test timed out after 5m0s", exit, false, true},
		{"FAIL\tpkg [build failed]", exit, false, false},
		{"FAIL\tpkg [setup failed]", exit, false, false},
		{"ok  \tpkg\t0.1s [no tests to run]", nil, false, false},
		{"", errors.New("no go command"), false, false},
	} {
		if passed, err := testsPassed(c.text, c.err); passed != c.passed || (err == nil) != c.ran {
			t.Errorf("%q, %v: %v, %v", c.text, c.err, passed, err)
		}
	}
}
