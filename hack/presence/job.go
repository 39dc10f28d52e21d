package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/parleyhq/parley/bench"
	"github.com/parleyhq/parley/internal/rig"
)

// parts is the number of checkpoints.
const parts = 10

// job is one run of this command.
type job struct {
	*flags

	out     io.Writer
	began   time.Time
	oracle  *oracle
	replay  *replay
	fleet   *rig.Fleet
	faults  *faults
	crowd   *crowd
	ledger  *ledger
	thieves *thieves
	views   *views
	readers *readers
	stalls  *stalls
	// usage is the CPU time of each node at the last checkpoint.
	usage   map[int]time.Duration
	results results
}

// results is what the run found.
type results struct {
	checkpoints, faults int
	// differing are the checkpoints that failed.
	differing []string
	// slowest is the longest time that the views took to agree at a checkpoint.
	slowest      time.Duration
	falseOffline []falseOffline
	// stalled is the longest time for which this process did not run.
	stalled time.Duration
	// offline is the median time from a sign-out to a watcher without faults, 0 if it is unknown.
	offline time.Duration
}

// run runs everything on a new fleet, and writes the progress and the verdict to out.
func run(ctx context.Context, f *flags, options rig.Options, out io.Writer) (*results, error) {
	for f.Seed == 0 {
		f.Seed = rand.Uint64()
	}
	j := &job{flags: f, out: out, began: time.Now(), usage: make(map[int]time.Duration), ledger: newLedger()}
	if err := j.read(); err != nil {
		return nil, err
	}
	if err := j.play(ctx, options); err != nil {
		// The verdict is one line.
		text := strings.ReplaceAll(err.Error(), "\n", "; ")
		return &j.results, fmt.Errorf("verdict: failed after %.0f s: %s", time.Since(j.began).Seconds(), text)
	}
	if err := j.verdict(); err != nil {
		return &j.results, err
	}
	j.sayf("verdict: ok: %d transitions and %d at the ends of the days, %d checkpoints, %d faults; nobody was shown offline wrongly or "+
		"left online; %s; %.0f s", transitions(j.replay.events), len(j.oracle.online(j.oracle.minutes)), j.results.checkpoints, j.results.faults,
		j.ledger.summary(), time.Since(j.began).Seconds())
	return &j.results, nil
}

// read reads the logs twice: as a replay, and by the oracle.
func (j *job) read() (err error) {
	if j.replay, err = readReplay(j.Data); err != nil {
		return err
	}
	j.replay.endDays(j.Seed)
	if j.oracle, err = newOracle(j.Data); err != nil {
		return err
	}
	users := 0
	for _, d := range j.replay.days {
		users += len(d.users)
	}
	want := j.oracle.count()
	j.sayf("%d days: %v", len(j.replay.days), want)
	if got := transitions(j.replay.events); got != want.transitions || users != want.users || j.replay.minutes != j.oracle.minutes {
		return fmt.Errorf("the replay has %d users and %d transitions in %d minutes, the independent reader %d, %d and %d",
			users, got, j.replay.minutes, want.users, want.transitions, j.oracle.minutes)
	}
	out := 0
	for _, e := range j.replay.events {
		if e.act == signsOut {
			out++
		}
	}
	if want := len(j.oracle.signedOut(j.Seed, j.oracle.minutes)); out != want {
		return fmt.Errorf("%d users sign out before their logs end in the replay, and %d for the independent reader", out, want)
	}
	j.sayf("%d users sign out before their logs end; --seed %d", out, j.Seed)
	return nil
}

// verdict returns an error that states everything that is wrong, or nil.
func (j *job) verdict() error {
	var wrong []string
	if n := len(j.results.differing); n > 0 {
		wrong = append(wrong, fmt.Sprintf("the views differ at %d checkpoints", n))
	}
	if n := len(j.results.falseOffline); n > 0 {
		wrong = append(wrong, fmt.Sprintf("users who were online were shown offline %d times", n))
	}
	wrong = append(wrong, j.ledger.problems()...)
	if j.results.offline >= offlineAfter {
		wrong = append(wrong, fmt.Sprintf("users who signed out were shown offline only after %.1f s (median)", j.results.offline.Seconds()))
	}
	if len(wrong) == 0 {
		return nil
	}
	if j.results.stalled > j.Lease/2 {
		wrong = append(wrong, fmt.Sprintf("the machine stalled for up to %.1f s, with a lease of %.1f s",
			j.results.stalled.Seconds(), j.Lease.Seconds()))
	}
	return fmt.Errorf("verdict: failed: %s", strings.Join(wrong, "; "))
}

