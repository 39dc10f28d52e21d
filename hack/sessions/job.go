package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/hack/internal/verdict"
	"github.com/parleyhq/parley/internal/rig"
	parley "github.com/parleyhq/parley/sdk/go"
)

// job is one run.
type job struct {
	*flags
	verdict.Findings

	out      io.Writer
	began    time.Time
	script   *script
	oracle   *oracle
	fleet    *rig.Fleet
	clients  *clients
	faults   *faults
	audience *audience
	replay   *replay
	// finals are the messages of each session in the end.
	finals map[string][]*parley.Message
}

// run runs everything and writes the verdict to out, as its last line unless it is an error.
func run(ctx context.Context, f *flags, options rig.Options, out io.Writer) (*job, error) {
	j := &job{flags: f, out: out, began: time.Now()}
	if f.Seed == 0 {
		f.Seed = rand.Uint64()
	}
	err := j.read()
	if err == nil {
		err = j.play(ctx, options)
	}
	if err = errors.Join(j.Problems(), err); err != nil {
		return j, fmt.Errorf("verdict: failed after %.0f s, seed %d: %s", time.Since(j.began).Seconds(), f.Seed,
			strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	messages := 0
	for _, list := range j.finals {
		messages += len(list)
	}
	_, err = fmt.Fprintf(out, "verdict: ok: %d days, %d sessions, %d messages; %d answers completed, %d cancelled, %d whose generators were killed "+
		"are failed; every list, subscriber and cache is right; seed %d; %.0f s\n", len(j.script.days), len(j.script.sessions), messages,
		j.Total("answers completed"), j.Total("answers cancelled"), j.Total("generators killed"), f.Seed, time.Since(j.began).Seconds())
	return j, err
}

// sayf writes a line with the time. Write errors are ignored; the exit code has the result.
func (j *job) sayf(format string, args ...any) {
	_, _ = fmt.Fprintf(j.out, "%4.0f s  "+format+"\n", append([]any{time.Since(j.began).Seconds()}, args...)...)
}

func (j *job) read() (err error) {
	if j.script, err = readScript(j.Data, j.Days, j.Quiet, j.Seed); err != nil {
		return err
	}
	for _, d := range j.script.days {
		for i := range d.steps {
			if a := d.steps[i].answer; a != nil && chance(j.Seed, "late", a.session.id+a.id)%100 < uint64(j.Late) { //nolint:gosec // a percentage
				a.late = 1 + len(a.pieces)/2
			}
		}
	}
	paths := make([]string, len(j.script.days))
	for i, d := range j.script.days {
		paths[i] = filepath.Join(j.Data, d.file)
	}
	j.oracle, err = newOracle(paths)
	return err
}

func (j *job) play(ctx context.Context, o rig.Options) (err error) {
	steps, span := 0, time.Duration(0)
	for _, d := range j.script.days {
		steps += len(d.steps)
		span += d.span
	}
	j.sayf("seed %d: %d days with %d sessions, %d lines and %d answers, at %g times the logs' speed; %.0f minutes, %d days at a time", j.Seed,
		len(j.script.days), len(j.script.sessions), steps-j.script.answers, j.script.answers, j.Speed, span.Minutes()/j.Speed, j.Lanes)
	o.Env = append(o.Env, "PARLEY_LOG_LEVEL=warn", "PARLEY_SHARDS=4", "PARLEY_SESSIONS_OPEN_TIMEOUT="+j.OpenTimeout.String())
	if j.fleet, err = rig.Start(ctx, o); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.fleet.Close()) }()
	j.sayf("the fleet runs: %d nodes", len(j.fleet.Nodes()))
	if j.clients, err = newClients(j.fleet); err != nil {
		return err
	}
	defer j.clients.close()
	if j.Watch {
		if err := j.sayPage(); err != nil {
			return err
		}
	}
	j.faults = &faults{fleet: j.fleet, say: j.sayf}
	j.audience = newAudience(ctx, &j.Findings, j.Seed, j.Follow, j.clients, j.faults)
	defer j.audience.close()
	if err := j.underFaults(ctx, steps); err != nil {
		return err
	}
	if err := j.settled(ctx); err != nil {
		return err
	}
	j.audience.close()
	if err := j.verify(ctx); err != nil {
		return err
	}
	j.checkRun()
	return nil
}

