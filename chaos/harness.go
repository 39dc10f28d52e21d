package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/parleyhq/parley/chaos"
	"github.com/parleyhq/parley/chaos/mutants"
	"github.com/parleyhq/parley/chaos/queues"
)

// room is one use of a fleet: what breaks under it, and how it is judged.
type room struct {
	name        string
	short, long func() chaos.Plan
	mutants     []mutants.Mutant
	run         func(ctx context.Context, o *options, j *job) (*result, error)
	// again judges what a run left in a directory.
	again func(dir string) (*result, error)
}

// job is one run.
type job struct {
	dir    string
	plan   chaos.Plan
	steps  []chaos.Step
	binary string
	// mutant says that the server is wrong, and a short load shows it.
	mutant bool
}

// result is what a run showed.
type result struct {
	violations []chaos.Violation
	calls      int
	summary    func(w io.Writer)
}

var rooms = []room{
	{
		name: "messages", short: chaos.ShortPlan, long: chaos.LongPlan, mutants: mutants.All,
		run: func(ctx context.Context, o *options, j *job) (*result, error) {
			res, err := chaos.Run(ctx, chaos.Config{
				Dir: j.dir, Seed: o.seed, Plan: j.plan, Steps: j.steps, KeepReplies: o.keep, Binary: j.binary, NATSServers: o.nats,
				Logger: o.logger(),
			})
			if err != nil {
				return nil, err
			}
			return ofMessages(res), nil
		},
		again: func(dir string) (*result, error) {
			h, err := chaos.ReadHistory(filepath.Join(dir, "history.jsonl"))
			if err != nil {
				return nil, err
			}
			t, err := chaos.ReadReport[chaos.Truth](filepath.Join(dir, "truth.json"))
			if err != nil {
				return nil, err
			}
			return ofMessages(&chaos.Result{History: h, Truth: t, Violations: chaos.Check(h, t, chaos.Settings{})}), nil
		},
	},
	{
		name: "queues", short: queues.ShortPlan, long: queues.LongPlan, mutants: mutants.Queues,
		run: func(ctx context.Context, o *options, j *job) (*result, error) {
			due := queues.LongDue
			switch {
			case j.mutant:
				due = 0
			case o.short:
				due = queues.ShortDue
			}
			res, err := queues.Run(ctx, queues.Config{
				Dir: j.dir, Seed: o.seed, Plan: j.plan, Steps: j.steps, KeepReplies: o.keep, Due: due, Binary: j.binary, Logger: o.logger(),
			})
			if err != nil {
				return nil, err
			}
			return ofQueues(res), nil
		},
		again: againQueues,
	},
	{
		// Queues over the promotion of Redis' replica, which has steps of its own.
		name: "promotion", short: noFaults, long: noFaults,
		run: func(ctx context.Context, o *options, j *job) (*result, error) {
			res, err := queues.Promote(ctx, queues.Config{Dir: j.dir, Seed: o.seed, Binary: j.binary, Logger: o.logger()})
			if err != nil {
				return nil, err
			}
			return ofQueues(res), nil
		},
		again: againQueues,
	},
}

func noFaults() chaos.Plan { return chaos.Plan{} }

func againQueues(dir string) (*result, error) {
	h, err := queues.ReadHistory(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		return nil, err
	}
	t, err := chaos.ReadReport[queues.Truth](filepath.Join(dir, "truth.json"))
	if err != nil {
		return nil, err
	}
	return ofQueues(&queues.Result{History: h, Truth: t, Violations: queues.Check(h, t, queues.Settings{})}), nil
}

func ofMessages(res *chaos.Result) *result {
	return &result{violations: res.Violations, calls: len(res.History.Ops), summary: res.Summary}
}

func ofQueues(res *queues.Result) *result {
	return &result{violations: res.Violations, calls: len(res.History.Ops), summary: res.Summary}
}

func findRoom(name string) (*room, error) {
	for i := range rooms {
		if rooms[i].name == name {
			return &rooms[i], nil
		}
	}
	return nil, fmt.Errorf("no such room: %s", name)
}
