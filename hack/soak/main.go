// Command soak runs one `parleyd serve` on a real MongoDB, Redis and NATS under a steady load. It
// fails if something that must not grow does: the heap after a collection, goroutines, the memory
// of Redis, the event stream, the memory of mongod. `make soak` runs it for 30 minutes; its tests
// run it for about a minute.
//
// # Load
//
// Sends, edits, recalls and lists in a fixed set of channels; subscribers that come and go;
// devices that connect, watch and leave; producers, and consumers that come and go. The users,
// channels, topics and groups are a fixed set, because a server may remember each of them forever.
//
// # Limits
//
// What has a limit grows until it reaches the limit. So the limits are small enough to be reached
// while the server settles, which takes 5 minutes. The event stream has 16 MiB, the smallest size
// that can be configured. Idempotency keys and dead letters live for a minute. MongoDB has a cache
// of 24 MiB. A channel's set in Redis reaches its limit of 150 messages after a minute. All users
// are of one shard of the presence log, which reaches its limit of 1,024 lines in two minutes.
//
// # Verdict
//
// After the settling time each gauge is sampled, and a line is fitted to its samples by least
// squares. A gauge leaks if the line rises in 10 minutes by more than the bar, as a share of the
// line at the beginning of the load. A share of the mean would hide a steep leak, which raises the
// mean. The slope must also be more than two standard errors: a slope that the noise explains says
// nothing.
//
// The standard error of a fit assumes independent samples, but those of a sawtooth resemble their
// neighbours. So it is computed from the means of ten equal parts of the time too, and the larger
// one counts. If the noise hides a slope of the size of the bar, the gauge is unclear, which fails
// the run too: it has not shown what it is for. A longer run makes it clear.
//
// The heap is measured after a forced collection. What was allocated while that ran is included
// and is noise.
//
// # What is not judged
//
// The size of MongoDB's data grows because messages are stored. The resident memory of redis-
// server depends on its allocator; used_memory is what Redis stores. The resident memory of
// parleyd depends on when the runtime returns pages; the heap is what the server keeps. These are
// not sampled. Of mongod both are: what it has allocated, and its resident memory, which also has
// what its allocator keeps. Both include its cache, and have a bar of their own.
package main

import (
	"context"
	"os"
	"time"

	"github.com/parleyhq/parley/hack/internal/command"
	"github.com/parleyhq/parley/internal/rig"
)

type flags struct {
	Binary string        `type:"existingfile" help:"The parleyd to run; built from this source if empty."`
	For    time.Duration `default:"30m" help:"How long to run the load."`
	Settle time.Duration `default:"5m" help:"How much of that to wait until limits are reached, before the first sample."`
	Every  time.Duration `default:"5s" help:"The time between two samples."`
	Bar    float64       `default:"1" help:"By how many percent of what it was at first a gauge may grow in 10 minutes."`
	Judge  []string      `help:"The gauges to judge, such as 'goroutines'; all if empty. The others are only reported."`

	Rest time.Duration `default:"3m" help:"How long to wait before the goroutines without a load are counted, before and after; 0 counts none. Idle connections end after two minutes."`

	AllowUnclear bool `help:"Do not fail if the noise hides a growth of the size of the bar."`
}

func main() {
	var f flags
	os.Exit(command.Run(context.Background(), "soak", os.Args[1:], &f, func(ctx context.Context) error {
		return run(ctx, &f, rig.Options{Binary: f.Binary}, os.Stdout)
	}))
}
