// Package mutants has servers with one thing made wrong. Each must be caught by a short run of package chaos: what the
// checker does not see in a server that is wrong, it would not see in one that is said to be right.
package mutants

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/parleyhq/parley/chaos"
	"github.com/parleyhq/parley/internal/rig"
)

// Mutant is a change of the server's source that breaks a promise.
type Mutant struct {
	// Name is short, in lower case with hyphens.
	Name string
	// Heading is the part of the mechanics that it breaks: writing, feeding, caching, subscribing, channels, sizes, nodes; of queues
	// leases, takeover, retries, delays, produce, retention.
	Heading string
	// Breaks says what is made wrong.
	Breaks string
	Edits  []Edit
	// Steps are the faults that should show it. None are needed where a healthy fleet shows it.
	Steps []chaos.Step
	// Shows are the violations by which it shows: one of these must be found. What else is found does not catch it.
	Shows []chaos.Name
}

// Control is the server as it is, built as the mutant is, for the mutant's steps. Nothing may be found in its run: what is would catch
// any mutant.
func (m *Mutant) Control() Mutant {
	return Mutant{Name: "control-" + m.Name, Heading: m.Heading, Breaks: "nothing", Steps: m.Steps}
}

// Caught reports whether the mutant shows in what was found.
func (m *Mutant) Caught(found []chaos.Violation) bool {
	return slices.ContainsFunc(found, func(v chaos.Violation) bool { return slices.Contains(m.Shows, v.Name) })
}

// Schedule names the mutant's steps: two mutants of one schedule have the same.
func (m *Mutant) Schedule() string { return fmt.Sprint(m.Steps) }

// Edit replaces a piece of one file, which must be there exactly once. File is relative to the source's root.
type Edit struct{ File, Old, New string }

// Build builds the mutant's parleyd beside the sources, which stay as they are, and gives its path.
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
	changed, err := m.apply(root)
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

// apply gives the text of every file that the mutant changes.
func (m *Mutant) apply(root string) (map[string]string, error) {
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

// step is one fault after a moment's peace.
func step(name chaos.FaultName, node int, hold time.Duration) chaos.Step {
	return chaos.Step{Wait: 1500 * time.Millisecond, Faults: []chaos.Planned{{Name: name, Node: node, Hold: hold}}}
}

// andKill adds the kill of a node to a step, a while after that began.
func andKill(s chaos.Step, node int, delay time.Duration) chaos.Step {
	s.Faults = append(s.Faults, chaos.Planned{Name: chaos.NodeKill, Node: node, Delay: delay, Hold: time.Second})
	return s
}

// calm is some seconds without a fault.
func calm(d time.Duration) chaos.Step { return chaos.Step{Wait: d} }
