// Package cli is the command line of Parley: send, follow, read and import messages, look after channels and their members,
// work with queues, and mint tokens for development.
package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kong"

	parley "github.com/parleyhq/parley/sdk/go"
)

// The exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// commands are the flags and commands; kong makes the parser from it.
type commands struct {
	Addr    string `help:"Server: host:port or URL; several with commas for a fleet. Default: $PARLEY_ADDR, else what a local 'parleyd dev' wrote, else 127.0.0.1:8080." aliases:"server" placeholder:"ADDR,..."`
	Token   string `help:"Bearer token. Default: $PARLEY_TOKEN, else the token that a local 'parleyd dev' wrote." placeholder:"TOKEN"`
	CAFile  string `name:"ca-file" help:"PEM file with the certificates to trust. Default: $PARLEY_CA_FILE, else the system's and that of a local 'parleyd dev --tls'." placeholder:"FILE"`
	DataDir string `help:"Data directory of a local 'parleyd dev'." default:"data" placeholder:"DIR"`
	JSON    bool   `name:"json" help:"Write JSON objects, one a line."`

	Send    sendCommand    `cmd:"" help:"Send a message."`
	Tail    tailCommand    `cmd:"" help:"Follow channels live, one line per message."`
	History historyCommand `cmd:"" help:"Read a channel's messages."`
	Channel channelCommand `cmd:"" help:"Make channels, change and list their members, list your own channels."`
	Read    readCommand    `cmd:"" help:"Mark a channel as read up to a place in its log."`
	Typing  typingCommand  `cmd:"" help:"Tell a channel's followers that you are typing."`
	Queue   queueCommand   `cmd:"" help:"Work queues: make topics, produce, consume, look into them, replay dead letters."`
	Import  importCommand  `cmd:"" help:"Import IRC logs into a channel. May be repeated: nothing is stored twice."`
	Mint    tokenCommand   `cmd:"" name:"token" help:"Mint a token for a local 'parleyd dev'."`
	Bench   benchCommand   `cmd:"" help:"Measure a server: each figure next to its floor from the same run."`

	BenchFloor benchFloorCommand `cmd:"" name:"bench-floor" hidden:"" help:"What 'bench' measures beside the server."`
}

// session is what a command runs with.
type session struct {
	ctx            context.Context //nolint:containedctx // kong calls commands with one bound value
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	flags          *commands
}

// usageError is a mistake in how the command was called.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Run runs the command line with the arguments after the program's name, and gives the exit code: 0 for success, 1 for
// an error, 2 for a mistake in the arguments. The end of ctx interrupts it.
func Run(
	ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string,
) int {
	var flags commands
	finished := false
	parser, err := kong.New(&flags,
		kong.Name("parley"), kong.Description("Send, follow, read and import messages of a Parley server, and work with its queues."),
		kong.Writers(stdout, stderr), kong.Vars{"areas": areaNames()},
		// kong ends the program after --help. Here only main may, so parsing goes on and its outcome is passed over.
		kong.Exit(func(int) { finished = true }),
	)
	if err != nil {
		return fail(stderr, err)
	}
	parsed, err := parser.Parse(args)
	switch {
	case finished:
		return exitOK
	case err != nil:
		return fail(stderr, usageError{err})
	}
	s := &session{ctx: ctx, stdin: stdin, stdout: stdout, stderr: stderr, getenv: getenv, flags: &flags}
	if err := parsed.Run(s); err != nil {
		return fail(stderr, err)
	}
	return exitOK
}

func fail(stderr io.Writer, err error) int {
	_, _ = fmt.Fprintf(stderr, "parley: %s\n", err)
	if _, ok := errors.AsType[usageError](err); ok {
		_, _ = fmt.Fprintln(stderr, "parley --help says more.")
		return exitUsage
	}
	return exitError
}

// patience bounds how long a command keeps trying.
type patience struct {
	Timeout time.Duration `help:"How long to keep trying." default:"10s"`
}

func (p patience) context(s *session) (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.ctx, p.Timeout)
}

// with does work with a client, within the time.
func (p patience) with(s *session, work func(ctx context.Context, client *parley.Client) error) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := p.context(s)
	defer cancel()
	return work(ctx, client)
}

// client connects with the address and the token that flags, environment and files give.
func (s *session) client(opts ...parley.Option) (*parley.Client, error) {
	access, err := s.access()
	if err != nil {
		return nil, err
	}
	opts = append(opts, parley.WithToken(access.token))
	if access.roots != nil {
		opts = append(opts, parley.WithTLS(&tls.Config{RootCAs: access.roots, MinVersion: tls.VersionTLS12}))
	}
	client, err := parley.New(access.addr, opts...)
	if err != nil {
		return nil, usageError{err}
	}
	return client, nil
}
