// Command mutants breaks the source in one place at a time, and runs the tests that must notice. It
// fails if they pass. `make test-mutants` runs all mutants of the table in table.go: defects of
// reading, access, retention, deletion and erasure. `make mutants` is the same for whole servers,
// which chaos must find defective.
//
// A mutant is caught if a test fails. That it does not compile, or that no test runs, is an error.
// Before the first mutant of each list of tests these tests run with the unchanged source, and must
// pass.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/parleyhq/parley/hack/internal/command"
	"github.com/parleyhq/parley/internal/mutation"
	"github.com/parleyhq/parley/internal/rig"
)

type flags struct {
	Names []string `arg:"" optional:"" help:"The mutants to run; all if none is named."`
}

func main() {
	var f flags
	os.Exit(command.Run(context.Background(), "mutants", os.Args[1:], &f, func(ctx context.Context) error {
		return run(ctx, f.Names, os.Stdout)
	}))
}

// mutant is a change of the source that breaks a promise, and the tests that must notice.
type mutant struct {
	// name is short, in lower case with hyphens.
	name string
	// breaks describes the defect in a few words.
	breaks string
	edits  []mutation.Edit
	// pkg is the directory of the tests' package, and tests a regular expression for -run.
	pkg, tests string
}

// run runs the mutants with these names, or all, and writes a line for each. It returns an error if
// one was missed or could not be run.
func run(ctx context.Context, names []string, out io.Writer) error {
	for _, name := range names {
		if !slices.ContainsFunc(mutants, func(m mutant) bool { return m.name == name }) {
			return fmt.Errorf("no mutant is named %s", name)
		}
	}
	var errs []error
	checked := make(map[string]bool)
	for i := range mutants {
		m := &mutants[i]
		if len(names) > 0 && !slices.Contains(names, m.name) {
			continue
		}
		err := judge(ctx, m, checked)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		verdict := "caught"
		if err != nil {
			verdict = "NOT CAUGHT"
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
		}
		if _, err := fmt.Fprintf(out, "%-28s %-10s %s\n", m.name, verdict, m.breaks); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// judge returns an error unless the mutant's tests pass without it and fail with it. checked holds
// the tests that have passed without any.
func judge(ctx context.Context, m *mutant, checked map[string]bool) error {
	if key := m.pkg + " " + m.tests; !checked[key] {
		switch passed, text, err := test(ctx, m, nil); {
		case err != nil:
			return err
		case !passed:
			return fmt.Errorf("its tests fail without it:\n%s", text)
		}
		checked[key] = true
	}
	switch passed, _, err := test(ctx, m, m.edits); {
	case err != nil:
		return err
	case passed:
		return fmt.Errorf("the tests %s of %s pass", m.tests, m.pkg)
	}
	return nil
}

// test runs a mutant's tests with the edits. It returns whether they passed, and what they printed.
func test(ctx context.Context, m *mutant, edits []mutation.Edit) (passed bool, text string, err error) {
	root, err := rig.Root()
	if err != nil {
		return false, "", err
	}
	dir, err := rig.TempDir("mutant")
	if err != nil {
		return false, "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := mutation.Overlay(dir, root, edits)
	if err != nil {
		return false, "", err
	}
	args := []string{"test", "-overlay", overlay, "-count=1", "-vet=off", "-failfast", "-timeout=5m", "-run", m.tests, "./" + m.pkg}
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // of the table
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	passed, err = testsPassed(string(out), err)
	return passed, string(out), err
}

// testsPassed reports whether tests that printed text passed, given the error of the go command. It
// returns an error if none ran.
func testsPassed(text string, err error) (bool, error) {
	exit := (*exec.ExitError)(nil)
	switch {
	case err != nil && !errors.As(err, &exit):
		return false, err
	case strings.Contains(text, "[build failed]") || strings.Contains(text, "[setup failed]") || strings.Contains(text, "no tests to run"):
		return false, fmt.Errorf("no test ran:\n%s", text)
	default:
		return err == nil, nil
	}
}
