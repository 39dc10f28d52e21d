package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/parleyhq/parley/internal/rig"
)

// limits are the smallest limits of the event stream, which it reaches while the server settles.
var limits = []string{"PARLEY_NATS_MAX_BYTES=16777216", "PARLEY_LOG_LEVEL=warn"}

// mongoCache is the size of the storage engine's cache for the same reason.
const mongoCache = "cache_size=24MB"

// run runs the load on a new server, samples all gauges, and more ones, and writes the verdict to
// out, as the last line unless it is an error.
func run(ctx context.Context, f *flags, options rig.Options, out io.Writer, more ...*gauge) error {
	began := time.Now()
	err := soak(ctx, f, options, out, more)
	took := time.Since(began).Seconds()
	if err != nil {
		return fmt.Errorf("verdict: failed after %.0f s: %s", took, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	_, err = fmt.Fprintf(out, "verdict: ok: nothing grew by more than %g %% in 10 minutes, mongod not by more than %g %%, goroutines under load by %g %%; %.0f s\n",
		f.Bar, max(f.Bar, mongodBar), max(f.Bar, goroutinesBar), took)
	return err
}

func soak(ctx context.Context, f *flags, o rig.Options, out io.Writer, more []*gauge) (err error) {
	o.Nodes, o.MongoMembers, o.NATSServers = 1, 1, 1
	o.Env = append(o.Env, limits...)
	fleet, err := rig.Start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fleet.Close()) }()
	meter, err := newMeter(fleet)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, meter.close(context.WithoutCancel(ctx))) }()
	meter.gauges = append(meter.gauges, more...)
	err = meter.mongo.Database("admin").RunCommand(ctx, bson.D{
		{Key: "setParameter", Value: 1}, {Key: "wiredTigerEngineRuntimeConfig", Value: mongoCache},
	}).Err()
	if err != nil {
		return fmt.Errorf("limit the cache of MongoDB: %w", err)
	}
	load, err := newLoad("http://"+fleet.Node(0).Addr(), func(user string) (string, error) { return fleet.Token(user, nil) })
	if err != nil {
		return err
	}
	defer load.http.CloseIdleConnections()
	if err := load.prepare(ctx); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	before, err := atRest(ctx, f, meter, load, func(ctx context.Context) error { return pause(ctx, warmUp) })
	if err != nil {
		return err
	}
	after, err := atRest(ctx, f, meter, load, func(ctx context.Context) error { return observe(ctx, f, meter, load, out) })
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, load.summary())
	return errors.Join(err, load.failure(), judgeAll(meter.gauges, f, out), judgeRest(f, before, after, out))
}

// warmUp is how long the load runs before the goroutines are counted that there always are.
const warmUp = time.Minute

// atRest runs the load while during runs, and returns the number of goroutines once the server has
// none left of that load.
func atRest(ctx context.Context, f *flags, m *meter, load *load, during func(ctx context.Context) error) (float64, error) {
	loading, stop := context.WithCancel(ctx)
	load.start(loading)
	err := during(ctx)
	stop()
	load.wait()
	if err != nil || f.Rest == 0 {
		return 0, err
	}
	load.http.CloseIdleConnections()
	if err := pause(ctx, f.Rest); err != nil {
		return 0, err
	}
	return m.goroutines(ctx)
}

// judgeRest judges the goroutines that are left when there is no load. While there is one, their
// number is mostly that of the calls in progress, which is as uncertain as the bar.
func judgeRest(f *flags, before, after float64, out io.Writer) error {
	if f.Rest == 0 {
		return nil
	}
	percent := 100 * (after - before) / before * float64(slopeUnit) / float64(f.For)
	_, err := fmt.Fprintf(out, "goroutines at rest: %.0f before the load, %.0f after it: %+.2f %% in 10 min\n", before, after, percent)
	if err == nil && percent > f.Bar {
		err = errors.New("goroutines of the load are left")
	}
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// observe samples the gauges from the end of the settling time to the end of the run.
func observe(ctx context.Context, f *flags, m *meter, load *load, out io.Writer) error {
	began := time.Now()
	tick := time.NewTicker(f.Every)
	defer tick.Stop()
	reported := time.Duration(0)
	for time.Since(began) < f.For {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		at := time.Since(began)
		if at < f.Settle {
			continue
		}
		if err := m.sample(ctx, at); err != nil {
			return err
		}
		if at-reported > time.Minute {
			reported = at
			if _, err := fmt.Fprintf(out, "%4.0f s:%s; %s\n", at.Seconds(), current(m.gauges), load.summary()); err != nil {
				return err
			}
		}
	}
	return nil
}

// current returns the last samples, for people.
func current(gauges []*gauge) string {
	var b strings.Builder
	for _, g := range gauges {
		if n := len(g.samples); n > 0 {
			fmt.Fprintf(&b, " %s %.1f", g.name, g.samples[n-1].value/g.scale)
		}
	}
	return b.String()
}

// judgeAll reports all gauges, and returns an error that names the judged ones that leak, or else
// those that are unclear.
func judgeAll(gauges []*gauge, f *flags, out io.Writer) error {
	found := make(map[verdict][]string)
	for _, g := range gauges {
		l, err := fit(g.samples)
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		v := judge(l, max(f.Bar, g.bar))
		if _, err := fmt.Fprintln(out, g.report(l, v)); err != nil {
			return err
		}
		if len(f.Judge) == 0 || slices.Contains(f.Judge, g.name) {
			found[v] = append(found[v], g.name)
		}
	}
	if leaks := found[leak]; len(leaks) > 0 {
		return fmt.Errorf("these grew by more than their bars, %g %% in 10 minutes and %g %% for mongod: %s",
			f.Bar, max(f.Bar, mongodBar), strings.Join(leaks, ", "))
	}
	if hidden := found[unclear]; len(hidden) > 0 && !f.AllowUnclear {
		return fmt.Errorf("the noise hides a growth of the size of the bar, if there is one; run it for longer: %s", strings.Join(hidden, ", "))
	}
	return nil
}