// underFaults replays all days while nodes are killed and Redis is flushed.
func (j *job) underFaults(ctx context.Context, steps int) error {
	j.replay = &replay{
		flags: j.flags, Findings: &j.Findings, script: j.script, clients: j.clients, audience: j.audience, faults: j.faults,
	}
	work, working := errgroup.WithContext(ctx)
	reporting, stop := context.WithCancel(working)
	work.Go(func() error {
		defer stop()
		return j.replay.run(working)
	})
	work.Go(func() error {
		for verdict.Sleep(reporting, 30*time.Second) == nil {
			j.sayf("%d of %d messages", j.replay.done.Load(), steps)
			if err := j.Problems(); err != nil {
				j.sayf("wrong so far: %v", err)
			}
		}
		return nil
	})
	if !j.Calm {
		work.Go(func() error { return j.injectFaults(working, steps) })
	}
	if err := work.Wait(); err != nil {
		return err
	}
	j.sayf("all lines are replayed, up to %.1f s late; the slowest call took %.1f s, %s", j.replay.late.Seconds(), j.replay.slowest.Seconds(),
		j.replay.what)
	return nil
}

// injectFaults injects the faults, one after another, at shares of the work.
func (j *job) injectFaults(ctx context.Context, steps int) error {
	for _, f := range []struct {
		at float64
		do func(ctx context.Context) error
	}{
		{0.05, func(ctx context.Context) error { return j.faults.flush(ctx, j.ended) }},
		{0.3, func(ctx context.Context) error { return j.faults.kill(ctx, 1, 10*time.Second) }},
		{0.7, func(ctx context.Context) error { return j.faults.kill(ctx, 2, 0) }},
	} {
		for float64(j.replay.done.Load()) < f.at*float64(steps) {
			if err := verdict.Sleep(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
		if err := f.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkRun checks that the run was worth something: that subscribers saw texts grow.
func (j *job) checkRun() {
	j.sayf("%s", j.Counts())
	if ends, some := j.Total("ends of open messages"), j.Total("ends after some of the text"); 2*some < ends {
		j.Wrongf("of %d ends that subscribers got, only %d came after some of the text", ends, some)
	}
	live, late := j.audience.snapshot()
	followed := 0
	for _, s := range live {
		followed += len(s.channels)
	}
	j.sayf("%d live subscribers followed %d sessions; %d late ones", len(live), followed, len(late))
	slowest, n, length, written := time.Duration(0), 0, 0, 0
	for _, a := range j.audience.answers {
		if a.fate != abandoned {
			continue
		}
		n, written = n+1, written+a.written
		if !a.listed {
			slowest = max(slowest, a.ended.Sub(a.died))
		}
		for _, m := range j.finals[a.session.id] {
			if m.GetMsgId() == a.msgID {
				length += len(m.GetContent())
			}
		}
	}
	j.sayf("%d abandoned answers have %d of %d bytes, and were closed within %.0f s", n, length, written, slowest.Seconds())
	if 2*length < written {
		j.Wrongf("the abandoned answers have %d of %d bytes that were written", length, written)
	}
}

// sayPage writes the address of the page of the user with the most answers.
func (j *job) sayPage() error {
	answers := make(map[*session]int)
	for _, d := range j.script.days {
		for i := range d.steps {
			if d.steps[i].answer != nil {
				answers[d.steps[i].session]++
			}
		}
	}
	most := slices.MaxFunc(j.script.sessions, func(a, b *session) int { return cmp.Compare(answers[a], answers[b]) })
	token, err := j.fleet.Token(most.owner, ofUsers)
	if err != nil {
		return err
	}
	j.sayf("%s has %d answers: http://%s/assistant#token=%s", most.id, answers[most], j.fleet.Addresses()[0], token)
	return nil
}
