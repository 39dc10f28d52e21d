// Package chaos is the core of the fault harnesses. A harness runs a workload on a fleet of real
// processes, injects faults into the fleet, records what its clients observe, and checks the record
// against the promises of the server.
//
// The package has what all harnesses share: the fleet, the faults and their schedule, the history
// and its file, outcomes of calls, violations, mutants of the server, and the command line. A
// harness is a package of its own: chaos/messages, chaos/queues and chaos/presence. It provides:
//
//   - an Op and the other records of its History, which embeds chaos.History; a line type, which
//     embeds chaos.Line; and NewRecorder's two functions, which add a line to a history and wrap a
//     chaos.Line
//   - the clients of its workload, which record every call before it starts and after it ends
//     (EndingOf)
//   - a Truth: the final contents of the stores, read without the server's code
//   - Check, which compares the history with the truth and adds violations to Findings, under names
//     of its own
//   - Drive, which starts the clients in groups (Run.Group), injects faults (Run.NewNemesis,
//     Nemesis.Run, Nemesis.Healed), waits until the workload has settled, stops the groups and
//     reads the truth
//   - plans: the number of each fault in a short and in a long run
//   - a summary of the history, for people
//   - tests that run each check on a wrong history, which it must find; and mutants: servers with
//     one defect each, with the names of the violations that must reveal it
//   - a function that returns the result of New for all of these, and its line in chaos/cmd/chaos
//
// counter_test.go is a complete harness, for a counter without a fleet. Harnesses do not use the
// server's packages, so the server's code never checks itself.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/parleyhq/parley/internal/mutation"
	"github.com/parleyhq/parley/internal/rig"
)

// Spec defines a harness. H is the type of its history, T that of its truth.
type Spec[H, T any] struct {
	// Name selects the harness on the command line.
	Name string
	// Short and Long return the plans of a short and of a long run.
	Short, Long func() Plan
	// Mutants are the defective servers that the harness must detect.
	Mutants []Mutant
	// Seams are changes of the server's source that every run makes, for faults that nothing outside
	// of the server can inject, such as MovedClock. Without a fault the server behaves the same.
	Seams []Edit
	// Fleet returns the engines and the configuration of the fleet. Run sets Nodes and Disks from the
	// plan, and Namespaced, Binary and Logger. If Fleet is nil, Run starts no fleet: Drive starts what
	// it needs, and all faults are its own.
	Fleet func(c *Config) rig.Options
	// Drive runs the workload and the faults, and returns the history and the truth. An error means
	// that the run failed; it says nothing about the server.
	Drive func(ctx context.Context, r *Run) (*H, *T, error)
	// Read reads a history that Drive recorded at Run.HistoryPath.
	Read func(path string) (*H, error)
	// Check returns the broken promises, or none if all were kept. It must depend on its arguments
	// only.
	Check func(h *H, t *T) []Violation
	// Calls returns the number of calls in the history. A run without any has tested nothing.
	Calls func(h *H) int
	// Summarize writes a run's figures and its violations, for people.
	Summarize func(w io.Writer, h *H, t *T, r *Result)
}

// Harness is a Spec without its type parameters, as the command line uses it. Create one with New.
type Harness struct {
	name        string
	short, long func() Plan
	mutants     []Mutant
	seams       []Edit
	fleet       func(c *Config) rig.Options
	drive       func(ctx context.Context, r *Run) (*Result, error)
	judge       func(dir string) (*Result, error)
}

// Result is the result of a run.
type Result struct {
	Violations []Violation
	// Calls is the number of calls in the history.
	Calls int
	// Lost is the number of replies that the run dropped on purpose, by engine. It is nil without a
	// fleet, and if the result comes from Harness.Judge.
	Lost map[string]int64

	summarize func(w io.Writer, r *Result)
}

// Summary writes the run's figures and violations, for people.
func (r *Result) Summary(w io.Writer) { r.summarize(w, r) }

