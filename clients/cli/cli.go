// Package cli implements Parley's command line. It sends, follows, reads and imports messages,
// manages channels and their members, follows presence, works with queues, erases users, shows the
// server's version, limits and features, and creates tokens for development.
package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/alecthomas/kong"

	"github.com/parleyhq/parley/internal/access"
	"github.com/parleyhq/parley/internal/program"
	parley "github.com/parleyhq/parley/sdk/go"
)

// The exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// commands declares the flags and commands. kong builds the parser from it.
type commands struct {
	Addr    string `help:"Server: host:port or URL; comma-separated for a fleet. Default: $PARLEY_ADDR, else the address that a local 'parleyd dev' wrote, else 127.0.0.1:8080." aliases:"server" placeholder:"ADDR,..."`
	Token   string `help:"Bearer token. Default: $PARLEY_TOKEN, else the token that a local 'parleyd dev' wrote." placeholder:"TOKEN"`
	CAFile  string `name:"ca-file" help:"PEM file with the certificates to trust. Default: $PARLEY_CA_FILE, else the system's and that of a local 'parleyd dev --tls'." placeholder:"FILE"`
	DataDir string `help:"Data directory of a local 'parleyd dev'." default:"data" placeholder:"DIR"`
	JSON    bool   `name:"json" help:"Write JSON objects, one per line."`

	Version kong.VersionFlag `help:"Print the version."`

	Timeout time.Duration `help:"Deadline of each call, including its retries; 0 means none. It does not apply to the streams of 'tail', 'presence connect', 'presence watch', 'session chat' and 'queue consume', nor to 'import', which has --retry-for." default:"30s"`

	Send     sendCommand     `cmd:"" help:"Send a message."`
	Tail     tailCommand     `cmd:"" help:"Follow channels live, one line per message."`
	History  historyCommand  `cmd:"" help:"Read a channel's messages."`
	Channel  channelCommand  `cmd:"" help:"Create channels, change and list their members, list your own channels."`
	Read     readCommand     `cmd:"" help:"Mark a channel as read up to a sequence number."`
	Typing   typingCommand   `cmd:"" help:"Notify a channel's subscribers that you are typing."`
	Session  sessionCommand  `cmd:"" help:"Sessions of a user with an assistant: append messages, show, list and delete them."`
	Presence presenceCommand `cmd:"" help:"Be online, follow who is online, and list the users that are."`
	Queue    queueCommand    `cmd:"" help:"Work queues: create topics, produce, consume, inspect them, replay dead letters."`
	Key      keyCommand      `cmd:"" help:"Create, list, rotate and revoke API keys, the credentials of servers."`
	Admin    adminCommand    `cmd:"" help:"Erase users, revoke tokens, and end streams."`
	Import   importCommand   `cmd:"" help:"Import IRC logs into a channel. A repeated import stores no message twice."`
	Info     infoCommand     `cmd:"" help:"Show the server's version, limits and features."`
	SignOut  signOutCommand  `cmd:"" name:"sign-out" help:"Revoke your token, and all others of the same login."`
	Mint     tokenCommand    `cmd:"" name:"token" help:"Mint a token for a local 'parleyd dev'."`
	Bench    benchCommand    `cmd:"" passthrough:"" help:"Benchmark a server. Runs parley-bench, a separate program."`
}

// session is the environment of a command: its streams, its context and the global flags.
type session struct {
	ctx            context.Context //nolint:containedctx // kong calls commands with one bound value
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	flags          *commands
}

// usageError is an error in the arguments of the command.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Run executes the command line with args, the arguments after the program's name. It returns the
// exit code: 0 for success, 1 for an error, 2 for an error in the arguments. When ctx ends, the
// command is interrupted.
func Run(
	ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string,
) int {
	var flags commands
	finished := false
	parser, err := kong.New(&flags,
		kong.Name("parley"), kong.Description("Send, follow, read and import messages of a Parley server, and work with its queues."),
		kong.Writers(stdout, stderr), kong.Vars{"version": program.Version()},
		// kong exits after --help and --version. Only main may exit here, so parsing continues and
		// its result is ignored.
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
	if flags.Timeout < 0 {
		return fail(stderr, usagef("--timeout %s: must not be negative; 0 means no deadline", flags.Timeout))
	}
	ctx, cancel := withoutDeadline(ctx)
	defer cancel()
	s := &session{ctx: ctx, stdin: stdin, stdout: stdout, stderr: stderr, getenv: getenv, flags: &flags}
	if err := parsed.Run(s); err != nil {
		return fail(stderr, err)
	}
	return exitOK
}

// withoutDeadline returns a context that ends with ctx and has no deadline. The SDK applies
// --timeout only to calls whose context has no deadline.
func withoutDeadline(ctx context.Context) (context.Context, func()) {
	free, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	return free, func() {
		stop()
		end(nil)
	}
}

func fail(stderr io.Writer, err error) int {
	_, _ = fmt.Fprintf(stderr, "parley: %s\n", err)
	if _, ok := errors.AsType[usageError](err); ok {
		_, _ = fmt.Fprintln(stderr, "Run 'parley --help' for usage.")
		return exitUsage
	}
	return exitError
}

// with calls work with a client and closes the client afterwards. Each call of the client has the
// deadline of --timeout.
func (s *session) with(work func(ctx context.Context, client *parley.Client) error) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	return work(s.ctx, client)
}

// client returns a client with the address and the token of the flags, the environment or the
// files. Each of its calls has the deadline of --timeout, unless the call's context has one. opts
// come after the client's own.
func (s *session) client(opts ...parley.Option) (*parley.Client, error) {
	found, err := access.Find(access.Options{
		Addr: s.flags.Addr, Token: s.flags.Token, CAFile: s.flags.CAFile, DataDir: s.flags.DataDir, Getenv: s.getenv,
	})
	if err != nil {
		return nil, usageError{err}
	}
	opts = append([]parley.Option{
		parley.WithToken(found.Token), parley.WithCallTimeout(s.flags.Timeout), parley.WithLogger(slog.New(newRetryNotes(s.stderr))),
	}, opts...)
	if found.Roots != nil {
		opts = append(opts, parley.WithTLS(&tls.Config{RootCAs: found.Roots, MinVersion: tls.VersionTLS12}))
	}
	client, err := parley.New(found.Addr, opts...)
	if err != nil {
		return nil, usageError{err}
	}
	return client, nil
}
