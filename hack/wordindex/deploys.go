package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/hack/internal/verdict"
)

// work produces all jobs, injects the faults meanwhile, and waits until all jobs are done.
func (e *ending) work(ctx context.Context) error {
	group, working := errgroup.WithContext(ctx)
	watching, stop := context.WithCancel(working)
	group.Go(func() error { return e.watchWorkers(watching) })
	group.Go(func() error {
		defer stop()
		both, ctx := errgroup.WithContext(working)
		both.Go(func() error { return e.feed(ctx) })
		both.Go(func() error { return e.harm(ctx) })
		if err := both.Wait(); err != nil {
			return err
		}
		e.phase("the end")
		return e.settle(working)
	})
	return group.Wait()
}

// feed runs the producer until it has produced all jobs. One that fails, as while Redis is stopped,
// is started again: it continues where it was.
func (e *ending) feed(ctx context.Context) error {
	p := e.program("producer", 0, "produce", "--rate", fmt.Sprint(e.Rate), e.Data)
	defer p.Kill()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if err := p.Start(); err != nil {
			return err
		}
		for running := true; running; {
			select {
			case <-p.Exited():
				running = false
			case <-tick.C:
				_, _ = e.progress(ctx) // it reports how far the work is
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if p.Err() == nil {
			sayf(indented{e.out}, "%s", strings.TrimSpace(p.LogTail()))
			return nil
		}
		e.Add("restarts of the producer", 1)
		if err := verdict.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// harm injects the faults, one after another.
func (e *ending) harm(ctx context.Context) error {
	for _, fault := range []struct {
		name   string
		inject func(context.Context) error
	}{
		{"the first deploy", e.deploy},
		{"the stop of Redis", e.stopRedis},
		{"the kill of a worker", e.killOne},
		{"the second deploy", e.deploy},
	} {
		if err := e.breathe(ctx); err != nil {
			return err
		}
		e.phase(fault.name)
		if err := fault.inject(ctx); err != nil {
			return fmt.Errorf("%s: %w", fault.name, err)
		}
		e.sayf("%s is over", fault.name)
	}
	return nil
}

// calm is the phase between two faults.
const calm = "calm"

// breathe waits until the time between two faults is over.
func (e *ending) breathe(ctx context.Context) error {
	e.phase(calm)
	return verdict.Sleep(ctx, e.scale.calm)
}

func (e *ending) phase(name string) {
	e.phases = append(e.phases, phase{name: name, began: time.Now()})
}

// deploy lets each node drain and starts it again, one after another.
func (e *ending) deploy(ctx context.Context) error {
	for _, n := range e.fleet.Nodes() {
		if err := n.Term(ctx); err != nil {
			return err
		}
		if err := n.Restart(ctx); err != nil {
			return err
		}
		e.Add("restarts of a node", 1)
	}
	return nil
}

// stopRedis halts the fleet's Redis for a while: its connections stay, and nothing answers.
func (e *ending) stopRedis(ctx context.Context) error {
	if err := e.fleet.Redis.Stop(); err != nil {
		return err
	}
	err := verdict.Sleep(ctx, e.scale.away)
	return errors.Join(err, e.fleet.Redis.Cont())
}

// killOne kills a worker that works on something, and starts it again.
func (e *ending) killOne(ctx context.Context) error {
	for {
		l, err := e.ledger(ctx)
		if err != nil {
			return err
		}
		open := l.open()
		for _, i := range e.rand.Perm(len(e.workers)) {
			w := e.workers[i]
			run := open[w.name]
			if run == "" || !w.busy.TryLock() {
				continue
			}
			w.program.Kill()
			e.killed[run] = time.Now()
			err := w.program.Start()
			w.busy.Unlock()
			e.sayf("killed %s", run)
			e.Add("kills of a worker", 1)
			return err
		}
		if err := verdict.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// watchWorkers starts workers again that end on their own, which they must not, until ctx ends.
func (e *ending) watchWorkers(ctx context.Context) error {
	for verdict.Sleep(ctx, time.Second) == nil {
		for _, w := range e.workers {
			if !w.busy.TryLock() {
				continue
			}
			var err error
			if !w.program.Running() {
				e.Wrongf("%s ended on its own: %v", w.name, lastLine(w.program.LogTail()))
				err = w.program.Start()
			}
			w.busy.Unlock()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
