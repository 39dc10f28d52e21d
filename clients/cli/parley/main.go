// Command parley sends, follows, reads and imports messages of a Parley server.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/parleyhq/parley/clients/cli"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	return cli.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv)
}