// New returns the harness of a Spec.
func New[H, T any](s Spec[H, T]) *Harness {
	result := func(h *H, t *T) *Result {
		return &Result{
			Violations: s.Check(h, t), Calls: s.Calls(h), summarize: func(w io.Writer, r *Result) { s.Summarize(w, h, t, r) },
		}
	}
	return &Harness{
		name: s.Name, short: s.Short, long: s.Long, mutants: s.Mutants, seams: s.Seams, fleet: s.Fleet,
		drive: func(ctx context.Context, r *Run) (*Result, error) {
			defer r.finish()
			h, t, err := s.Drive(ctx, r)
			if err != nil {
				return nil, err
			}
			if err := WriteReport(filepath.Join(r.Dir, truthFile), t); err != nil {
				return nil, err
			}
			return result(h, t), nil
		},
		judge: func(dir string) (*Result, error) {
			h, err := s.Read(filepath.Join(dir, historyFile))
			if err != nil {
				return nil, err
			}
			t, err := ReadReport[T](filepath.Join(dir, truthFile))
			if err != nil {
				return nil, err
			}
			return result(h, t), nil
		},
	}
}

// Name returns the name that selects the harness.
func (h *Harness) Name() string { return h.name }

// Mutants returns the defective servers that the harness must detect.
func (h *Harness) Mutants() []Mutant { return h.mutants }

// Validate returns an error for each mutant that is invalid, and for seams that do not apply to the
// source in root.
func (h *Harness) Validate(root string) error {
	_, err := mutation.Apply(root, h.seams)
	errs := []error{err}
	for i := range h.mutants {
		errs = append(errs, h.withSeams(&h.mutants[i]).Validate(root))
	}
	return errors.Join(errs...)
}

// withSeams returns the mutant with the harness's seams.
func (h *Harness) withSeams(m *Mutant) *Mutant {
	with := *m
	with.Edits = slices.Concat(h.seams, m.Edits)
	return &with
}

// build builds the server with the harness's seams and returns its path.
func (h *Harness) build(ctx context.Context) (string, error) {
	if len(h.seams) == 0 {
		return rig.BuildParleyd(ctx)
	}
	return h.withSeams(&Mutant{Name: h.name}).Build(ctx)
}

// Run starts the fleet, drives the workload, and checks its history. An error means that the run
// failed; it says nothing about the server. If the harness has a fleet, the process must run in a
// network namespace of its own: see rig.RunInNamespace.
func (h *Harness) Run(ctx context.Context, c Config) (*Result, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(c.Dir, 0o750); err != nil {
		return nil, err
	}
	r := &Run{Config: c}
	if h.fleet == nil {
		return h.do(ctx, r)
	}
	o := h.fleet(&c)
	o.Nodes, o.Namespaced, o.Binary, o.Logger, o.Disks = c.Plan.Nodes, true, c.Binary, c.Logger, c.needsDisks()
	var err error
	if r.Fleet, err = rig.Start(ctx, o); err != nil {
		return nil, fmt.Errorf("start the fleet: %w", err)
	}
	res, err := h.do(ctx, r)
	r.keepLogs()
	return res, errors.Join(err, r.Fleet.Close())
}

// do drives the workload, adds the violations and figures that the history does not contain, and
// writes the violations into the report.
func (h *Harness) do(ctx context.Context, r *Run) (*Result, error) {
	res, err := h.drive(ctx, r)
	if err != nil {
		return nil, err
	}
	res.Violations = append(res.Violations, r.found...)
	if r.nemesis != nil && r.nemesis.fleet != nil {
		res.Lost = r.nemesis.fleet.lostReplies()
		for _, text := range r.nemesis.fleet.panics() {
			res.Violations = append(res.Violations, Violation{Name: Crash, Detail: text})
		}
	}
	return res, WriteReport(filepath.Join(r.Dir, violationsFile), res.Violations)
}

// Judge checks the report in dir again without a run. It finds only violations that the history and
// the truth show.
func (h *Harness) Judge(dir string) (*Result, error) { return h.judge(dir) }
