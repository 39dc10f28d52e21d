package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/parleyhq/parley/internal/rig"
)

// Mutant is a change of the server's source that breaks a promise. A short run of its harness must catch it: a checker that
// does not see what is wrong in a wrong server would not see it in a server that is believed to be right.
type Mutant struct {
	// Name is short, in lower case with hyphens.
	Name string
	// Heading is the part of the server that it breaks, such as writing, caching, leases.
	Heading string
	// Breaks is what is made wrong, in a few words.
	Breaks string
	Edits  []Edit
	// Steps are the faults that should show it. None are needed where a healthy fleet shows it.
	Steps []Step
	// Shows are the violations by which it shows: one of these must be found. What else is found does not catch it.
	Shows []Name
}

// Control returns a mutant without edits: the server as it is, with the mutant's steps. Nothing may be found in its run, as
// that would catch any mutant.
func (m *Mutant) Control() Mutant {
	return Mutant{Name: "control-" + m.Name, Heading: m.Heading, Breaks: "nothing", Steps: m.Steps}
}

// Caught reports whether one of the violations is one by which the mutant must show.
func (m *Mutant) Caught(found []Violation) bool {
	return slices.ContainsFunc(found, func(v Violation) bool { return slices.Contains(m.Shows, v.Name) })
}

// Validate reports what is wrong with the mutant: it does not apply to the source in root, or it does not say by which
// violation it must show, or it names one that any fleet shows which can't be used.
func (m *Mutant) Validate(root string) error {
	_, err := m.Apply(root)
	errs := []error{err}
	if len(m.Shows) == 0 {
		errs = append(errs, fmt.Errorf("mutant %s does not say how it shows", m.Name))
	}
	for _, name := range []Name{Blind, Liveness, Crash} {
		if slices.Contains(m.Shows, name) {
			errs = append(errs, fmt.Errorf("mutant %s shows by %s, as any fleet may that can't be used", m.Name, name))
		}
	}
	return errors.Join(errs...)
}

// Schedule returns a name of the mutant's steps; mutants with the same steps have the same name.
func (m *Mutant) Schedule() string { return fmt.Sprint(m.Steps) }

// Edit replaces Old, which must occur exactly once in File, by New. File is relative to the source's root.
type Edit struct{ File, Old, New string }

// Build builds the mutant's parleyd, and returns its path. The sources stay as they are.
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
	changed, err := m.Apply(root)
	if err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for file, text := range changed {
		path := filepath.Join(dir, fmt.Sprintf("%d%s", len(replace), filepath.Ext(file)))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = path
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return "", err
	}
	return rig.Build(ctx, "./server/cmd/parleyd", "parleyd-"+m.Name, "-overlay", path)
}

// Apply returns the text of every file that the mutant changes, by path relative to root, which is the folder of the source.
// It returns an error if a file does not have what an edit replaces exactly once: then the source has changed, and the
// mutant must follow.
func (m *Mutant) Apply(root string) (map[string]string, error) {
	changed := make(map[string]string)
	for _, e := range m.Edits {
		text, ok := changed[e.File]
		if !ok {
			data, err := os.ReadFile(filepath.Join(root, e.File))
			if err != nil {
				return nil, fmt.Errorf("mutant %s: %w", m.Name, err)
			}
			text = string(data)
		}
		if n := strings.Count(text, e.Old); n != 1 {
			return nil, fmt.Errorf("mutant %s: %s has what it replaces %d times, not once: the source has changed; so must the mutant:\n%s",
				m.Name, e.File, n, e.Old)
		}
		changed[e.File] = strings.Replace(text, e.Old, e.New, 1)
	}
	return changed, nil
}

// OneFault returns a step with one fault, after a moment without any.
func OneFault(name FaultName, node int, hold time.Duration) Step {
	return Step{Wait: 1500 * time.Millisecond, Faults: []Planned{{Name: name, Node: node, Hold: hold}}}
}

// AndKill returns the step with one more fault: a node is killed delay after the step's first fault began.
func (s Step) AndKill(node int, delay time.Duration) Step {
	s.Faults = append(s.Faults, Planned{Name: NodeKill, Node: node, Delay: delay, Hold: time.Second})
	return s
}

// Calm returns a step without a fault, which takes d.
func Calm(d time.Duration) Step { return Step{Wait: d} }
