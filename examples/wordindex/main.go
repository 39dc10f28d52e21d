// Command wordindex indexes the words of IRC logs through a work queue: every line is a job. A producer puts the jobs into a
// topic of strict order, any number of workers take them and write the index into a Redis of their own, and a judge makes the
// same index straight from the files and compares.
//
// Some of the jobs are made difficult: a tenth is delayed, a twentieth fails twice, and a few are poison, which fails until the
// workers run with --fixed. Whatever happens to workers meanwhile, in the end each line is in the index exactly once, the lines
// of each nick were indexed in their order, and the dead letters are exactly the poison.
//
//	go run ./examples/wordindex work &
//	go run ./examples/wordindex produce DIR
//	go run ./examples/wordindex verify DIR
//
// # What the order of a nick is
//
// The nick is the job's key, so a nick's jobs are in one partition, and in a topic of strict order the next one is not handed out
// before the last one is done with. Their order is the one in which they appeared in the partition. A job that is not delayed
// appears when it is produced; so those of a nick are in the order of the files. A delayed one appears when it is due, or a little
// later, never before: after all that the nick said until then, and behind those that were due before it. A job that fails keeps
// its place while it is tried again, and all of the nick's later ones wait; one that is given up as a dead letter loses it.
//
// The judge takes none of that on trust. A second consumer group, the witness, reads the same topic when all is over, with a
// worker that nobody disturbs; the order in which it gets a nick's jobs must be the order in which they were indexed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/types/known/durationpb"

	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/queue"
)

// The consumer groups of the topic.
const (
	indexers = "index"
	witness  = "witness"
)

type commands struct {
	Addr  string `env:"PARLEY_ADDR" default:"127.0.0.1:8080" help:"The server, or a fleet's nodes with commas."`
	Token string `env:"PARLEY_TOKEN" required:"" help:"A token that may produce and consume, and is an operator's."`
	Topic string `default:"lines" help:"The topic. It is created if it does not exist."`
	Redis string `env:"WORDINDEX_REDIS" default:"127.0.0.1:6380" help:"The Redis that holds the index: any one, host:port or the path of a socket."`

	Produce produceCommand `cmd:"" help:"Put a job for each line into the topic. May be repeated: no line gets a second job."`
	Work    workCommand    `cmd:"" help:"Index lines, until interrupted. Any number of workers share the topic."`
	Replay  replayCommand  `cmd:"" help:"Replay the dead letters."`
	Verify  verifyCommand  `cmd:"" help:"Compare everything with the files, once all jobs are done with."`
}

// app is what a command runs with.
type app struct {
	ctx    context.Context //nolint:containedctx // kong calls commands with one bound value
	out    io.Writer
	flags  *commands
	client *parley.Client
	admin  *queue.Admin
	redis  *redis.Client
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := execute(ctx, args, os.Stdout); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "wordindex:", err)
		return 1
	}
	return 0
}

// execute runs one command.
func execute(ctx context.Context, args []string, out io.Writer) error {
	var flags commands
	parser, err := kong.New(&flags, kong.Name("wordindex"), kong.Description("Indexes the words of IRC logs through a work queue."))
	if err != nil {
		return err
	}
	command, err := parser.Parse(args)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	client, err := parley.New(flags.Addr, parley.WithToken(flags.Token), parley.WithLogger(log))
	if err != nil {
		return err
	}
	defer client.Close()
	store := redis.NewClient(&redis.Options{Addr: flags.Redis, ContextTimeoutEnabled: true})
	defer store.Close()
	return command.Run(&app{ctx: ctx, out: out, flags: &flags, client: client, admin: queue.NewAdmin(client), redis: store})
}

// sayf writes a line. What can't be told is lost, and the exit code tells the rest.
func (a *app) sayf(format string, args ...any) { _, _ = fmt.Fprintf(a.out, format+"\n", args...) }

// prepare creates the topic and its groups, unless they exist. It creates the witness first: messages that every group has settled are
// dropped, so a group that was created later would miss them.
func (a *app) prepare() error {
	_, err := a.admin.CreateTopic(a.ctx, &queue.Topic{
		Name: a.flags.Topic, Partitions: 8, StrictOrder: true,
		// For as long as somebody may repeat produce.
		IdempotencyWindow: durationpb.New(24 * time.Hour),
		// A worker that dies with a job counts as an attempt of it, so there must be more of them than workers die in a row.
		Retry: &queue.RetryPolicy{
			MaxAttempts: new(int32(10)), MinBackoff: durationpb.New(20 * time.Millisecond), MaxBackoff: durationpb.New(time.Second),
		},
	})
	if err != nil && !errors.Is(err, parley.ErrTopicExists) {
		return err
	}
	for _, group := range []string{witness, indexers} {
		err := a.admin.CreateGroup(a.ctx, a.flags.Topic, group, queue.FromBeginning())
		if err != nil && !errors.Is(err, parley.ErrGroupExists) {
			return err
		}
	}
	return nil
}

type replayCommand struct{}

// Run replays all dead letters, each once, however often the command is repeated.
func (c *replayCommand) Run(a *app) error {
	for total := int64(0); ; {
		n, more, err := a.admin.ReplayDeadLetters(a.ctx, a.flags.Topic, queue.DeadLettersOf(indexers))
		if err != nil {
			return err
		}
		if total += n; !more {
			a.sayf("%d dead letters replayed", total)
			return nil
		}
	}
}
