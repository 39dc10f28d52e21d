package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// produceBatch is the number of lines that one call of the function produce stores.
const produceBatch = 50

type produceCommand struct {
	Dir  string `arg:"" type:"existingdir" help:"Directory of *.raw.txt logs."`
	Rate int    `help:"Maximum number of new jobs per second; 0 means as fast as possible." placeholder:"JOBS"`
}

// Run produces all lines, in order. It can continue an interrupted run: lines that were produced
// before are duplicates.
func (c *produceCommand) Run(a *app) error {
	jobs, err := a.readJobs(c.Dir)
	if err != nil {
		return err
	}
	if err := a.prepare(); err != nil {
		return err
	}
	p := queue.NewProducer(a.client, a.flags.Topic)
	began, fresh, delayed := time.Now(), 0, 0
	for batch := range slices.Chunk(jobs, produceBatch) {
		n, later, err := produce(a.ctx, p, batch)
		if err != nil {
			return err
		}
		fresh, delayed = fresh+n, delayed+later
		if c.Rate > 0 {
			select {
			case <-time.After(time.Until(began.Add(time.Duration(fresh) * time.Second / time.Duration(c.Rate)))):
			case <-a.ctx.Done():
				return a.ctx.Err()
			}
		}
	}
	a.printf("%d jobs produced, %d of them delayed; %d were there already", len(jobs), delayed, len(jobs)-fresh)
	return nil
}

// produce stores jobs in the topic. It returns how many of them were not stored before, and how
// many are delayed.
func produce(ctx context.Context, p *queue.Producer, jobs []job) (fresh, delayed int, err error) {
	messages := make([]queue.Message, len(jobs))
	for i := range jobs {
		messages[i] = jobs[i].message()
		if jobs[i].delay > 0 {
			delayed++
		}
	}
	results, err := p.Produce(ctx, messages...)
	if err != nil {
		return 0, 0, err
	}
	for _, r := range results {
		if r.Err != nil {
			return 0, 0, fmt.Errorf("produce: %w", r.Err)
		}
		if !r.Receipt.Duplicate {
			fresh++
		}
	}
	return fresh, delayed, nil
}
