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

// mendLimit bounds the mending of a fault.
const mendLimit = 90 * time.Second

// FaultLog records what was broken. *Recorder implements it.
type FaultLog interface {
	// BeginFault sets the beginning of a fault.
	BeginFault(f *Fault)
	// EndFault sets the end of a fault, and records it.
	EndFault(f *Fault)
	// Exit records that a node ended without being stopped.
	Exit(node, log string)
	// Mark records the present time under a name.
	Mark(name string)
}

// Mend ends a fault. It blocks until what was hit works again.
type Mend func(ctx context.Context) error

// Break begins a fault. It returns the name of what it hit, and how to end the fault.
type Break func(ctx context.Context, p Planned) (target string, mend Mend, err error)

// NemesisConfig says what a Nemesis breaks besides the fleet.
type NemesisConfig struct {
	// Log is where faults are recorded. Required.
	Log FaultLog
	// Own are faults of the harness's own clients and services, by name. They replace the fleet's faults of the same name.
	Own map[FaultName]Break
	// Silence is called while NATS is down; NATS is restarted only after it has returned. Nil does nothing.
	Silence func(ctx context.Context, p Planned)
	// Lossy are the engines whose replies to nodes are lost now and then.
	Lossy []rig.Engine
}

// Nemesis breaks things by a schedule, and mends them again.
type Nemesis struct {
	run    *Run
	log    FaultLog
	logger *slog.Logger
	breaks map[FaultName]Break
	fleet  *fleetFaults // nil for a run without a fleet
}

// NewNemesis returns the Nemesis of the run, which has broken nothing yet. It must be called once.
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

// Run runs the configured steps, or else the schedule of the plan, and loses replies meanwhile. It blocks until the last
// fault is mended. Its error is that something could not be broken or mended: the run is then worth nothing.
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
		n.fleet.keepPast()
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
				errs[i] = n.one(ctx, f)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// one begins a fault, waits, and mends it.
func (n *Nemesis) one(ctx context.Context, p Planned) error {
	begin := n.breaks[p.Name]
	if begin == nil {
		return fmt.Errorf("no such fault: %s", p.Name)
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

// Healed blocks until all nodes are ready, and records the time as that at which everything was mended.
func (n *Nemesis) Healed(ctx context.Context) error {
	if n.fleet != nil {
		if err := n.fleet.ready(ctx); err != nil {
			return err
		}
	}
	n.log.Mark(markHealed)
	return nil
}

// Watch starts a goroutine for each node in g. It records that the node ended without being stopped, and restarts it, until
// ctx ends, which must be the group's.
func (n *Nemesis) Watch(ctx context.Context, g *Group) {
	if n.fleet == nil {
		return
	}
	for i := range n.fleet.fleet.Nodes() {
		g.Go(func() { n.fleet.watch(ctx, i) })
	}
}
