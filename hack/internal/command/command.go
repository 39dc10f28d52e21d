// Package command is the frame of the programs in hack.
package command

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// Run reads a program's arguments into its flags, a pointer to a struct as kong takes it, and does its job. The job's context ends
// with an interrupt; a second one ends the program at once, and the processes with it. Run gives the exit code: 0, 1 for an error of
// the job's, 2 for arguments that are none.
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
