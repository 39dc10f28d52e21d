// Command sessions runs the main use of sessions on real logs, under hostile conditions. The days
// of a directory are replayed as their users' sessions with an assistant, whose answers are
// streamed word by word on three nodes, while answers are cancelled, generators die, nodes are
// killed and Redis is flushed. `make sessions DATA=...` runs it. README.md says what happens and
// what is compared.
package main

import (
	"context"
	"os"
	"time"

	"github.com/parleyhq/parley/hack/internal/command"
	"github.com/parleyhq/parley/internal/rig"
)

type flags struct {
	Data        string        `arg:"" type:"existingdir" help:"Directory of *.raw.txt logs."`
	Binary      string        `type:"existingfile" help:"The parleyd to run; built from this source if empty."`
	Days        int           `help:"How many days are replayed, the first ones; 0 means all."`
	Speed       float64       `default:"60" help:"How many times as fast as it was to replay the days."`
	Lanes       int           `default:"12" help:"How many days are replayed at a time."`
	Quiet       time.Duration `default:"5m" help:"How long a silence in a log may last; longer ones are shortened."`
	Word        time.Duration `default:"3s" help:"How long the assistant takes for a word, in the time of the logs."`
	Follow      int           `default:"40" help:"The percentage of the sessions that each node's live subscribers follow."`
	Late        int           `default:"10" help:"The percentage of the answers that a subscriber joins late."`
	OpenTimeout time.Duration `default:"20s" help:"The nodes' sessions.open_timeout."`
	Seed        uint64        `help:"Chooses which answers are cancelled, and more; 0 means a random one."`
	Mongo       int           `default:"1" enum:"1,3" help:"How many members the replica set of MongoDB has."`
	Watch       bool          `help:"Print the address of the page of the user with the most answers."`
	Calm        bool          `help:"Kill no node and do not flush Redis."`
	Break       string        `hidden:"" default:"" enum:",cancel,text,role" help:"What the replay does wrong, to see that the verdict notices."`
	Wait        time.Duration `default:"20m" help:"How long all of it may take."`
}

func main() {
	var f flags
	os.Exit(command.Run(context.Background(), "sessions", os.Args[1:], &f, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, f.Wait)
		defer cancel()
		_, err := run(ctx, &f, rig.Options{MongoMembers: f.Mongo, Binary: f.Binary}, os.Stdout)
		return err
	}))
}
