package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/parleyhq/parley/internal/mutation"
	"github.com/parleyhq/parley/internal/rig"
)

// Mutant is a change of the server's source that breaks a promise. A short run of its harness must
// catch it: a checker that misses a known defect would also miss it in the real server.
type Mutant struct {
	// Name is short, in lower case with hyphens.
	Name string
	// Heading is the part of the server that the mutant breaks, such as writing, caching or leases.
	Heading string
	// Breaks describes the defect in a few words.
	Breaks string
	Edits  []Edit
	// Steps are the schedule that reveals the defect. They have no faults if a healthy fleet
	// reveals it. If Steps is nil, the run has the short plan's faults.
	Steps []Step
	// Shows are the violations that catch the mutant: at least one must be found. Other violations
	// do not count.
	Shows []Name
}

// Control returns a mutant without edits: the unchanged server, with the mutant's steps. Its run
// must find nothing, because a violation there would catch any mutant.
func (m *Mutant) Control() Mutant {
	return Mutant{Name: "control-" + m.Name, Heading: m.Heading, Breaks: "nothing", Steps: m.Steps}
}

// Caught reports whether found contains one of the violations in Shows.
func (m *Mutant) Caught(found []Violation) bool {
	return slices.ContainsFunc(found, func(v Violation) bool { return slices.Contains(m.Shows, v.Name) })
}

// Validate returns an error if the mutant does not apply to the source in root, if Shows is empty,
// or if Shows has a name that any unusable fleet shows.
func (m *Mutant) Validate(root string) error {
	var errs []error
	if _, err := mutation.Apply(root, m.Edits); err != nil {
		errs = append(errs, fmt.Errorf("mutant %s: %w", m.Name, err))
	}
	if len(m.Shows) == 0 {
		errs = append(errs, fmt.Errorf("mutant %s: Shows is empty", m.Name))
	}
	for _, name := range []Name{Unobserved, Liveness, Crash} {
		if slices.Contains(m.Shows, name) {
			errs = append(errs, fmt.Errorf("mutant %s: Shows has %s, which any fleet that does not work shows", m.Name, name))
		}
	}
	return errors.Join(errs...)
}

// Schedule returns a key for the mutant's steps. Mutants with equal steps have the same key.
func (m *Mutant) Schedule() string { return fmt.Sprint(m.Steps) }

// Edit is a change of a source file.
type Edit = mutation.Edit

// Build builds the mutant's parleyd and returns the path of the program, which the caller removes.
// It does not change the source files.
func (m *Mutant) Build(ctx context.Context) (string, error) {
	root, err := rig.Root()
	if err != nil {
		return "", err
	}
	dir, err := rig.TempDir("mutant")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, err := mutation.Overlay(dir, root, m.Edits)
	if err != nil {
		return "", fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	return rig.Build(ctx, "./server/cmd/parleyd", "parleyd-"+m.Name, "-overlay", path)
}

// OneFault returns a step with one fault, after 1.5 seconds without any.
func OneFault(name FaultName, node int, hold time.Duration) Step {
	return Step{Wait: 1500 * time.Millisecond, Faults: []Planned{{Name: name, Node: node, Hold: hold}}}
}

// AndKill returns the step with one more fault: delay after Step.Wait it kills a node, which
// restarts a second later.
func (s Step) AndKill(node int, delay time.Duration) Step {
	s.Faults = append(s.Faults, Planned{Name: NodeKill, Node: node, Delay: delay, Hold: time.Second})
	return s
}

// Calm returns a step of length d without faults.
func Calm(d time.Duration) Step { return Step{Wait: d} }
