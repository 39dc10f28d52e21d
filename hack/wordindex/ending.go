package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/parleyhq/parley/clients/cli/irclog"
	"github.com/parleyhq/parley/hack/internal/verdict"
	"github.com/parleyhq/parley/internal/rig"
	parley "github.com/parleyhq/parley/sdk/go"
)

// scale is the size of the run with deploys.
type scale struct {
	workers, rate int
	// files is the number of logs that are read; 0 is all.
	files int
	// longest jobs take longestTakes each.
	longest      int
	longestTakes time.Duration
	token        time.Duration // until a token expires
	away         time.Duration // how long Redis is stopped
	calm         time.Duration // between two faults
	limit        time.Duration // for all of it
}

// whole is the real size, and short the one for trying it out. The rates keep the producer busy
// until after the last fault.
var (
	whole = scale{
		workers: 24, rate: 100, longest: 24, longestTakes: time.Minute,
		token: 10 * time.Second, away: 30 * time.Second, calm: 20 * time.Second, limit: 30 * time.Minute,
	}
	short = scale{
		workers: 24, rate: 60, files: 3, longest: 6, longestTakes: 15 * time.Second,
		token: 10 * time.Second, away: 10 * time.Second, calm: 4 * time.Second, limit: 6 * time.Minute,
	}
)

// ending is one run with deploys.
type ending struct {
	*show
	verdict.Findings

	scale scale
	fleet *rig.Fleet
	index *rig.Redis
	// phases are the faults so far, and killed the runs of workers that were killed.
	phases []phase
	killed map[string]time.Time
}

// phase is a fault and the time when it began.
type phase struct {
	name  string
	began time.Time
}

// deploys runs a fleet, its workers and the faults, and writes the progress to out. It returns the
// text of the verdict, and an error if that is bad.
func deploys(ctx context.Context, f *flags, sc *scale, options rig.Options, out io.Writer) (string, error) {
	began := time.Now()
	if f.Seed == 0 {
		f.Seed = 1 + rand.Uint64N(1<<62)
	}
	ctx, cancel := context.WithTimeout(ctx, sc.limit)
	defer cancel()
	e := &ending{scale: *sc, killed: make(map[string]time.Time)}
	err := e.run(ctx, f, options, out)
	if err != nil {
		e.Wrongf("%v", err)
	}
	took := time.Since(began)
	if took > sc.limit {
		e.Wrongf("it took %s, and may take %s", took.Round(time.Second), sc.limit)
	}
	if err := e.Problems(); err != nil {
		text := strings.Join(strings.Fields(err.Error()), " ")
		return fmt.Sprintf("verdict: FAILED after %s, seed %d: %s", took.Round(time.Second), f.Seed, text), errors.New("the verdict is bad")
	}
	return fmt.Sprintf("verdict: ok after %s, seed %d: the index is exact, and only jobs in flight on a killed worker were delivered more than once (%s)",
		took.Round(time.Second), f.Seed, e.Counts()), nil
}

func (e *ending) run(ctx context.Context, f *flags, options rig.Options, out io.Writer) (err error) {
	fleet, err := rig.Start(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fleet.Close()) }()
	index, err := rig.StartRedis(ctx, rig.RedisConfig{Dir: filepath.Join(fleet.Dir, "index"), Addr: filepath.Join(fleet.Dir, "index.sock")})
	if err != nil {
		return err
	}
	defer index.Kill()
	// Workers and producer get their tokens where users of an application would: from its login.
	login := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		token, err := rig.Token(fleet.Secret(), "wordindex", e.scale.token, nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		e.Add("tokens minted", 1)
		_, _ = io.WriteString(w, token)
	}))
	defer login.Close()
	token, err := fleet.Token("judge", nil)
	if err != nil {
		return err
	}
	client, err := parley.New(strings.Join(fleet.Addresses(), ","), parley.WithToken(token), parley.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer client.Close()
	own := *f
	own.Workers, own.Rate = e.scale.workers, e.scale.rate
	if own.Data, err = firstFiles(f.Data, fleet.Dir, e.scale.files); err != nil {
		return err
	}
	jobs, err := countJobs(own.Data)
	if err != nil {
		return err
	}
	sayf(out, "%d jobs, %d workers on 8 partitions, seed %d: 1 %% of 1-5 s, %d of %s", jobs, own.Workers, f.Seed, e.scale.longest, e.scale.longestTakes)
	e.fleet, e.index = fleet, index
	e.show = &show{
		flags: &own, out: out, dir: fleet.Dir, jobs: jobs, addrs: fleet.Addresses(), client: client,
		env: []string{
			"WORDINDEX_TOKEN_URL=" + login.URL, "WORDINDEX_REDIS=" + index.Addr(), "WORDINDEX_HARD_SEED=" + strconv.FormatUint(f.Seed, 10),
			"WORDINDEX_HARD_JOBS=" + strconv.Itoa(e.scale.longest), "WORDINDEX_HARD_TAKES=" + e.scale.longestTakes.String(),
		},
		rand: rand.New(rand.NewPCG(f.Seed, 0)),
	}
	return e.play(ctx)
}

// firstFiles returns a directory with links to the first n logs of dir, or dir if n is 0.
func firstFiles(dir, in string, n int) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil || n == 0 {
		return dir, err
	}
	files, err := irclog.Files(dir)
	if err != nil {
		return "", err
	}
	few := filepath.Join(in, "data")
	if err := os.Mkdir(few, 0o700); err != nil {
		return "", err
	}
	for _, path := range files[:min(n, len(files))] {
		if err := os.Symlink(path, filepath.Join(few, filepath.Base(path))); err != nil {
			return "", err
		}
	}
	return few, nil
}

// play runs everything after the fleet, the index's Redis and the client were started.
func (e *ending) play(ctx context.Context) error {
	defer func() {
		for _, w := range e.workers {
			w.program.Kill()
		}
	}()
	// A worker sends something at least every few seconds, so a deploy or a Redis that is away is
	// no reason to lose a delivery.
	e.Ack, e.Takes = 30*time.Second, 0
	if err := e.startWorkers("--record"); err != nil {
		return err
	}
	// Some of the time is kept for the judgement of a run that does not end.
	work, cancel := context.WithTimeout(ctx, e.scale.limit*9/10-e.scale.limit/20)
	defer cancel()
	worked := e.work(work)
	if worked != nil {
		e.Wrongf("%v", worked)
	}
	if err := e.judge(ctx); err != nil {
		return err
	}
	if worked != nil {
		return nil // the index cannot be exact; its verification would only wait
	}
	if err := e.command(ctx, "verify", e.Data); err != nil {
		e.Wrongf("the index: %v", err)
	}
	return nil
}
