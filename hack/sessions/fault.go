package main

import (
	"context"
	"sync"
	"time"

	"github.com/parleyhq/parley/hack/internal/verdict"
	"github.com/parleyhq/parley/internal/rig"
)

// span is a time during which a node was dead or its clients still moved to another one. to is zero
// until it ends.
type span struct{ from, to time.Time }

// faults injects faults, and knows when.
type faults struct {
	fleet *rig.Fleet
	say   func(format string, args ...any)

	mu    sync.Mutex    // guards the fields below
	safe  chan struct{} // not nil while no generator may die; closed when one may again
	kills []span
}

// moving is how long the clients of a killed node may take to move to another one.
const moving = 15 * time.Second

// keepOpen is how often the SDK sends something for an open message at least.
const keepOpen = 15 * time.Second

// kill kills a node and restarts it after a while. No generator dies within the second before:
// Redis may lack what it wrote just then, which no node would have.
func (f *faults) kill(ctx context.Context, node int, away time.Duration) error {
	release := f.hold()
	err := verdict.Sleep(ctx, time.Second)
	f.mu.Lock()
	f.kills = append(f.kills, span{from: time.Now()})
	f.mu.Unlock()
	f.fleet.Node(node).Kill()
	release()
	if err != nil {
		return err
	}
	f.say("killed node %d", node)
	if err := verdict.Sleep(ctx, away); err != nil {
		return err
	}
	if err := f.fleet.Node(node).Restart(ctx); err != nil {
		return err
	}
	f.say("node %d runs again", node)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kills[len(f.kills)-1].to = time.Now().Add(moving)
	return nil
}

// flush flushes Redis while no message is abandoned: the server closes one without a text in Redis
// later than others. For the same reason no generator dies until each has sent something again, if
// only to keep its message open.
func (f *faults) flush(ctx context.Context, settled func(ctx context.Context) error) error {
	release := f.hold()
	defer release()
	if err := verdict.Sleep(ctx, time.Second); err != nil {
		return err
	}
	if err := settled(ctx); err != nil {
		return err
	}
	if err := f.fleet.Redis.FlushAll(ctx); err != nil {
		return err
	}
	f.say("flushed Redis")
	return verdict.Sleep(ctx, keepOpen+time.Second)
}

// hold lets no generator die until release is called.
func (f *faults) hold() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	safe := make(chan struct{})
	f.safe = safe
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.safe = nil
		close(safe)
	}
}

// mayDie waits until a generator may die.
func (f *faults) mayDie(ctx context.Context) error {
	for {
		f.mu.Lock()
		safe := f.safe
		f.mu.Unlock()
		if safe == nil {
			return nil
		}
		select {
		case <-safe:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// killedDuring reports whether a node was dead within a time.
func (f *faults) killedDuring(from, to time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.kills {
		if (k.to.IsZero() || k.to.After(from)) && k.from.Before(to) {
			return true
		}
	}
	return false
}
