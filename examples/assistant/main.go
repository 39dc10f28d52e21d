// Command assistant answers the prompts of all sessions with scripted texts, without a model. It
// stores nothing: after a restart, even after a crash, it answers each prompt that has no answer,
// and none twice.
//
//	PARLEY_TOKEN=$(cat data/dev-token) go run ./examples/assistant
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	parley "github.com/parleyhq/parley/sdk/go"
)

type flags struct {
	Addr  string `env:"PARLEY_ADDR" default:"127.0.0.1:8080" help:"The server, or the nodes of a fleet, comma-separated."`
	Token string `env:"PARLEY_TOKEN" required:"" help:"A token with all actions on session:*."`
	Rate  int    `default:"30" help:"Tokens per second."`
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var f flags
	parser, err := kong.New(&f, kong.Name("assistant"), kong.Description("Answers the prompts of all sessions with scripted texts."))
	if err == nil {
		_, err = parser.Parse(args)
	}
	if err == nil {
		err = serve(ctx, f)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "assistant:", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, f flags) error {
	if f.Rate < 1 || f.Rate > 1000 {
		return errors.New("--rate must be 1 to 1000")
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	// Without a call timeout, the close of an answer is retried until the server is available.
	client, err := parley.New(f.Addr, parley.WithToken(f.Token), parley.WithLogger(log), parley.WithCallTimeout(0))
	if err != nil {
		return err
	}
	defer client.Close()
	a := assistant{client: client, log: log, pause: time.Second / time.Duration(f.Rate)}
	return a.run(ctx)
}
