// Command irc runs the main use of messaging on real logs, under hostile conditions. The days of a
// directory are imported into a few channels of three nodes, each line is edited five times and one
// in ten is recalled, while only the newest messages of a channel are retained. `make irc DATA=...`
// runs it. README.md says what happens and what is compared.
package main

import (
	"context"
	"os"
	"time"

	"github.com/parleyhq/parley/hack/internal/command"
	"github.com/parleyhq/parley/internal/rig"
)

type flags struct {
	Data    string        `arg:"" type:"existingdir" help:"Directory of *.raw.txt logs."`
	Binary  string        `type:"existingfile" help:"The parleyd to run; built from this source if empty."`
	Ahead   string        `type:"existingfile" help:"The parleyd whose clock is 10 s ahead; built from this source if empty, which takes minutes the first time."`
	InTime  bool          `help:"No node's clock is ahead."`
	Retain  int           `default:"10000" help:"How many messages of a channel are retained."`
	Mongo   int           `default:"1" enum:"1,3" help:"How many members the replica set of MongoDB has."`
	Outage  time.Duration `default:"1m" help:"How long Redis and NATS are away at the beginning."`
	Editors int           `default:"256" help:"How many edits are made at a time."`
	Sample  time.Duration `default:"5s" help:"The time between two samples of the memory; 0 is none, and it is not judged."`
	Probes  int           `default:"5" help:"How often the cost of each call is measured in the end."`
	Wait    time.Duration `default:"20m" help:"How long all of it may take."`
}

func main() {
	var f flags
	os.Exit(command.Run(context.Background(), "irc", os.Args[1:], &f, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, f.Wait)
		defer cancel()
		_, err := run(ctx, &f, rig.Options{MongoMembers: f.Mongo, Binary: f.Binary}, os.Stdout)
		return err
	}))
}
