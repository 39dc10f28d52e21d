package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/hack/internal/verdict"
	"github.com/parleyhq/parley/internal/rig"
)

// job is one run.
type job struct {
	*flags
	*journal

	out      io.Writer
	began    time.Time
	fleet    *rig.Fleet
	clients  *clients
	importer *importer
	audience *audience
	readers  []*reader
	memory   *memory
	finals   []*final
}

// run runs everything and writes the verdict to out, as its last line unless it is an error.
func run(ctx context.Context, f *flags, options rig.Options, out io.Writer) (*journal, error) {
	d, err := readDays(f.Data)
	if err != nil {
		return nil, err
	}
	j := &job{flags: f, journal: newJournal(d), out: out, began: time.Now()}
	err = j.play(ctx, options)
	if err = errors.Join(j.Problems(), err); err != nil {
		return j.journal, fmt.Errorf("verdict: failed after %.0f s: %s", time.Since(j.began).Seconds(), strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	_, err = fmt.Fprintf(out, "verdict: ok: %d messages of %d days, %d edits, %d recalls, %d changes of expired messages refused; "+
		"all subscribers, caches and pages are right, no call is beyond its budget%s; %.0f s\n", len(d.lines)-j.Total("lines sent last"), len(d.days),
		j.Total("edits"), j.Total("recalls"), j.Total("changes of expired messages"), map[bool]string{true: ", memory is flat"}[f.Sample > 0],
		time.Since(j.began).Seconds())
	return j.journal, err
}

// sayf writes a line with the time. Write errors are ignored; the exit code has the result.
func (j *job) sayf(format string, args ...any) {
	_, _ = fmt.Fprintf(j.out, "%4.0f s  "+format+"\n", append([]any{time.Since(j.began).Seconds()}, args...)...)
}

func (j *job) play(ctx context.Context, o rig.Options) (err error) {
	j.sayf("%d days with %d messages in %d channels, of which %d each are retained", len(j.days.days), len(j.days.lines), len(j.days.channels),
		j.Retain)
	if err := j.start(ctx, o); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.fleet.Close()) }()
	if j.clients, err = newClients(j.fleet); err != nil {
		return err
	}
	defer j.clients.close()
	if err := j.checkClocks(ctx); err != nil {
		return err
	}
	if j.memory, err = newMemory(j.fleet); err != nil {
		return err
	}
	defer j.memory.close(context.WithoutCancel(ctx))
	j.audience = newAudience(ctx, j.journal, j.clients)
	defer j.audience.close()
	if err := j.underFaults(ctx); err != nil {
		return err
	}
	return j.verify(ctx)
}

// start starts the fleet, one of whose nodes has another clock.
func (j *job) start(ctx context.Context, o rig.Options) error {
	if !j.InTime {
		fast := j.Ahead
		if fast == "" {
			var err error
			if fast, err = rig.BuildAhead(ctx, ahead, "./server/cmd/parleyd", "parleyd-ahead"); err != nil {
				return err
			}
		}
		o.Binaries = map[int]string{fastNode: fast}
	}
	o.Env = append(o.Env, "PARLEY_LOG_LEVEL=warn", "PARLEY_SHARDS=4", "PARLEY_NATS_MAX_BYTES="+strconv.Itoa(streamBytes),
		"PARLEY_RETENTION_MAX_MESSAGES="+strconv.Itoa(j.Retain))
	var err error
	if j.fleet, err = rig.Start(ctx, o); err != nil {
		return err
	}
	j.sayf("the fleet runs: %d nodes", len(j.fleet.Nodes()))
	return limitMongo(ctx, j.fleet)
}

// underFaults imports, edits and recalls everything while engines and a node are away.
func (j *job) underFaults(ctx context.Context) error {
	j.importer = &importer{journal: j.journal, clients: j.clients, editors: j.Editors}
	work, working := errgroup.WithContext(ctx)
	background, stop := context.WithCancel(working)
	defer stop()
	var beside sync.WaitGroup
	for n := range j.fleet.Nodes() {
		r := &reader{
			journal: j.journal, clients: j.clients, node: n, rand: rand.New(rand.NewPCG(uint64(n), 0)), oldest: make([]int64, len(j.days.channels)),
		}
		j.readers = append(j.readers, r)
		beside.Go(func() { r.run(background) })
	}
	if j.Sample > 0 {
		beside.Go(func() { j.memory.watch(background, j.Sample, j.progress) })
	}
	beside.Go(func() { j.report(background) })
	work.Go(func() error { return j.importer.run(working) })
	work.Go(func() error { return j.faults(working) })
	err := work.Wait()
	stop()
	beside.Wait()
	if err != nil {
		return err
	}
	j.sayf("all lines are complete, except for the last changes of %d", len(j.importer.late))
	return j.importer.finish(ctx)
}

