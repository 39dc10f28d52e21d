// Command wordindex runs examples/wordindex, the main use of work queues, on real logs and under
// faults. It runs two nodes with three workers spread over them. Every few seconds it kills and
// restarts one worker, and it repeatedly stops one past its ack timeout and continues it, until all
// jobs are done. It also kills the producer once, after about half of the jobs, and restarts it.
// Then the index must equal one built from the files, the order of every nick must be kept, and the
// dead letters must be exactly the poison messages. After these have been replayed to fixed
// workers, the index must be complete and no dead letter left.
//
// With --deploys it instead runs jobs of up to a minute on 24 workers with short-lived tokens while
// the fleet is deployed twice, Redis is stopped and one worker is killed. Each delivery is
// recorded. The index must be exact, and only jobs in flight on the killed worker may have been
// delivered more than once. The last line is the verdict. `make wordindex DATA=...` runs that.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/clients/cli/irclog"
	"github.com/parleyhq/parley/hack/internal/command"
	"github.com/parleyhq/parley/internal/rig"
	parley "github.com/parleyhq/parley/sdk/go"
	queue "github.com/parleyhq/parley/sdk/go/queue"
)

// The topic and the consumer group that examples/wordindex uses.
const (
	topic = "lines"
	group = "index"
)

var errNoGroup = errors.New("no group " + group)

type flags struct {
	Data    string        `arg:"" type:"existingdir" help:"Directory of *.raw.txt logs."`
	Binary  string        `type:"existingfile" help:"The parleyd to run; built from this source if empty."`
	Program string        `type:"existingfile" required:"" help:"The examples/wordindex to run."`
	Deploys bool          `help:"Run long jobs while the fleet is deployed; of the flags below only --short and --seed count."`
	Short   bool          `help:"With --deploys: a run of about two minutes on the first days."`
	Workers int           `default:"3" help:"How many workers."`
	Rate    int           `default:"250" help:"How many jobs to produce a second; 0 is as fast as can be."`
	Takes   time.Duration `default:"50ms" help:"How long each job takes on top of the indexing."`
	Ack     time.Duration `default:"2s" help:"The workers' ack timeout."`
	Kill    time.Duration `default:"3s" help:"The time between kills, more or less."`
	Stop    time.Duration `default:"5s" help:"The time from the end of a stop to the next stop, more or less."`
	Seed    uint64        `help:"Of the choice of victims and times; 0 is a new one."`
	Wait    time.Duration `default:"30m" help:"How long all of it may take."`
}

func main() {
	var f flags
	result := ""
	code := command.Run(context.Background(), "wordindex", os.Args[1:], &f, func(ctx context.Context) (err error) {
		if f.Deploys {
			sc := whole
			if f.Short {
				sc = short
			}
			// The watchdog ends even a harness that hangs. Its processes end with it.
			time.AfterFunc(sc.limit+time.Minute, func() {
				sayf(os.Stdout, "verdict: FAILED: it hangs, a minute after the limit of %s", sc.limit)
				os.Exit(1)
			})
			result, err = deploys(ctx, &f, &sc, rig.Options{Binary: f.Binary}, os.Stdout)
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, f.Wait)
		defer cancel()
		_, err = job(ctx, &f, rig.Options{Nodes: 2, Binary: f.Binary}, os.Stdout)
		return err
	})
	if result != "" {
		sayf(os.Stdout, "%s", result)
	}
	os.Exit(code)
}

// show is one run of this command.
type show struct {
	*flags

	out     io.Writer
	dir     string
	jobs    int
	addrs   []string
	env     []string
	workers []*worker
	client  *parley.Client
	rand    *rand.Rand
	counts  faults
}

// job runs everything on a new fleet, and writes the progress to out. It returns the counts of the
// faults.
func job(ctx context.Context, f *flags, options rig.Options, out io.Writer) (counts *faults, err error) {
	if f.Seed == 0 {
		f.Seed = rand.Uint64()
	}
	jobs, err := countJobs(f.Data)
	if err != nil {
		return nil, err
	}
	sayf(out, "%d jobs, %d workers, seed %d", jobs, f.Workers, f.Seed)
	fleet, err := rig.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fleet.Close()) }()
	index, err := rig.StartRedis(ctx, rig.RedisConfig{Dir: filepath.Join(fleet.Dir, "index"), Addr: filepath.Join(fleet.Dir, "index.sock")})
	if err != nil {
		return nil, err
	}
	defer index.Kill()
	token, err := fleet.Token("wordindex", nil)
	if err != nil {
		return nil, err
	}
	client, err := parley.New(strings.Join(fleet.Addresses(), ","), parley.WithToken(token), parley.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	s := &show{
		flags: f, out: out, dir: fleet.Dir, jobs: jobs, addrs: fleet.Addresses(), client: client,
		env:  []string{"PARLEY_TOKEN=" + token, "WORDINDEX_REDIS=" + index.Addr()},
		rand: rand.New(rand.NewPCG(f.Seed, 0)),
	}
	return &s.counts, s.play(ctx)
}

