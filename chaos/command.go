// Command chaos runs a fleet of nodes, breaks it by a schedule under load of one of its rooms, and says whether every promise
// was kept. It exits with 1 if one was not, or if the run could not be made.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/parleyhq/parley/chaos"
	"github.com/parleyhq/parley/chaos/queues"
	"github.com/parleyhq/parley/internal/rig"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == queues.ConsumeFlag {
		if err := queues.Consume(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Exit(1) // whoever started it has gone
		}
		return
	}
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// options are the command line's.
type options struct {
	room    string
	seed    uint64
	short   bool
	dir     string
	binary  string
	check   string
	plan    bool
	keep    bool
	verbose bool
	nats    int
	faults  string
	rounds  int
	mutants string
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.StringVar(&o.room, "room", rooms[0].name, "what the fleet is used for meanwhile: messages, queues, or promotion (of a Redis replica, under queues)")
	f.Uint64Var(&o.seed, "seed", 0, "repeat the schedule of a run; 0 picks one")
	f.BoolVar(&o.short, "short", false, "a run of about a minute instead of twenty")
	f.StringVar(&o.dir, "dir", "", "where the report goes; a temporary directory that stays only if something is wrong")
	f.StringVar(&o.binary, "binary", "", "the parleyd to run instead of this source's")
	f.StringVar(&o.check, "check", "", "judge the report in this directory again, and run nothing")
	f.BoolVar(&o.plan, "plan", false, "print the schedule of the seed, and run nothing")
	f.BoolVar(&o.keep, "keep-replies", false, "lose no replies")
	f.BoolVar(&o.verbose, "v", false, "say what happens")
	f.IntVar(&o.nats, "nats", 3, "NATS servers, 1 or 3; for messages only")
	f.StringVar(&o.faults, "faults", "", "only these, as node-kill=3,nats-away; of the list that -plan shows")
	f.IntVar(&o.rounds, "rounds", 1, "how many times the schedule's faults come")
	f.StringVar(&o.mutants, "mutants", "", "run these mutants of the server, or `all` of the room's, and say which are caught")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.seed == 0 {
		o.seed = rand.Uint64() >> 32
	}
	return o, nil
}

func run(args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	room, err := findRoom(o.room)
	if err != nil {
		return err
	}
	plan := room.long()
	if o.short {
		plan = room.short()
	}
	if o.faults != "" {
		if plan.Counts, err = chaos.ParseCounts(o.faults, room.long()); err != nil {
			return err
		}
	}
	for name := range plan.Counts {
		plan.Counts[name] *= o.rounds
	}
	switch {
	case o.check != "":
		return again(room, o.check, out)
	case o.plan:
		for _, step := range chaos.Schedule(o.seed, plan) {
			_, _ = fmt.Fprintln(out, step)
		}
		return nil
	case !rig.InNamespace():
		return outside(&o)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.mutants != "" {
		return hunt(ctx, &o, room, out)
	}
	return inside(ctx, &o, room, plan, out)
}

// outside builds what needs the network, and runs this program again where there is none.
func outside(o *options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if o.binary == "" {
		if _, err := rig.BuildParleyd(ctx); err != nil {
			stop()
			return err
		}
	}
	_, err := rig.BuildNATS(ctx)
	stop()
	if err != nil {
		return err
	}
	// The seed is chosen anew inside, so it goes along.
	os.Args = append(os.Args[:1:1], append([]string{fmt.Sprintf("-seed=%d", o.seed)}, os.Args[1:]...)...)
	code, err := rig.RunInNamespace()
	if err != nil {
		return err
	}
	if code != 0 {
		os.Exit(code) // the child has said why
	}
	return nil
}

// logger says what happens, if that was asked for.
func (o *options) logger() *slog.Logger {
	level := slog.LevelWarn
	if o.verbose {
		level = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

func inside(ctx context.Context, o *options, room *room, plan chaos.Plan, out io.Writer) error {
	dir, temporary := o.dir, o.dir == ""
	if temporary {
		var err error
		if dir, err = os.MkdirTemp("", "parley-chaos-"); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintf(out, "seed %d, report in %s\n", o.seed, dir)
	began := time.Now()
	res, err := room.run(ctx, o, &job{dir: dir, plan: plan, binary: o.binary})
	if err != nil {
		return err
	}
	res.summary(out)
	_, _ = fmt.Fprintf(out, "seed %d, %s\n", o.seed, time.Since(began).Round(time.Second))
	if len(res.violations) > 0 {
		return fmt.Errorf("%d violations; the report is in %s", len(res.violations), dir)
	}
	if temporary {
		return os.RemoveAll(dir) //nolint:gosec // made above
	}
	return nil
}

// again judges what a run left.
func again(room *room, dir string, out io.Writer) error {
	res, err := room.again(dir)
	if err != nil {
		return err
	}
	res.summary(out)
	if len(res.violations) > 0 {
		return errors.New("there are violations")
	}
	return nil
}
