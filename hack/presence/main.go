// Command presence runs presence on the joins, parts, renames and speakers of real logs. It replays
// the days of a directory in parallel, at a multiple of their speed, on three nodes. Each user who
// is online is a stream of the Go SDK. Watchers on every node follow every user, by name and by the
// channel of the user's day. The replay pauses at ten checkpoints, where all views must equal what
// an independent reader of the files says: each watcher's, those of GetPresence and ListOnlineUsers
// on each node, and Redis. Between the checkpoints two nodes are killed and restarted, one is
// stopped for a while, Redis is flushed, and NATS is away. Nobody may be shown offline who is
// surely online.
//
// Half of the users sign out at the end of their day: when they leave for the last time, or after
// the last checkpoint. Thieves try their tokens from then on, by calls and streams of all services
// on all nodes, while NATS is away again, a node is killed and Redis is flushed. From 1 s after
// SignOut has returned each must be refused, and none with another token. In the end all users
// leave, and nobody may be left online. `make presence DATA=...` runs it; README.md says more.
//
// The logs are read as follows. A user is `<day>/<nick>`, with the nick encoded as `parley import`
// encodes it. A join, the first word and the new name of a rename are a connect. A join and a new
// name of a user who is online are a reconnect, which is a disconnect and a connect: the log has no
// line for the quit. A part and the old name of a rename are a disconnect. The end of the file
// disconnects all. Notices have no time, and take that of the last message before them. Messages of
// one minute are spread over it. The days end together, so that everyone who stays until the end of
// their day is online at once.
package main

import (
	"context"
	"os"
	"time"

	"github.com/parleyhq/parley/hack/internal/command"
	"github.com/parleyhq/parley/internal/rig"
)

type flags struct {
	Data   string        `arg:"" type:"existingdir" help:"Directory of *.raw.txt logs."`
	Binary string        `type:"existingfile" help:"The parleyd to run; built from this source if empty."`
	Log    string        `default:"warn" help:"The log level of the nodes."`
	Dir    string        `help:"Directory for the data and logs of the nodes and engines, which are then kept."`
	Speed  float64       `default:"100" help:"How many times as fast as it was to replay the days."`
	Stop   time.Duration `default:"20s" help:"How long to stop a node."`
	Lease  time.Duration `default:"4s" help:"The lease of the nodes: how long a silent one counts as alive."`
	Away   time.Duration `default:"1m" help:"How long NATS is away."`
	Out    time.Duration `default:"90s" help:"Over how long those who stay until the end of their day sign out."`
	Thefts float64       `default:"40" help:"How often a second tokens are tried on each node."`
	Seed   uint64        `help:"Chooses who signs out, and more; 0 means a random one."`
	Settle time.Duration `default:"30s" help:"How long all views may take at a checkpoint until they agree."`
	Wait   time.Duration `default:"20m" help:"How long all of it may take."`
	Calm   bool          `help:"Inject no faults."`
	Break  string        `hidden:"" default:"" enum:",unrevoked,untold" help:"What is done wrong, to see that the verdict notices."`
}

func main() {
	var f flags
	os.Exit(command.Run(context.Background(), "presence", os.Args[1:], &f, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, f.Wait)
		defer cancel()
		_, err := run(ctx, &f, rig.Options{Binary: f.Binary, Dir: f.Dir}, os.Stdout)
		return err
	}))
}