// faults injects the faults, one after another. The slow subscriber takes nothing between a quarter
// of the work and its end.
func (j *job) faults(ctx context.Context) error {
	if err := j.outage(ctx); err != nil {
		return err
	}
	for _, step := range []struct {
		at float64
		do func(ctx context.Context) error
	}{
		{0.25, func(context.Context) error { j.audience.slow.pause(); return nil }},
		{0.3, j.killPrimary},
	} {
		for j.progress() < step.at {
			if err := verdict.Sleep(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
		if err := step.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// progress returns the share of the lines that are complete.
func (j *job) progress() float64 { return float64(j.importer.done.Load()) / float64(len(j.days.lines)) }

// report writes the progress.
func (j *job) report(ctx context.Context) {
	for verdict.Sleep(ctx, 30*time.Second) == nil {
		j.sayf("%d of %d lines are complete", j.importer.done.Load(), len(j.days.lines))
		if err := j.Problems(); err != nil {
			j.sayf("wrong so far: %v", err)
		}
	}
}

// verify checks everything after the import.
func (j *job) verify(ctx context.Context) error {
	before := j.Total("lines sent again")
	if err := j.importer.repeatAll(ctx); err != nil {
		return err
	}
	j.sayf("all %d lines sent again are duplicates", j.Total("lines sent again")-before)
	db, err := j.database()
	if err != nil {
		return err
	}
	defer func() { _ = db.Client().Disconnect(context.WithoutCancel(ctx)) }()
	oldest, err := j.sendLast(ctx, db)
	if err != nil {
		return err
	}
	j.audience.slow.resume()
	if err := j.audience.complete(ctx); err != nil {
		return err
	}
	j.sayf("all subscribers have reached the ends of the logs")
	// One that begins when most has expired.
	j.audience.add(&subscriber{name: "a subscriber from the beginning", addrs: j.fleet.Addresses(), dial: j.clients.dial})
	if err := j.audience.complete(ctx); err != nil {
		return err
	}
	j.audience.close()
	// A page may lack what was acknowledged a second before.
	if err := verdict.Sleep(ctx, 2*freshness); err != nil {
		return err
	}
	for c := range j.days.channels {
		j.finals = append(j.finals, j.settled(c, oldest[c]))
	}
	for _, f := range j.finals { // completes the journal
		if err := j.checkStore(ctx, db, f); err != nil {
			return err
		}
	}
	for _, f := range j.finals {
		j.sayf("%s: entries %d to %d, %d messages of %d", f.name, f.oldest, f.head, len(f.messages), f.counts[f.head])
		if err := j.verifyChannel(ctx, f); err != nil {
			return err
		}
	}
	return j.verifyRest(ctx)
}

// verifyChannel compares what is known of a channel everywhere.
func (j *job) verifyChannel(ctx context.Context, f *final) error {
	j.checkRetained(f)
	for _, s := range j.audience.all {
		s.check(f)
	}
	for n := range j.fleet.Nodes() {
		if err := j.checkPages(ctx, n, f); err != nil {
			return err
		}
	}
	return j.checkCache(ctx, f)
}

// verifyRest checks what was read meanwhile, the event stream, the memory and the costs.
func (j *job) verifyRest(ctx context.Context) error {
	for _, r := range j.readers {
		r.checkCopies()
	}
	gaps := 0
	for _, s := range j.audience.all {
		streams, events, n := s.figures()
		gaps += n
		j.sayf("%s: %d streams, %d events, %d gaps", s.name, streams, events, n)
	}
	if gaps == 0 && j.finals[0].oldest > 1 {
		j.Wrongf("no subscriber was told that history is gone")
	}
	bytes, dropped, err := j.checkStream(ctx)
	if err != nil {
		return err
	}
	j.sayf("the event stream has %.1f MiB, and has dropped %d events", float64(bytes)/mib, dropped)
	if j.Sample > 0 {
		text, err := j.memory.judge()
		j.sayf("memory from the middle to the end: %s", text)
		if err != nil {
			j.Wrongf("%v", err)
		}
	}
	p, err := newProbes(j)
	if err != nil {
		return err
	}
	text, err := p.run(ctx)
	if err = errors.Join(err, p.close(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	j.sayf("costs: %s", text)
	j.sayf("%s", j.Counts())
	return nil
}

// sendLast sends lines to each channel until all logs are trimmed and none was trimmed after its
// last line, and returns the boundaries by channel. Every cached set then reaches the end of its
// log: a trim deletes a set that has expired messages, and the next line builds it again.
func (j *job) sendLast(ctx context.Context, db *mongo.Database) ([]int64, error) {
	before, err := j.trimmed(ctx, db)
	for round := 1; err == nil; round++ {
		for c, name := range j.days.channels {
			l := line{id: fmt.Sprintf("last-%d-%s", round, name), from: "importer", content: "the last line", channel: c}
			i := j.newLine(l)
			receipts, err := j.importer.send(ctx, j.clients.all, int(i), int(i)+1)
			if err != nil {
				return nil, err
			}
			j.acked(i, 0, receipts[0].Receipt.MsgID, receipts[0].Receipt.Seq)
			j.Add("lines sent last", 1)
		}
		var after []int64
		if after, err = j.trimmed(ctx, db); err == nil && slices.Equal(before, after) {
			return after, nil
		}
		before = after
	}
	return nil, err
}
