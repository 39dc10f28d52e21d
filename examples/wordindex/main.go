// Command wordindex indexes the words of IRC logs through a work queue: every line is a job. A
// producer stores the jobs in a topic. Any number of workers, a group of strict order, handle them
// and write the index into their own Redis. A judge computes the same index from the files and
// compares the two.
//
// Some of the jobs are difficult: a tenth is delayed, a twentieth fails twice, and a few are
// poison, which fails until the workers run with --fixed. Regardless of what happens to the
// workers, in the end the index contains each line exactly once, the lines of each nick were
// indexed in their order, and the dead letters are exactly the poison.
//
//	go run ./examples/wordindex work &
//	go run ./examples/wordindex produce DIR
//	go run ./examples/wordindex verify DIR
//
// # The order of a nick's lines
//
// The nick is the job's key, so a nick's jobs are in one partition. In a group of strict order the
// next one is not delivered before the previous one is settled. Their order is the one in which
// they appeared in the partition:
//
//   - A job without delay appears when it is produced. So those of a nick are in the order of
//     the files.
//   - A delayed job appears when it is due, or a little later, never before. It comes after all
//     lines of the nick until then, and after those that were due before it.
//   - A job that fails keeps its position while it is retried, and all later jobs of the nick
//     wait. A job that becomes a dead letter loses its position.
//
// The judge checks all of this. When all jobs are settled, a second consumer group, the witness,
// reads the same topic with one undisturbed worker. The order in which it receives a nick's jobs
// must be the order in which they were indexed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// The consumer groups of the topic.
const (
	indexers = "index"
	witness  = "witness"
)

type commands struct {
	Addr  string `env:"PARLEY_ADDR" default:"127.0.0.1:8080" help:"The server, or the nodes of a fleet, comma-separated."`
	Token string `env:"PARLEY_TOKEN" help:"A token with the actions produce and consume and the capability admin."`
	// TokenURL replaces Token, so that a worker can run for longer than a token is valid.
	TokenURL string `env:"WORDINDEX_TOKEN_URL" name:"token-url" placeholder:"URL" help:"Get such tokens from here instead, a new one whenever one has expired."`
	Topic    string `default:"lines" help:"The topic. It is created if it does not exist."`
	Redis    string `env:"WORDINDEX_REDIS" default:"127.0.0.1:6380" help:"The Redis that holds the index: any one, host:port or the path of a socket."`

	// Hard must be the same for all commands.
	Hard hard `embed:"" prefix:"hard-"`

	Produce produceCommand `cmd:"" help:"Put a job for each line into the topic. May be repeated: no line gets a second job."`
	Work    workCommand    `cmd:"" help:"Index lines, until interrupted. Any number of workers share the topic."`
	Replay  replayCommand  `cmd:"" help:"Replay the dead letters."`
	Verify  verifyCommand  `cmd:"" help:"Compare the index with the files, once all jobs are settled."`
}

// app contains what all commands use.
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

// execute parses the arguments and runs the command that they name. Its result is written to out.
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
	login := parley.WithToken(flags.Token)
	if flags.TokenURL != "" {
		login = parley.WithTokenSource(func(ctx context.Context) (string, error) { return tokenFrom(ctx, flags.TokenURL) })
	}
	client, err := parley.New(flags.Addr, login, parley.WithLogger(log))
	if err != nil {
		return err
	}
	defer client.Close()
	store := redis.NewClient(&redis.Options{Addr: flags.Redis, ContextTimeoutEnabled: true})
	defer store.Close()
	return command.Run(&app{ctx: ctx, out: out, flags: &flags, client: client, admin: queue.NewAdmin(client), redis: store})
}

// tokenFrom gets a new token from a URL, whose answer is the token.
func tokenFrom(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	token, err := io.ReadAll(io.LimitReader(resp.Body, 10_000))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("get a token: %s", resp.Status)
	}
	return string(token), err
}

// printf writes a line. It ignores errors of the output: the exit code reports the result too.
func (a *app) printf(format string, args ...any) { _, _ = fmt.Fprintf(a.out, format+"\n", args...) }

// retries is the policy of the groups. Each worker that dies with a job uses up one of its
// attempts. There must be more attempts than workers that die in a row.
var retries = &queue.RetryPolicy{
	MaxAttempts: new(int32(10)), MinBackoff: durationpb.New(20 * time.Millisecond), MaxBackoff: durationpb.New(time.Second),
}

// prepare creates the topic and its groups, unless they exist. It creates the witness first:
// messages that every group has settled are dropped, so a group that was created later would miss
// them.
func (a *app) prepare() error {
	_, err := a.admin.CreateTopic(a.ctx, &queue.Topic{
		Name: a.flags.Topic, Partitions: 8,
		// The command produce can be repeated for this long without storing a line's job twice.
		IdempotencyWindow: durationpb.New(24 * time.Hour),
	})
	if err != nil && !errors.Is(err, parley.ErrTopicExists) {
		return err
	}
	for _, group := range []string{witness, indexers} {
		_, err := a.admin.CreateGroup(a.ctx, a.flags.Topic, &queue.Group{
			Name: group, Order: parleyv1.DeliveryOrder_DELIVERY_ORDER_STRICT, Retry: retries, Start: queue.FromBeginning(),
		})
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
			a.printf("%d dead letters replayed", total)
			return nil
		}
	}
}
