// Command bot answers the commands !help, !time and !echo in a channel. It stores its position in a
// file. After a restart, even after a crash, it answers each question that it missed, and none
// twice.
//
//	PARLEY_TOKEN=$(bin/parley token --sub bot) go run ./examples/bot --channel general
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	parley "github.com/parleyhq/parley/sdk/go"
)

type flags struct {
	Addr    string `env:"PARLEY_ADDR" default:"127.0.0.1:8080" help:"The server, or the nodes of a fleet, comma-separated."`
	Token   string `env:"PARLEY_TOKEN" required:"" help:"A token that may send in the channel and subscribe to it."`
	Channel string `default:"general" help:"Where to answer."`
	State   string `default:"bot-position.json" type:"path" help:"The file that holds the position in the channel's log."`
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var f flags
	parser, err := kong.New(&f, kong.Name("bot"), kong.Description("Answers !help, !time and !echo in a channel."))
	if err == nil {
		_, err = parser.Parse(args)
	}
	if err == nil {
		err = serve(ctx, f)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "bot:", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, f flags) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	// Without a call timeout, an answer is retried until the server is available.
	client, err := parley.New(f.Addr, parley.WithToken(f.Token), parley.WithLogger(log), parley.WithCallTimeout(0))
	if err != nil {
		return err
	}
	defer client.Close()
	name, err := subject(f.Token)
	if err != nil {
		return err
	}
	b := bot{client: client, log: log, name: name, channel: f.Channel, state: f.State}
	return b.run(ctx)
}
