// Command figures measures a fleet on this machine. It starts three nodes with MongoDB, Redis and
// NATS. By default it measures the area hot of `parley bench`, and three areas of its own: spread,
// latency and comeback. For some it stops or kills nodes. `make figures` runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/parleyhq/parley/bench"
	"github.com/parleyhq/parley/hack/internal/command"
	"github.com/parleyhq/parley/internal/rig"
)

type flags struct {
	Areas    []string      `arg:"" optional:"" help:"What to measure: hot, spread, latency, comeback (the default), presence, or any other area of 'parley bench'."`
	Rounds   int           `default:"5" help:"How often each figure is taken, in turn with its floor; the median is reported."`
	Seconds  float64       `default:"4" help:"How long each one is taken."`
	Senders  int           `default:"512" help:"Senders at once."`
	Channels int           `default:"1000" help:"Channels of the figures with many."`
	Streams  int           `default:"300" help:"Streams that must come back when a node is killed, each a connection of its own."`
	Users    int           `default:"50000" help:"Users of the node that is killed or halted, in the areas on presence."`
	Lease    time.Duration `default:"4s" help:"The nodes' presence.lease_ttl."`
	Mongo    int           `default:"1" enum:"1,3" help:"Members of the MongoDB replica set."`
	Binary   string        `type:"existingfile" help:"The parleyd to run. Default: built from this source."`
	Env      []string      `sep:"none" placeholder:"PARLEY_KEY=VALUE" help:"Configuration of the nodes, may be repeated."`
	JSON     bool          `name:"json" help:"One object per figure."`
}

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == bench.FloorCommand { // the bench runs this program again for its floors
		os.Exit(command.Run(context.Background(), "figures", nil, &struct{}{}, func(ctx context.Context) error {
			return bench.RunFloor(ctx, args[1:], os.Stdin, os.Stdout)
		}))
	}
	var f flags
	os.Exit(command.Run(context.Background(), "figures", args, &f, func(ctx context.Context) error { return measure(ctx, &f, os.Stdout) }))
}

func measure(ctx context.Context, f *flags, out io.Writer) (err error) {
	m := &measures{streams: f.Streams, lease: f.Lease}
	if len(f.Areas) == 0 {
		f.Areas = []string{"hot", "spread", "latency", "comeback"}
	}
	areas, err := bench.Select(m.areas(), f.Areas)
	if err != nil {
		return err
	}
	starting, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	m.fleet, err = rig.Start(starting, rig.Options{
		MongoMembers: f.Mongo, NATSServers: 1, Binary: f.Binary,
		Env: append([]string{
			"PARLEY_SHARDS=4", // the configuration's default
			"PARLEY_LIMITS_REQUESTS_PER_SECOND=1000000", "PARLEY_LIMITS_REQUEST_BURST=1000000",
			"PARLEY_LIMITS_STREAMS_PER_SUBJECT=100000", "PARLEY_LIMITS_STREAMS=100000", "PARLEY_LOG_LEVEL=warn",
			"PARLEY_PRESENCE_CONNECTIONS=200000", "PARLEY_PRESENCE_CONNECTIONS_PER_SUBJECT=200000",
			"PARLEY_PRESENCE_LEASE_TTL=" + f.Lease.String(),
		}, f.Env...),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.fleet.Close()) }()
	if m.token, err = m.fleet.Token("figures", nil); err != nil {
		return err
	}
	options := bench.Options{
		Addrs: m.fleet.Addresses(), Token: m.token, MongoURI: m.fleet.Mongo.URI(), Rounds: f.Rounds,
		Duration: time.Duration(f.Seconds * float64(time.Second)), Senders: f.Senders, Channels: f.Channels, Users: f.Users,
		Progress: func(line string) { fmt.Fprintln(os.Stderr, line) },
	}
	for _, n := range m.fleet.Nodes() {
		options.Ops = append(options.Ops, n.OpsAddr())
	}
	var report bench.Report = &bench.Text{W: out}
	if f.JSON {
		report = bench.JSON{W: out}
	}
	return bench.Run(ctx, areas, options, report)
}

// measures takes the figures that require a fleet whose nodes it may stop and kill.
type measures struct {
	fleet   *rig.Fleet
	token   string
	streams int
	lease   time.Duration
}

// areas returns the areas of `parley bench` and those of measures.
func (m *measures) areas() []bench.Area {
	areas := slices.Clone(bench.Areas())
	for i := range areas {
		if areas[i].Name == "hot" {
			areas[i].Measure = m.onFirst(areas[i].Measure)
		}
	}
	areas = append(areas, bench.SpreadArea(m.alone),
		bench.Area{Name: "latency", Help: "From send on one node to receive on another.", Measure: m.latency},
		bench.Area{Name: "comeback", Help: "Streams return after a node's kill -9.", Measure: m.comeback})
	return append(areas, bench.PresenceAreas(m.presence)...)
}

// presence returns what the areas on presence need of the fleet. Its Redis syncs its file each
// second from then on, as Redis does by default, and not before each reply.
func (m *measures) presence(ctx context.Context) (*bench.PresenceFleet, error) {
	client := m.fleet.Redis.Client()
	defer client.Close()
	if err := client.ConfigSet(ctx, "appendfsync", "everysec").Err(); err != nil {
		return nil, err
	}
	last := m.fleet.Node(len(m.fleet.Nodes()) - 1)
	return &bench.PresenceFleet{
		Token: func(user string) (string, error) { return m.fleet.Token(user, nil) },
		Redis: m.fleet.Redis.Addr(), LeaseTTL: m.lease,
		Kill: last.Kill, Restart: last.Restart, Stop: last.Stop, Continue: last.Cont,
	}, nil
}

// onFirst returns a Measure that takes the figures while only the first node runs.
func (m *measures) onFirst(measure bench.Measure) bench.Measure {
	return func(ctx context.Context, env *bench.Env) (figures []bench.Figure, err error) {
		one := *env
		one.Addrs, one.Ops = env.Addrs[:1], env.Ops[:1]
		err = m.alone(ctx, func(ctx context.Context) error {
			figures, err = measure(ctx, &one)
			return err
		})
		return figures, err
	}
}

// alone stops all nodes but node 0, calls fn, and starts them again.
func (m *measures) alone(ctx context.Context, fn func(context.Context) error) error {
	others := m.fleet.Nodes()[1:]
	for _, n := range others {
		if err := n.Term(ctx); err != nil {
			return err
		}
	}
	err := fn(ctx)
	for _, n := range others {
		err = errors.Join(err, n.Restart(ctx))
	}
	return err
}
