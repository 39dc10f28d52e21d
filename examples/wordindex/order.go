package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// runWitness makes the witness group read the topic, with one undisturbed worker, and records the
// order of the messages. Messages of an earlier run are recorded already.
func (j *judge) runWitness(ctx context.Context) error {
	working, stop := context.WithCancel(ctx)
	options := []queue.WorkerOption{queue.WithConsumerName("witness"), queue.WithConcurrency(64)}
	worker := queue.NewWorker(j.client, witness, options...).Handle(j.flags.Topic, func(ctx context.Context, d *queue.Delivery) error {
		return j.seen.add(ctx, d, nil)
	})
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(working) }()
	err := j.untilRead(ctx, ended)
	stop()
	if err != nil {
		return fmt.Errorf("the witness: %w", err)
	}
	return <-ended
}

// untilRead waits until the witness group has settled all messages. It fails if its worker ends
// before, as ended reports, or ctx ends.
func (j *judge) untilRead(ctx context.Context, ended <-chan error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		total, g, err := j.groupStats(ctx, witness)
		if err != nil || unsettled(total, g) == 0 {
			return err
		}
		select {
		case <-tick.C:
		case err := <-ended:
			return fmt.Errorf("its worker ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("%w: %v", ctx.Err(), g)
		}
	}
}

// order checks that each nick's lines were indexed in the order in which they appeared in the
// topic, and that this order is correct.
func (j *judge) order() error {
	nicks := slices.Sorted(maps.Keys(j.nicks))
	indexed, err := j.indexed.orders(j.ctx, nicks)
	if err != nil {
		return err
	}
	seen, err := j.seen.orders(j.ctx, nicks)
	if err != nil {
		return err
	}
	longest := 0
	for _, nick := range nicks {
		if err := j.rightOrder(seen[nick], j.nicks[nick]); err != nil {
			return fmt.Errorf("%s as the topic has it: %w", nick, err)
		}
		if err := j.sameOrder(indexed[nick], seen[nick]); err != nil {
			return fmt.Errorf("%s as it was indexed: %w", nick, err)
		}
		longest = max(longest, len(j.nicks[nick]))
	}
	j.printf("order: kept for %d nicks, with up to %d lines each", len(nicks), longest)
	return nil
}

// rightOrder checks the order of a nick's lines in the topic. Each line must be there once. Lines
// without delay must be in the order of the files. Delayed lines must be in the order in which they
// were due, and after all lines that appeared before that time.
func (j *judge) rightOrder(seen []indexedLine, want []*job) error {
	if len(seen) != len(want) {
		return fmt.Errorf("it has %d lines, want %d", len(seen), len(want))
	}
	var direct []*job
	for _, one := range want {
		if one.delay == 0 {
			direct = append(direct, one)
		}
	}
	known := make(map[string]bool, len(seen))
	latest, latestDelayed := int64(0), int64(0)
	for i, s := range seen {
		one := j.jobs[s.line]
		switch {
		case one == nil || one.nick != want[0].nick || known[s.line]:
			return fmt.Errorf("line %d is %s, which is not of this nick, or was there before", i+1, s.line)
		case one.delay > 0 && s.at < latestDelayed:
			return fmt.Errorf("%s was due %d ms before a delayed line that stands before it", s.line, latestDelayed-s.at)
		case one.delay > 0:
			latestDelayed = s.at
		case s.at < latest:
			return fmt.Errorf("%s was said %d ms before what stands before it", s.line, latest-s.at)
		case one != direct[0]:
			return fmt.Errorf("line %d is %s, and %s was said before", i+1, s.line, direct[0].line)
		default:
			direct = direct[1:]
		}
		known[s.line] = true
		latest = max(latest, s.at)
	}
	return nil
}

// sameOrder checks that lines were indexed in the order in which the witness saw them. Replayed
// poison is compared separately, because poison loses its position when it becomes a dead letter.
func (j *judge) sameOrder(indexed, seen []indexedLine) error {
	for _, wanted := range []bool{false, true} {
		of := func(lines []indexedLine) (some []string) {
			for _, t := range lines {
				if one := j.jobs[t.line]; one == nil || (one.fault == poison) == wanted && j.mustBeIndexed(one) {
					some = append(some, t.line)
				}
			}
			return some
		}
		got, want := of(indexed), of(seen)
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				return fmt.Errorf("line %d of %d is %q, want %q (of %d)", i+1, len(got), at(got, i), at(want, i), len(want))
			}
		}
	}
	return nil
}

// at returns the element with the index i, or "" if the list is too short.
func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return ""
}
