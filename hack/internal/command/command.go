// Package command is the common part of the programs in hack.
package command

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// Run parses a program's arguments into flags, a pointer to a struct for kong, and runs its job. An
// interrupt ends the job's context; a second one kills the program and its processes at once. Run
// returns the exit code: 0 for success, 1 for an error of the job, 2 for wrong arguments.
func Run(
	ctx context.Context, name string, args []string, flags any, job func(ctx context.Context) error, opts ...kong.Option,
) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	parser, err := kong.New(flags, append(opts, kong.Name(name))...)
	if err == nil {
		_, err = parser.Parse(args)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 2
	}
	if err := job(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}
