// Command parley-bench measures a Parley server and prints each figure with its floor from the same
// run. `parley bench` starts it with the same arguments.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/parleyhq/parley/bench"
	"github.com/parleyhq/parley/internal/program"
)

// The exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

func main() { os.Exit(start()) }

func start() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	return run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv)
}

// run runs the program with the arguments after its name and returns the exit code: 0 for success,
// 1 for an error, 2 for a mistake in the arguments. The end of ctx interrupts it.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	if len(args) > 0 && args[0] == bench.FloorCommand {
		if err := bench.RunFloor(ctx, args[1:], stdin, stdout); err != nil {
			return fail(stderr, exitError, err)
		}
		return exitOK
	}
	var c command
	finished := false
	parser, err := kong.New(&c,
		kong.Name("parley-bench"), kong.Description("Measure a Parley server: each figure next to its floor from the same run."),
		kong.Writers(stdout, stderr), kong.Vars{"areas": strings.Join(areaNames(), ", "), "version": program.Version()},
		// kong exits the program after --help and --version. Only main may exit here, so parsing
		// continues and its result is ignored.
		kong.Exit(func(int) { finished = true }),
	)
	if err != nil {
		return fail(stderr, exitError, err)
	}
	_, err = parser.Parse(args)
	if finished {
		return exitOK
	}
	if err != nil {
		return fail(stderr, exitUsage, err)
	}
	options, err := c.options(getenv)
	if err != nil {
		return fail(stderr, exitUsage, err)
	}
	areas, err := bench.Select(bench.Areas(), c.Areas)
	if err != nil {
		return fail(stderr, exitUsage, err)
	}
	options.Progress = func(line string) { _, _ = fmt.Fprintln(stderr, line) }
	var report bench.Report = &bench.Text{W: stdout}
	if c.JSON {
		report = bench.JSON{W: stdout}
	}
	if err := bench.Run(ctx, areas, options, report); err != nil {
		return fail(stderr, exitError, err)
	}
	return exitOK
}

// fail reports the error and returns the exit code.
func fail(stderr io.Writer, code int, err error) int {
	_, _ = fmt.Fprintf(stderr, "parley-bench: %s\n", err)
	if code == exitUsage {
		_, _ = fmt.Fprintln(stderr, "parley-bench --help says more.")
	}
	return code
}

// areaNames returns the names of all areas.
func areaNames() []string {
	var names []string
	for _, a := range bench.Areas() {
		names = append(names, a.Name)
	}
	return names
}
