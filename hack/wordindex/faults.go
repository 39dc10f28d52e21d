package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/parleyhq/parley/internal/rig"
)

// faults counts the faults injected so far.
type faults struct {
	mu sync.Mutex // guards kills and stops while workers are harmed
	// kills and stops count the faults of workers, producerKills those of the producer.
	kills, stops, producerKills int
	// told is when the progress was last reported.
	told time.Time
}

// worker is a process of `examples/wordindex work`. It prefers a node of its own.
type worker struct {
	name    string
	program *rig.Program
	// busy is held while a fault harms the worker.
	busy sync.Mutex
}

func (s *show) startWorkers(more ...string) error {
	s.workers = nil
	for i := range s.Workers {
		name := fmt.Sprintf("worker-%d", i)
		w := &worker{name: name, program: s.program(name, i, append([]string{
			"work", "--name", name, "--ack-timeout", s.Ack.String(), "--takes", s.Takes.String(),
		}, more...)...)}
		if err := w.program.Start(); err != nil {
			return err
		}
		s.workers = append(s.workers, w)
	}
	return nil
}

// restartWorkers stops the workers in order and starts new ones.
func (s *show) restartWorkers(ctx context.Context, more ...string) error {
	for _, w := range s.workers {
		if err := w.program.Term(ctx); err != nil {
			return fmt.Errorf("%s: %w\n%s", w.name, err, w.program.LogTail())
		}
	}
	return s.startWorkers(more...)
}

// program returns a process of examples/wordindex, not yet started, with all nodes' addresses,
// starting with the n-th.
func (s *show) program(name string, n int, args ...string) *rig.Program {
	n %= len(s.addrs)
	addrs := append(append([]string(nil), s.addrs[n:]...), s.addrs[:n]...)
	return rig.NewProgram(rig.ProgramConfig{
		Name: name, Path: s.Program, Args: args, Env: append([]string{"PARLEY_ADDR=" + strings.Join(addrs, ",")}, s.env...),
		Log: filepath.Join(s.dir, name+".log"),
	})
}

// produce runs the producer, and kills and restarts it once, after about half of its jobs.
func (s *show) produce(ctx context.Context) error {
	p := s.program("producer", len(s.addrs)-1, "produce", "--rate", strconv.Itoa(s.Rate), s.Data)
	if err := p.Start(); err != nil {
		return err
	}
	defer p.Kill()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.Exited():
			if err := p.Err(); err != nil {
				return fmt.Errorf("produce: %w\n%s", err, p.LogTail())
			}
			sayf(indented{s.out}, "%s", strings.TrimSpace(p.LogTail()))
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		// A failed request is repeated at the next tick.
		now, err := s.progress(ctx)
		if err == nil && s.counts.producerKills == 0 && now.produced >= int64(s.jobs/2) {
			p.Kill()
			s.counts.producerKills++
			if err := p.Start(); err != nil {
				return err
			}
		}
	}
}

// about returns a random time from half of d to one and a half d.
func (s *show) about(d time.Duration) time.Duration {
	s.counts.mu.Lock()
	defer s.counts.mu.Unlock()
	return d/2 + time.Duration(s.rand.Int64N(int64(d)))
}

// pick returns a random worker that no other fault harms, with busy locked, or nil if there is
// none. The caller must unlock busy.
func (s *show) pick() *worker {
	s.counts.mu.Lock()
	defer s.counts.mu.Unlock()
	for _, i := range s.rand.Perm(len(s.workers)) {
		if w := s.workers[i]; w.busy.TryLock() {
			return w
		}
	}
	return nil
}

// killWorkers kills and restarts a worker every few seconds until ctx ends.
func (s *show) killWorkers(ctx context.Context) error {
	return s.every(ctx, s.Kill, func(w *worker) error {
		w.program.Kill()
		s.count(&s.counts.kills)
		return w.program.Start()
	})
}

// stopWorkers repeatedly stops a worker for longer than its ack timeout and continues it, until ctx
// ends.
func (s *show) stopWorkers(ctx context.Context) error {
	return s.every(ctx, s.Stop, func(w *worker) error {
		if err := w.program.Stop(); err != nil {
			return err
		}
		select {
		case <-time.After(s.Ack + s.about(s.Ack)):
			s.count(&s.counts.stops)
		case <-ctx.Done():
		}
		return w.program.Cont()
	})
}

// every calls harm for a worker about every d until ctx ends. It returns an error if a worker has
// exited on its own.
func (s *show) every(ctx context.Context, d time.Duration, harm func(w *worker) error) error {
	for {
		select {
		case <-time.After(s.about(d)):
		case <-ctx.Done():
			return nil
		}
		w := s.pick()
		if w == nil {
			continue
		}
		err := errors.New("it ended on its own")
		if w.program.Running() {
			err = harm(w)
		}
		w.busy.Unlock()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", w.name, err, w.program.LogTail())
		}
	}
}

func (s *show) count(n *int) {
	s.counts.mu.Lock()
	defer s.counts.mu.Unlock()
	*n++
}

// lastWords returns the ends of the workers' logs as an error.
func (s *show) lastWords() error {
	var errs []error
	for _, w := range s.workers {
		errs = append(errs, fmt.Errorf("%s:\n%s", w.name, w.program.LogTail()))
	}
	return errors.Join(errs...)
}
