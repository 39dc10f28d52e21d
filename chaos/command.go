package chaos

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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/parleyhq/parley/internal/rig"
)

// Main runs the command line args, without the program's name, with one of the harnesses; the first
// is the default. It writes results to out and returns the program's exit code. If a promise was
// broken or the run failed, it returns 1 and an error, which it has not printed. A nonzero code
// without an error comes from the process in the namespace, which has printed the reason.
func Main(ctx context.Context, args []string, out io.Writer, harnesses ...*Harness) (code int, err error) {
	o, err := parse(args, harnesses)
	if err != nil {
		return 1, err
	}
	plan, err := o.plan()
	if err != nil {
		return 1, err
	}
	switch {
	case o.check != "":
		err = judgeAgain(&o, out)
	case o.show:
		for _, step := range Schedule(o.seed, plan) {
			_, _ = fmt.Fprintln(out, step)
		}
	case !rig.InNamespace():
		return outside(ctx, &o)
	default:
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		if o.mutants != "" {
			err = hunt(ctx, &o, out)
		} else {
			err = inside(ctx, &o, plan, out)
		}
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// options are the command line's options.
type options struct {
	harness *Harness
	seed    uint64
	short   bool
	dir     string
	binary  string
	check   string
	show    bool
	keep    bool
	verbose bool
	nats    int
	faults  string
	rounds  int
	mutants string
}

func parse(args []string, harnesses []*Harness) (options, error) {
	var o options
	names := make([]string, len(harnesses))
	for i, h := range harnesses {
		names[i] = h.name
	}
	var name string
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.StringVar(&name, "harness", names[0], "the harness to run: "+strings.Join(names, ", "))
	f.Uint64Var(&o.seed, "seed", 0, "the seed of the schedule, to repeat a run; 0 chooses one")
	f.BoolVar(&o.short, "short", false, "run for one to two minutes instead of twenty")
	f.StringVar(&o.dir, "dir", "", "the directory of the report; by default a temporary one, which is kept only if there are violations")
	f.StringVar(&o.binary, "binary", "", "the parleyd to run instead of one built from this source")
	f.StringVar(&o.check, "check", "", "only check the report in this directory again")
	f.BoolVar(&o.show, "plan", false, "only print the schedule of the seed")
	f.BoolVar(&o.keep, "keep-replies", false, "do not drop replies")
	f.BoolVar(&o.verbose, "v", false, "log each step")
	f.IntVar(&o.nats, "nats", 3, "the number of NATS servers, 1 or 3, unless the harness fixes it")
	f.StringVar(&o.faults, "faults", "", "only these faults of the list that -plan prints, as in node-kill=3,nats-away")
	f.IntVar(&o.rounds, "rounds", 1, "the number of times that the schedule repeats its faults")
	f.StringVar(&o.mutants, "mutants", "", "run these mutants of the server, or all mutants of the harness, and report which are caught")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	at := slices.Index(names, name)
	if at < 0 {
		return o, fmt.Errorf("unknown harness %q", name)
	}
	o.harness = harnesses[at]
	if o.seed == 0 {
		o.seed = rand.Uint64() >> 32
	}
	return o, nil
}

// plan returns the plan that the options select.
func (o *options) plan() (Plan, error) {
	plan := o.harness.long()
	if o.short {
		plan = o.harness.short()
	}
	if o.faults != "" {
		var err error
		if plan.Counts, err = ParseCounts(o.faults, o.harness.long()); err != nil {
			return plan, err
		}
	}
	for name := range plan.Counts {
		plan.Counts[name] *= o.rounds
	}
	return plan, nil
}

// outside builds parleyd and nats-server, for which it needs the network. It then runs this program
// again in a network namespace without access to it, and returns that program's exit code.
func outside(ctx context.Context, o *options) (code int, err error) {
	if err := build(ctx, o); err != nil {
		return 1, err
	}
	// The process inside would choose another seed, so pass this one.
	os.Args = slices.Concat(os.Args[:1], []string{fmt.Sprintf("-seed=%d", o.seed), "-binary=" + o.binary}, os.Args[1:])
	return rig.RunInNamespace()
}

func build(ctx context.Context, o *options) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.binary == "" {
		var err error
		if o.binary, err = o.harness.build(ctx); err != nil {
			return err
		}
	}
	_, err := rig.BuildNATS(ctx)
	return err
}

// logger returns the logger of a run, to stderr. It logs the steps only with -v, warnings always.
func (o *options) logger() *slog.Logger {
	level := slog.LevelWarn
	if o.verbose {
		level = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// config returns the part of the configuration that is the same in a run and in a mutant's run.
func (o *options) config() Config {
	return Config{Seed: o.seed, KeepReplies: o.keep, NATSServers: o.nats, Logger: o.logger()}
}

func inside(ctx context.Context, o *options, plan Plan, out io.Writer) error {
	c := o.config()
	c.Dir, c.Plan, c.Binary = o.dir, plan, o.binary
	if o.short {
		c.Size = Short
	}
	if o.dir == "" {
		var err error
		if c.Dir, err = os.MkdirTemp("", "parley-chaos-"); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintf(out, "seed %d, report in %s\n", o.seed, c.Dir)
	began := time.Now()
	res, err := o.harness.Run(ctx, c)
	if err != nil {
		return err
	}
	res.Summary(out)
	_, _ = fmt.Fprintf(out, "seed %d, %s\n", o.seed, time.Since(began).Round(time.Second))
	if len(res.Violations) > 0 {
		return fmt.Errorf("%d violations; the report is in %s", len(res.Violations), c.Dir)
	}
	if o.dir == "" {
		return os.RemoveAll(c.Dir)
	}
	return nil
}

// judgeAgain checks the report of an earlier run. It returns an error if there are violations.
func judgeAgain(o *options, out io.Writer) error {
	res, err := o.harness.Judge(o.check)
	if err != nil {
		return err
	}
	res.Summary(out)
	if len(res.Violations) > 0 {
		return errors.New("the report has violations")
	}
	return nil
}
