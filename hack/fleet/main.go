// Command fleet runs a complete Parley fleet on this machine until it is interrupted. `make fleet`
// runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kong"

	"github.com/parleyhq/parley/hack/internal/command"
	"github.com/parleyhq/parley/internal/rig"
)

// restartDelay is the time between a node's exit and its restart.
const restartDelay = 500 * time.Millisecond

type flags struct {
	Nodes   int      `default:"3" help:"How many parleyd run."`
	Mongo   int      `default:"3" enum:"1,3" help:"Members of the MongoDB replica set: 1 or 3."`
	NATS    int      `name:"nats" default:"3" enum:"1,3" help:"NATS servers: 1 or 3."`
	Ports   []int    `default:"8080,8082,8084" help:"The nodes' ports; the next one has health and metrics. A free one is taken instead of one in use."`
	Dir     string   `type:"path" help:"Keep data and logs here, and go on with those that are here. Default: a temporary directory."`
	Binary  string   `type:"existingfile" help:"The parleyd to run. Default: built from this source."`
	Env     []string `short:"e" sep:"none" placeholder:"PARLEY_KEY=VALUE" help:"Configuration of the nodes, may be repeated."`
	Verbose bool     `short:"v" help:"Nodes log what happens, at level debug."`
}

func main() {
	var f flags
	os.Exit(command.Run(context.Background(), "fleet", os.Args[1:], &f, func(ctx context.Context) error { return serve(ctx, f, os.Stdout) },
		kong.Description("A whole Parley fleet on this machine.")))
}

// serve runs the fleet until ctx ends.
func serve(ctx context.Context, f flags, out io.Writer) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if f.Verbose {
		f.Env = append([]string{"PARLEY_LOG_LEVEL=debug"}, f.Env...)
	}
	fleet, err := rig.Start(ctx, rig.Options{
		Nodes: f.Nodes, MongoMembers: f.Mongo, NATSServers: f.NATS, Ports: f.Ports, Dir: f.Dir, Binary: f.Binary, Env: f.Env,
		Logger: log,
	})
	if ctx.Err() != nil && err != nil {
		return nil //nolint:nilerr // it was interrupted while it started
	}
	if err != nil {
		return err
	}
	err = banner(fleet, out)
	if err == nil {
		var nodes sync.WaitGroup
		for _, n := range fleet.Nodes() {
			nodes.Go(func() { keepRunning(ctx, n, log) })
		}
		<-ctx.Done()
		nodes.Wait()
		_, _ = fmt.Fprintln(out, "\nending")
	}
	return errors.Join(err, fleet.Close())
}

// keepRunning restarts a node whenever it exits, until ctx ends.
func keepRunning(ctx context.Context, n *rig.Node, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.Exited():
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(restartDelay):
		}
		log.WarnContext(ctx, "a node has ended and is started again", "node", n.Index(), "log", n.LogFile())
		if err := n.Start(); err != nil {
			log.ErrorContext(ctx, "start a node", "node", n.Index(), "error", err)
		}
	}
}

// banner writes instructions for trying the fleet to out, and a token to a file that they name.
func banner(f *rig.Fleet, out io.Writer) error {
	token, err := f.Token("fleet-user", nil)
	if err != nil {
		return err
	}
	tokenFile := filepath.Join(f.Dir, "token")
	if err := os.WriteFile(tokenFile, []byte(token+"\n"), 0o600); err != nil {
		return err
	}
	first, last := f.Addresses()[0], f.Addresses()[len(f.Addresses())-1]
	var b strings.Builder
	fmt.Fprintf(&b, "\nThe fleet is ready.\n\n")
	for _, n := range f.Nodes() {
		fmt.Fprintf(&b, "  node %d   http://%s   (health and metrics http://%s, pid %d)\n", n.Index(), n.Addr(), n.OpsAddr(), n.PID())
	}
	fmt.Fprintf(&b, "  MongoDB  %s\n  Redis    %s\n  NATS     %s\n  logs     %s\n", f.Mongo.URI(), f.Redis.Addr(), f.NATS.URL(), f.Dir)
	fmt.Fprintf(&b, "\nA token that may do everything for a day, also in %s:\n\n  %s\n\n", tokenFile, token)
	fmt.Fprintf(&b, "Follow a channel on one node and send to it on another:\n\n")
	fmt.Fprintf(&b, "  export PARLEY_TOKEN=$(cat '%s')\n", tokenFile)
	fmt.Fprintf(&b, "  bin/parley --addr %s tail general\n", last)
	fmt.Fprintf(&b, "  bin/parley --addr %s send general hello\n", first)
	fmt.Fprintf(&b, "  grpcurl -plaintext -H \"Authorization: Bearer $PARLEY_TOKEN\" -d '{\"channel_id\":\"general\"}' %s parley.v1.MessageService/ListMessages\n\n", last)
	fmt.Fprintf(&b, "A node that is killed is started again. Ctrl-C ends everything.\n")
	_, err = io.WriteString(out, b.String())
	return err
}
