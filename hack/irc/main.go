// Command irc runs the main use of messaging on real logs. Three importers on three nodes import
// the days of a directory into one channel, and each day into a channel of its own, all
// concurrently. Every node has subscribers. During the import a node and the MongoDB primary are
// killed. In the end every subscriber must have received every message once and in order, and the
// store must match the files line by line. `make irc DATA=...` runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/hack/internal/command"
	"github.com/parleyhq/parley/internal/rig"
)

// all is the channel into which all days are imported.
const all = "ubuntu"

type flags struct {
	Data    string        `arg:"" type:"existingdir" help:"Directory of *.raw.txt logs."`
	Binary  string        `type:"existingfile" required:"" help:"The parleyd to run."`
	CLI     string        `name:"cli" type:"existingfile" required:"" help:"The parley that imports."`
	Wait    time.Duration `default:"10m" help:"How long all of it may take."`
	NoFault bool          `help:"Kill nothing."`
}

func main() {
	var f flags
	os.Exit(command.Run(context.Background(), "irc", os.Args[1:], &f, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, f.Wait)
		defer cancel()
		return job(ctx, &f, os.Stdout)
	}))
}

func job(ctx context.Context, f *flags, out io.Writer) (err error) {
	days, err := readDays(f.Data)
	if err != nil {
		return err
	}
	total := 0
	for _, d := range days {
		total += len(d.lines)
	}
	sayf(out, "%d days, %d messages", len(days), total)
	fleet, err := rig.Start(ctx, rig.Options{Binary: f.Binary})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fleet.Close()) }()
	token, err := fleet.Token("importer", nil)
	if err != nil {
		return err
	}
	w, err := watch(ctx, fleet.Addresses(), token, days)
	if err != nil {
		return err
	}
	defer w.close()

	began := time.Now()
	work, working := errgroup.WithContext(ctx)
	for i := range fleet.Nodes() {
		im := &importer{cli: f.CLI, addrs: rotated(fleet.Addresses(), i), token: token}
		mine, err := linked(f.Data, days, i, len(fleet.Nodes()))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(mine)) }()
		work.Go(func() error { return im.run(working, mine, all) })
		work.Go(func() error {
			for _, d := range days {
				if err := im.run(working, d.path, d.channel); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if !f.NoFault {
		if err := breakThings(ctx, fleet, w, total, out); err != nil {
			return err
		}
	}
	if err := work.Wait(); err != nil {
		return err
	}
	sayf(out, "imported after %.1f s", time.Since(began).Seconds())
	if err := w.complete(ctx, total, days); err != nil {
		return err
	}
	sayf(out, "every subscriber has everything after %.1f s", time.Since(began).Seconds())
	if err := w.verify(days); err != nil {
		return err
	}
	if err := verifyStore(ctx, fleet.Mongo.URI(), days, w.logs[0]); err != nil {
		return err
	}
	sayf(out, "%d subscribers: every message once and in order; the store agrees with the files line by line", len(w.logs))
	return nil
}

// breakThings kills a node after a third of the messages and the primary after half, and restarts
// both.
func breakThings(ctx context.Context, fleet *rig.Fleet, w *watchers, total int, out io.Writer) error {
	if err := w.reached(ctx, total/3); err != nil {
		return err
	}
	fleet.Node(1).Kill()
	sayf(out, "killed node 1")
	if err := w.reached(ctx, total/2); err != nil {
		return err
	}
	primary, err := fleet.Mongo.Primary(ctx)
	if err != nil {
		return err
	}
	fleet.Mongo.Kill(primary)
	sayf(out, "killed the primary, member %d", primary)
	if err := fleet.Node(1).Restart(ctx); err != nil {
		return err
	}
	sayf(out, "node 1 is back")
	return fleet.Mongo.Restart(ctx, primary)
}

// importer runs `parley import`, as a user would. addrs are all nodes, starting with its own.
type importer struct {
	cli, addrs, token string
}

func (im *importer) run(ctx context.Context, path, channel string) error {
	cmd := exec.CommandContext(ctx, im.cli, "import", path, "--channel", channel, "--addr", im.addrs) //nolint:gosec // our own binary
	cmd.Env = append(os.Environ(), "PARLEY_TOKEN="+im.token)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("import %s into %s: %w\n%s", path, channel, err, out)
	}
	return nil
}

// sayf writes a line. Write errors are ignored; the exit code has the result.
func sayf(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }

func rotated(addrs []string, by int) string {
	return strings.Join(append(append([]string(nil), addrs[by:]...), addrs[:by]...), ",")
}

// linked creates a temporary directory with links to the logs of every n-th day in data, from the
// i-th on. Indexes count from 0. The caller removes the directory.
func linked(data string, days []day, i, n int) (string, error) {
	dir, err := os.MkdirTemp("", "parley-irc-")
	if err != nil {
		return "", err
	}
	abs, err := filepath.Abs(data)
	if err != nil {
		return dir, err
	}
	for j := i; j < len(days); j += n {
		name := filepath.Base(days[j].path)
		if err := os.Symlink(filepath.Join(abs, name), filepath.Join(dir, name)); err != nil {
			return dir, err
		}
	}
	return dir, nil
}