// play starts the fleet, replays everything on it, and ends it.
func (j *job) play(ctx context.Context, options rig.Options) (err error) {
	options.Env = append(options.Env, "PARLEY_LOG_LEVEL="+j.Log, "PARLEY_PRESENCE_LEASE_TTL="+j.Lease.String())
	j.stalls = watchStalls()
	defer j.stalls.close()
	if j.fleet, err = rig.Start(ctx, options); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.fleet.Close()) }()
	token, err := j.fleet.Token(watcher, nil)
	if err != nil {
		return err
	}
	j.faults = &faults{fleet: j.fleet, stop: j.Stop, lease: j.Lease, away: j.Away}
	j.thieves = newThieves(j.fleet.Addresses(), j.ledger, j.faults)
	defer j.thieves.close()
	j.crowd = newCrowd(j.fleet, j.replay, j.faults, j.thieves)
	j.crowd.seed, j.crowd.breaks = j.Seed, j.Break
	defer j.crowd.close()
	if j.readers, err = newReaders(j.crowd, token); err != nil {
		return err
	}
	defer j.readers.close()
	if err := createChannels(ctx, j.readers.nodes[0], j.replay.days); err != nil {
		return err
	}
	j.faults.createTopic = func(ctx context.Context) error { return createTopic(ctx, j.thieves.nodes[0], token) }
	if err := j.faults.createTopic(ctx); err != nil {
		return err
	}
	watching := newHTTP(j.fleet.Addresses())
	defer watching.CloseIdleConnections()
	j.views = watch(ctx, j.crowd, watching, token, j.replay.days)
	defer j.views.close()
	if err := j.checkpoint(ctx, "before the replay", nil, nil); err != nil {
		return err
	}
	j.thieves.start(ctx, j.Thefts)
	defer j.report()
	return j.replayAll(ctx)
}

// offlineAfter is the default of presence.offline_after, which does not apply to a sign-out.
const offlineAfter = time.Second

// replayAll replays all parts with their faults, and then ends the days.
func (j *job) replayAll(ctx context.Context) error {
	faults := plan()
	next, minute := 0, 0
	for i, last := range j.replay.checkpoints(parts) {
		n := i + 1
		first := next
		for next < len(j.replay.events) && j.replay.events[next].at < time.Duration(last+1)*time.Minute {
			next++
		}
		var what *fault
		if f, ok := faults[n]; ok {
			what = &f
		}
		err := j.during(ctx, what, func(ctx context.Context) error { return j.replayPart(ctx, j.replay.events[first:next], minute, last) })
		if err != nil {
			return err
		}
		minute = last + 1
		name := fmt.Sprintf("checkpoint %d, minute %d", n, last)
		if err := j.checkpoint(ctx, name, j.oracle.online(last), j.oracle.signedOut(j.Seed, last)); err != nil {
			return err
		}
		j.results.checkpoints++
	}
	return j.night(ctx)
}

// replayPart replays the events from the beginning of the minute first to the end of the minute
// last.
func (j *job) replayPart(ctx context.Context, events []event, first, last int) error {
	began, start := time.Now(), time.Duration(first)*time.Minute
	wait := func(until time.Duration) error {
		return sleep(ctx, time.Until(began.Add(time.Duration(float64(until-start)/j.Speed))))
	}
	for _, e := range events {
		if err := wait(e.at); err != nil {
			return err
		}
		j.crowd.do(ctx, e)
	}
	return wait(time.Duration(last+1) * time.Minute)
}

