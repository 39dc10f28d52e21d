package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/parleyhq/parley/internal/rig"
)

// maxNodes is the number of nodes.
const maxNodes = 3

// faults injects faults and records them.
type faults struct {
	fleet *rig.Fleet
	// stop is how long a node is stopped, lease how long a silent node stays alive, and away how long
	// there is no NATS.
	stop, lease, away time.Duration
	// createTopic creates the topic and its group unless they exist. A flush of Redis takes them
	// along.
	createTopic func(ctx context.Context) error

	mu sync.Mutex // guards the fields below
	// broken is when each node last stopped working. down is true until it works again.
	broken [maxNodes]time.Time
	down   [maxNodes]bool
	phase  phase
	// what is the fault of this part, which may be over; "" if there is none.
	what string
}

// phase is a part of a run.
type phase int

// The phases. A part of the replay is disturbed from the beginning of a fault until the next
// checkpoint. In the phase ending all users leave at once.
const (
	calm phase = iota
	disturbed
	ending
)

// fault is a fault that is injected during one part of the replay.
type fault struct {
	name   string
	inject func(f *faults, ctx context.Context) error
}

// The faults that are injected twice: before and after most users sign out.
var (
	withoutNATS = fault{"no NATS for a while", func(f *faults, ctx context.Context) error { return f.silence(ctx) }}
	flush       = fault{"FLUSHALL", func(f *faults, ctx context.Context) error { return f.flush(ctx) }}
)

// plan returns the faults by the number of the checkpoint that follows, from 1.
func plan() map[int]fault {
	return map[int]fault{
		1: withoutNATS,
		3: {"kill -9 of node 1, restarted at once", func(f *faults, ctx context.Context) error { return f.kill(ctx, 1, 0) }},
		5: {"SIGSTOP of node 2", func(f *faults, ctx context.Context) error { return f.halt(ctx, 2) }},
		7: flush,
		9: {"kill -9 of node 0, restarted after its lease", func(f *faults, ctx context.Context) error {
			return f.kill(ctx, 0, f.lease+2*time.Second)
		}},
	}
}

// run injects a fault and waits until it has ended.
func (f *faults) run(ctx context.Context, what fault) error {
	f.set(func() { f.phase, f.what = disturbed, what.name })
	if err := what.inject(f, ctx); err != nil {
		return fmt.Errorf("%s: %w", what.name, err)
	}
	return nil
}

// kill kills a node and restarts it after a wait.
func (f *faults) kill(ctx context.Context, node int, wait time.Duration) error {
	f.set(func() { f.broken[node], f.down[node] = time.Now(), true })
	f.fleet.Node(node).Kill()
	f.set(func() { f.broken[node] = time.Now() })
	if err := sleep(ctx, wait); err != nil {
		return err
	}
	f.set(func() { f.down[node] = false })
	return f.fleet.Node(node).Restart(ctx)
}

// halt stops a node for the time stop.
func (f *faults) halt(ctx context.Context, node int) error {
	f.set(func() { f.broken[node], f.down[node] = time.Now(), true })
	if err := f.fleet.Node(node).Stop(); err != nil {
		return err
	}
	err := sleep(ctx, f.stop)
	f.set(func() { f.broken[node], f.down[node] = time.Now(), false })
	if err != nil {
		return err
	}
	if err := f.fleet.Node(node).Cont(); err != nil {
		return err
	}
	return f.fleet.Node(node).Ready(ctx)
}

// silence kills all NATS servers and restarts them after the time away.
func (f *faults) silence(ctx context.Context) error {
	f.fleet.NATS.KillAll()
	if err := sleep(ctx, f.away); err != nil {
		return err
	}
	if err := f.fleet.NATS.StartAll(ctx); err != nil {
		return err
	}
	for _, n := range f.fleet.Nodes() {
		if err := n.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// flush flushes Redis and creates the topic again.
func (f *faults) flush(ctx context.Context) error {
	if err := f.fleet.Redis.FlushAll(ctx); err != nil {
		return err
	}
	return f.createTopic(ctx)
}

func (f *faults) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// current returns the phase of the run.
func (f *faults) current() phase {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.phase
}

// present returns the fault of this part of the run, or "".
func (f *faults) present() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.what
}

// worksSince reports whether a node works and has worked since a time.
func (f *faults) worksSince(node int, since time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.down[node] && since.After(f.broken[node])
}

// sleep waits, or returns the error of ctx if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
