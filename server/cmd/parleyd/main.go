// Command parleyd is the Parley server.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/parleyhq/parley/internal/program"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

// run parses and runs a command. It returns the exit code: 0 for success, 1 for a failure and 2 for
// a usage error. The first signal drains the server; a second one ends the process at once.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // after the first signal, the next one has its default action

	var cmds commands
	parser, err := kong.New(&cmds, kong.Name("parleyd"), kong.Description("The Parley server."), kong.UsageOnError(),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Vars{"version": program.Version()})
	if err != nil {
		fmt.Fprintln(os.Stderr, "parleyd:", err)
		return 1
	}
	kctx, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "parleyd:", err)
		return 2
	}
	go keepHeapRoomy(ctx)
	go giveBackMemory(ctx, readUsage, debug.FreeOSMemory)
	if err := kctx.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "parleyd:", err)
		return 1
	}
	return 0
}