func countJobs(dir string) (n int, err error) {
	files, err := irclog.Files(dir)
	if err != nil {
		return 0, err
	}
	for _, path := range files {
		lines, err := irclog.Read(path)
		if err != nil {
			return 0, err
		}
		for _, l := range lines {
			if l.IsMessage() {
				n++
			}
		}
	}
	return n, nil
}

// play runs everything after the fleet, the index's Redis and the client were started.
func (s *show) play(ctx context.Context) error {
	began := time.Now()
	defer func() {
		for _, w := range s.workers {
			w.program.Kill()
		}
	}()
	if err := s.startWorkers(); err != nil {
		return err
	}
	if err := s.underFaults(ctx); err != nil {
		return errors.Join(err, s.lastWords())
	}
	took := time.Since(began)
	c := &s.counts
	s.sayf("all done after %.1f s: %d kills of a worker and %d of the producer, %d stops past the ack timeout",
		took.Seconds(), c.kills, c.producerKills, c.stops)
	if err := s.command(ctx, "verify", s.Data); err != nil {
		return err
	}
	if err := s.restartWorkers(ctx, "--fixed"); err != nil {
		return err
	}
	s.sayf("workers fixed")
	if err := s.command(ctx, "replay"); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	if err := s.command(ctx, "verify", "--fixed", s.Data); err != nil {
		return err
	}
	s.sayf("everything is as it must be, after %.1f s", time.Since(began).Seconds())
	return nil
}

// underFaults produces and works while workers are killed and stopped, until all jobs are done.
func (s *show) underFaults(ctx context.Context) error {
	work, working := errgroup.WithContext(ctx)
	breaking, calm := context.WithCancel(working)
	work.Go(func() error { return s.killWorkers(breaking) })
	work.Go(func() error { return s.stopWorkers(breaking) })
	work.Go(func() error {
		defer calm()
		if err := s.produce(working); err != nil {
			return err
		}
		return s.settle(working)
	})
	return work.Wait()
}

// command runs a command of examples/wordindex until it exits, and prints its output.
func (s *show) command(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, s.Program, args...) //nolint:gosec // our own program
	cmd.Env = append(os.Environ(), append(s.env, "PARLEY_ADDR="+strings.Join(s.addrs, ","))...)
	var complaints strings.Builder
	cmd.Stdout, cmd.Stderr = indented{s.out}, &complaints
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", args[0], err, complaints.String())
	}
	return nil
}

// indented writes lines with an indent. Each call must write whole lines, as the program does.
type indented struct{ to io.Writer }

func (w indented) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		if _, err := io.WriteString(w.to, "  "+line); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// settle waits until the group has no jobs left. Meanwhile it reports the progress.
func (s *show) settle(ctx context.Context) error {
	for {
		p, err := s.progress(ctx)
		if err == nil && p.left == 0 {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%w, with %d jobs left", context.Cause(ctx), p.left), err)
		}
	}
}

// progress is the numbers of jobs in the topic: produced, and in the group acked, dead or left.
type progress struct{ produced, acked, dead, left int64 }

func (s *show) progress(ctx context.Context) (progress, error) {
	p, err := countProgress(ctx, s.client)
	if err == nil {
		s.tell(p)
	}
	return p, err
}

func countProgress(ctx context.Context, c *parley.Client) (progress, error) {
	total, _, err := queue.NewAdmin(c).Stats(ctx, topic)
	if err != nil {
		return progress{}, err
	}
	for _, g := range total.GetGroups() {
		if g.GetGroup() == group {
			return progress{
				produced: total.GetProduced(), acked: g.GetAcked(), dead: g.GetDead(),
				left: total.GetScheduled() + g.GetWaiting() + g.GetRunning() + g.GetRetrying(),
			}, nil
		}
	}
	return progress{}, errNoGroup
}

// tellEvery is the time between two reports of the progress.
const tellEvery = 10 * time.Second

func (s *show) tell(p progress) {
	if time.Since(s.counts.told) >= tellEvery {
		s.counts.told = time.Now()
		s.sayf("%d jobs produced: %d indexed, %d given up, %d to do", p.produced, p.acked, p.dead, p.left)
	}
}

// sayf writes a line. Write errors are ignored; the exit code has the result.
func sayf(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }

func (s *show) sayf(format string, args ...any) { sayf(s.out, format, args...) }
