package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/parleyhq/parley/internal/rig"
)

// mendLimit bounds the time that mending a fault may take.
const mendLimit = 90 * time.Second

// FaultLog records faults. *Recorder implements it.
type FaultLog interface {
	// BeginFault sets the begin of a fault to now. It records nothing.
	BeginFault(f *Fault)
	// EndFault sets the end of a fault to now, and records the fault.
	EndFault(f *Fault)
	// Exit records that a node exited unexpectedly or failed to end gracefully. log is the end of
	// the node's log.
	Exit(node, log string)
	// Mark records the current time under a name.
	Mark(name string)
}

// Mend ends a fault. It blocks until the target works again.
type Mend func(ctx context.Context) error

// Break begins a fault. It returns the name of its target and the function that ends the fault.
type Break func(ctx context.Context, p Planned) (target string, mend Mend, err error)

// NemesisConfig configures the faults of a Nemesis that differ between harnesses.
type NemesisConfig struct {
	// Log records the faults. Required.
	Log FaultLog
	// Own are faults of the harness's own clients and services, by name. They replace the fleet's
	// faults of the same name.
	Own map[FaultName]Break
	// Silence is called after NATSAway has killed all NATS servers. They are restarted only after
	// it has returned. Nil does nothing.
	Silence func(ctx context.Context, p Planned)
	// Lossy are the engines of which one in a hundred replies to the nodes is dropped.
	Lossy []rig.Engine
}

// Nemesis injects faults according to a schedule and mends them.
type Nemesis struct {
	run    *Run
	log    FaultLog
	logger *slog.Logger
	breaks map[FaultName]Break
	fleet  *fleetFaults // nil for a run without a fleet
}

// NewNemesis returns the run's Nemesis, which injects nothing before its Run is called. It must be
// called at most once for a run.
func (r *Run) NewNemesis(c NemesisConfig) *Nemesis {
	n := &Nemesis{run: r, log: c.Log, logger: r.Logger, breaks: make(map[FaultName]Break)}
	if r.Fleet != nil {
		n.fleet = newFleetFaults(r, &c)
		maps.Copy(n.breaks, n.fleet.breaks())
	}
	maps.Copy(n.breaks, c.Own)
	r.nemesis = n
	return n
}

// Run executes the configured steps, or else the plan's schedule, and drops replies meanwhile
// unless KeepReplies is set. It blocks until the last fault is mended. It returns an error if a
// fault could not be injected or mended; the run then proves nothing.
func (n *Nemesis) Run(ctx context.Context) error {
	if n.fleet != nil && !n.run.KeepReplies {
		defer n.fleet.loseReplies()()
	}
	steps := n.run.Steps
	if steps == nil {
		steps = Schedule(n.run.Seed, n.run.Plan)
	}
	for i, step := range steps {
		if err := n.step(ctx, step, slog.Int("number", i+1), slog.Int("of", len(steps))); err != nil {
			return err
		}
	}
	return nil
}

func (n *Nemesis) step(ctx context.Context, step Step, number ...slog.Attr) error {
	if n.fleet != nil {
		n.fleet.copyAppendOnlyFile()
	}
	if !Sleep(ctx, step.Wait) {
		return ctx.Err()
	}
	n.logger.LogAttrs(ctx, slog.LevelInfo, "step", append(number, slog.String("faults", step.String()))...)
	errs := make([]error, len(step.Faults))
	var wg sync.WaitGroup
	for i, f := range step.Faults {
		wg.Go(func() {
			if Sleep(ctx, f.Delay) {
				errs[i] = n.inject(ctx, f)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// inject begins a fault, waits for its hold time, and mends it.
func (n *Nemesis) inject(ctx context.Context, p Planned) error {
	begin := n.breaks[p.Name]
	if begin == nil {
		return fmt.Errorf("unknown fault %q", p.Name)
	}
	f := Fault{Name: string(p.Name), Holds: p.Name.holds()}
	n.log.BeginFault(&f)
	target, mend, err := begin(ctx, p)
	f.Target = target
	if err == nil {
		Sleep(ctx, p.Hold)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mendLimit)
		err = mend(ctx)
		cancel()
	}
	if err != nil {
		f.Err = err.Error()
		err = fmt.Errorf("%s of %s: %w", p.Name, f.Target, err)
	}
	n.log.EndFault(&f)
	n.logger.InfoContext(ctx, "mended", "fault", p.Name, "target", target, "open_writes", f.OpenWrites, "open_reads", f.OpenReads,
		"took", time.Duration(f.End-f.Begin).Round(time.Millisecond), "err", f.Err)
	return err
}

// Healed blocks until all nodes are ready, and records the current time as the end of all faults.
func (n *Nemesis) Healed(ctx context.Context) error {
	if n.fleet != nil {
		if err := n.fleet.ready(ctx); err != nil {
			return err
		}
	}
	n.log.Mark(markHealed)
	return nil
}

// Watch starts a goroutine in g for each node. Each records every unexpected exit of its node and
// restarts the node, until ctx ends. ctx must be the group's context.
func (n *Nemesis) Watch(ctx context.Context, g *Group) {
	if n.fleet == nil {
		return
	}
	for i := range n.fleet.fleet.Nodes() {
		g.Go(func() { n.fleet.watch(ctx, i) })
	}
}
