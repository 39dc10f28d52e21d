package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// nextDay is the number of users who sign in again, if as many have signed out.
const nextDay = 1000

// during calls fn while a fault is injected, if there is one, and waits until both have ended.
func (j *job) during(ctx context.Context, what *fault, fn func(ctx context.Context) error) error {
	work, working := errgroup.WithContext(ctx)
	if what != nil && !j.Calm {
		j.sayf("  %s", what.name)
		j.results.faults++
		work.Go(func() error { return j.faults.run(working, *what) })
	}
	work.Go(func() error { return fn(working) })
	return work.Wait()
}

// night ends the days: half of those who are online sign out, while NATS is away, and then the
// others leave. Some of those who signed out sign in again, with other tokens, while a node is
// killed and Redis is flushed. In the end nobody is online.
func (j *job) night(ctx context.Context) error {
	stay, leaving := make(map[string]bool), make(map[string]bool)
	for id := range j.oracle.online(j.oracle.minutes) {
		if signsOutAtTheEnd(j.Seed, id) {
			leaving[id] = true
		} else {
			stay[id] = true
		}
	}
	out := j.oracle.signedOut(j.Seed, j.oracle.minutes)
	maps.Copy(out, leaving)

	without := fault{withoutNATS.name, func(f *faults, ctx context.Context) error {
		if err := sleep(ctx, j.Out/10); err != nil {
			return err
		}
		return withoutNATS.inject(f, ctx)
	}}
	ids := slices.Sorted(maps.Keys(leaving))
	if err := j.during(ctx, &without, func(ctx context.Context) error { return j.spread(ctx, ids, signsOut, j.Out) }); err != nil {
		return err
	}
	if err := j.checkpoint(ctx, fmt.Sprintf("after %d more sign-outs", len(leaving)), stay, out); err != nil {
		return err
	}
	j.faults.set(func() { j.faults.phase = ending })
	if err := j.leave(ctx, stay, "after the others have left", out); err != nil {
		return err
	}
	return j.morning(ctx, ids[:min(len(ids), nextDay)], out)
}

// leave disconnects users at once, after which nobody is online.
func (j *job) leave(ctx context.Context, users map[string]bool, name string, out map[string]bool) error {
	for id := range users {
		j.crowd.do(ctx, event{user: id, act: disconnects})
	}
	return j.checkpoint(ctx, name, nil, out)
}

// morning lets users who have signed out sign in again, and leave.
func (j *job) morning(ctx context.Context, ids []string, out map[string]bool) error {
	back := make(map[string]bool)
	for _, id := range ids {
		back[id] = true
	}
	killed := fault{"kill -9 of node 2, restarted at once", func(f *faults, ctx context.Context) error { return f.kill(ctx, 2, 0) }}
	err := j.during(ctx, &killed, func(ctx context.Context) error { return j.spread(ctx, ids, connects, j.Out/10) })
	if err != nil {
		return err
	}
	if err := j.during(ctx, &flush, func(ctx context.Context) error { return sleep(ctx, j.Out/10) }); err != nil {
		return err
	}
	if err := j.checkpoint(ctx, "on the next day", back, out); err != nil {
		return err
	}
	return j.leave(ctx, back, "after the end", out)
}

// spread makes users act one after another, over a time.
func (j *job) spread(ctx context.Context, ids []string, a act, over time.Duration) error {
	began := time.Now()
	for i, id := range ids {
		if err := sleep(ctx, time.Until(began.Add(over*time.Duration(i)/time.Duration(len(ids))))); err != nil {
			return err
		}
		j.crowd.do(ctx, event{user: id, act: a})
	}
	return nil
}
