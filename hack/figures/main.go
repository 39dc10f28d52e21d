// Command figures measures a fleet on this machine: writes through nodes that are not home, one hot channel, a thousand
// channels over three nodes, the way of a message from node to node, and the return of streams after a node's kill -9.
// Each rate stands next to its floor from the same run. `make figures` runs it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/parleyhq/parley/internal/rig"
)

type flags struct {
	Seconds  int      `default:"6" help:"How long each rate is measured."`
	Rounds   int      `default:"3" help:"How often the rates are measured, in turn; the median is told."`
	Senders  int      `default:"512" help:"Senders at once."`
	Channels int      `default:"1000" help:"Channels of the figure with many."`
	Streams  int      `default:"300" help:"Streams that must come back, each a connection of its own."`
	Mongo    int      `default:"1" enum:"1,3" help:"Members of the MongoDB replica set."`
	Binary   string   `type:"existingfile" help:"The parleyd to run. Default: built from this source."`
	Env      []string `sep:"none" placeholder:"PARLEY_KEY=VALUE" help:"Configuration of the nodes, may be repeated."`
	Only     string   `help:"Measure only the rates whose name holds this."`
	JSON     bool     `name:"json" help:"One object per figure."`
}

// figure is one line of the answer.
type figure struct {
	Name  string             `json:"name"`
	Unit  string             `json:"unit"`
	Value float64            `json:"value"`
	Low   float64            `json:"low,omitempty"`
	High  float64            `json:"high,omitempty"`
	More  map[string]float64 `json:"more,omitempty"`
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var f flags
	parser, err := kong.New(&f, kong.Name("figures"))
	if err == nil {
		_, err = parser.Parse(args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		return 2
	}
	if err := measure(ctx, &f, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		return 1
	}
	return 0
}

func measure(ctx context.Context, f *flags, out io.Writer) (err error) {
	starting, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	fleet, err := rig.Start(starting, rig.Options{
		MongoMembers: f.Mongo, NATSServers: 1, Binary: f.Binary,
		Env: append([]string{
			"PARLEY_LIMITS_REQUESTS_PER_SECOND=1000000", "PARLEY_LIMITS_REQUEST_BURST=1000000",
			"PARLEY_LIMITS_STREAMS_PER_SUBJECT=100000", "PARLEY_LOG_LEVEL=warn", "PARLEY_TELEMETRY_TRACE_RATIO=0",
		}, f.Env...),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fleet.Close()) }()
	token, err := fleet.Token("figures", nil)
	if err != nil {
		return err
	}
	b := &bench{flags: f, fleet: fleet, token: token}
	b.say = func(v figure) error {
		if f.JSON {
			return json.NewEncoder(out).Encode(v)
		}
		return v.print(out)
	}
	if !f.JSON {
		if _, err := fmt.Fprintf(out, "3 nodes, redis-server with AOF, one NATS server, mongod x %d (majority, journaled); %d cores shared with the load; "+
			"%d senders, 128-byte messages, %d rounds of %d s\n\n", f.Mongo, runtime.NumCPU(), f.Senders, f.Rounds, f.Seconds); err != nil {
			return err
		}
	}
	steps := []func(context.Context) error{b.rates, b.latency, b.comeback}
	if f.Only != "" {
		steps = steps[:1]
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (v figure) print(out io.Writer) error {
	var line strings.Builder
	_, _ = fmt.Fprintf(&line, "%-58s %10.4g %s", v.Name, v.Value, v.Unit)
	if v.High > 0 {
		_, _ = fmt.Fprintf(&line, "  (%.4g to %.4g)", v.Low, v.High)
	}
	for _, k := range []string{"p50", "p99", "max", "ratio", "mongod_us", "nodes_us", "nats_us", "load_us"} {
		if m, ok := v.More[k]; ok {
			_, _ = fmt.Fprintf(&line, "  %s %.4g", k, m)
		}
	}
	_, err := fmt.Fprintln(out, line.String())
	return err
}