// checkpoint waits until all views show who is online, and those of out have signed out. If they do
// not within the time Settle, the checkpoint counts as failed, and the replay continues.
func (j *job) checkpoint(ctx context.Context, name string, online, out map[string]bool) error {
	began := time.Now()
	settling, cancel := context.WithTimeout(ctx, j.Settle)
	defer cancel()
	views := []struct {
		name    string
		differs func() string
	}{
		{"users", func() string { return j.crowd.differs(online, out) }},
		{"watchers", func() string { return j.views.differs(online) }},
		{"reads", func() string { return j.readers.differs(ctx, online) }},
		{"Redis", func() string { return j.readers.storeDiffers(ctx, online) }},
	}
	var took []string
	for _, v := range views {
		text := settle(settling, v.differs)
		if err := errors.Join(ctx.Err(), j.crowd.err()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		took = append(took, fmt.Sprintf("%s %.1f s", v.name, time.Since(began).Seconds()))
		if text != "" {
			j.results.differing = append(j.results.differing, name)
			j.sayf("%s: DIFFERS: %s: %s", name, v.name, text)
		}
	}
	j.results.slowest = max(j.results.slowest, time.Since(began))
	frames, updates, wrong := j.views.figures()
	j.crowd.mu.Lock()
	changes := j.crowd.changes
	j.crowd.mu.Unlock()
	stalled := j.stalls.take()
	j.results.stalled = max(j.results.stalled, stalled)
	j.sayf("%s: %d online; %d transitions, %d streams reopened, %d frames, %d updates, %d false offline; equal after: %s; %s; longest stall %.1f s",
		name, len(online), changes, j.crowd.reopened(), frames, updates, len(wrong), strings.Join(took, ", "), j.nodeUsage(ctx),
		stalled.Seconds())
	j.results.falseOffline = wrong
	j.crowd.settle()
	j.faults.set(func() { j.faults.phase, j.faults.what = calm, "" })
	return nil
}

// settle calls differs until it returns "", and returns its last result when ctx ends.
func settle(ctx context.Context, differs func() string) string {
	for {
		text := differs()
		if text == "" || sleep(ctx, 100*time.Millisecond) != nil {
			return text
		}
	}
}

// nodeUsage returns the CPU time of each node since the last checkpoint, and its memory.
func (j *job) nodeUsage(ctx context.Context) string {
	var all []string
	for i, n := range j.fleet.Nodes() {
		u, err := (&bench.Target{Ops: []string{"http://" + n.OpsAddr()}}).Usage(ctx)
		if err != nil {
			all = append(all, fmt.Sprintf("node %d: %v", i, err))
			continue
		}
		used := u.CPU - j.usage[i]
		if used < 0 {
			used = u.CPU // the node was restarted
		}
		j.usage[i] = u.CPU
		all = append(all, fmt.Sprintf("node %d: %.1f s of CPU, %.0f MiB", i, used.Seconds(), u.RSS/(1<<20)))
	}
	return strings.Join(all, ", ")
}

// report writes the times of changes, and what was shown wrongly.
func (j *job) report() {
	lines := timesOf("from a transition to a watcher on another node", j.crowd.times)
	lines = append(lines, timesOf("from a sign-out to a watcher on another node", j.crowd.signOuts)...)
	lines = append(lines, j.ledger.lines()...)
	for _, line := range lines {
		j.sayf("%s", line)
	}
	if all := j.crowd.signOuts[calm]; len(all) > 0 {
		j.results.offline = all[len(all)/2] // they are sorted now
	}
	j.sayf("the slowest checkpoint took %.1f s", j.results.slowest.Seconds())
	for _, reason := range slices.Sorted(maps.Keys(j.crowd.ends)) {
		j.sayf("%d streams ended: %s", j.crowd.ends[reason], reason)
	}
	wrong := make(map[string][]string)
	for _, f := range j.results.falseOffline {
		frame := "later"
		if f.first {
			frame = "first"
		}
		key := fmt.Sprintf("at %s by the %s in a %s frame", f.at.Format(time.TimeOnly), f.view, frame)
		wrong[key] = append(wrong[key], f.user)
	}
	for _, key := range slices.Sorted(maps.Keys(wrong)) {
		users := wrong[key]
		j.sayf("%d users shown offline wrongly %s: %s", len(users), key, strings.Join(users[:min(len(users), examples)], ", "))
	}
}

// sayf writes a line. Write errors are ignored; the exit code has the result.
func (j *job) sayf(format string, args ...any) { _, _ = fmt.Fprintf(j.out, format+"\n", args...) }
