package conformance_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/parleyhq/parley/internal/rig"
)

// drainLimit bounds the start and the shutdown of a server. It is far more than either takes.
const drainLimit = 30 * time.Second

// machine is a server process to which faults can be applied. Its address never changes. It is not
// safe for concurrent use.
type machine interface {
	Addr() string
	// Restart starts the process, which must have ended, and waits until it is ready.
	Restart(ctx context.Context) error
	Kill()
	// Term sends SIGTERM, so that the server drains, and waits until the process has ended.
	Term(ctx context.Context) error
	// Stop pauses the process with SIGSTOP, Cont continues it.
	Stop() error
	Cont() error
}

// backend is the server or the fleet of a scenario. secret signs its tokens.
type backend struct {
	machines []machine
	secret   []byte
	// restored runs `parleyd admin restored` on a stopped server's data, which sets a new epoch.
	restored func(ctx context.Context) error
}

// parleydBinary returns the path of the server to run: the value of PARLEYD, or else a build of
// this source.
var parleydBinary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("PARLEYD"); path != "" {
		return path, nil
	}
	return rig.BuildParleyd(context.Background())
})

func root(t *testing.T) string {
	t.Helper()
	dir, err := rig.Root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// startBackend starts a `parleyd dev` or, if s.Fleet is set, a fleet of `parleyd serve`. They end
// with the test.
func startBackend(ctx context.Context, t *testing.T, s *scenario) *backend {
	t.Helper()
	path, err := parleydBinary()
	if err != nil {
		t.Fatal(err)
	}
	var env []string
	if s.Heartbeat != "" {
		env = append(env, "PARLEY_LIMITS_HEARTBEAT_INTERVAL="+s.Heartbeat)
	}
	for name, v := range s.Env {
		env = append(env, name+"="+v)
	}
	if s.Fleet {
		return startFleet(ctx, t, path, env, s.Nodes)
	}
	d := &dev{path: path, dir: t.TempDir(), env: env}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	text := hex.EncodeToString(secret)
	if err := os.WriteFile(filepath.Join(d.dir, "dev-secret"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	addrs, err := rig.FreeAddrs(2)
	if err != nil {
		t.Fatal(err)
	}
	d.addr, d.ops = addrs[0], addrs[1]
	t.Cleanup(func() { d.end(t) })
	if err := d.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	return &backend{machines: []machine{d}, secret: []byte(text), restored: d.restored}
}

func startFleet(ctx context.Context, t *testing.T, path string, env []string, nodes int) *backend {
	t.Helper()
	fleet, err := rig.Start(ctx, rig.Options{Nodes: nodes, MongoMembers: 1, NATSServers: 1, Binary: path, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fleet.Close(); err != nil {
			t.Errorf("end the fleet: %v", err)
		}
	})
	b := &backend{secret: fleet.Secret(), restored: func(context.Context) error { return errors.New("not for a fleet") }}
	for _, n := range fleet.Nodes() {
		b.machines = append(b.machines, n)
	}
	return b
}

// dev is a `parleyd dev` process.
type dev struct {
	path, dir, addr, ops string
	env                  []string

	cmd  *exec.Cmd
	done chan error
}

func (d *dev) Addr() string { return d.addr }

func (d *dev) log() string { return filepath.Join(d.dir, "log") }

func (d *dev) Restart(ctx context.Context) error {
	if d.cmd != nil {
		return errors.New("the server is already running")
	}
	ready := filepath.Join(d.dir, "dev-addr")
	if err := os.Remove(ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	out, err := os.OpenFile(d.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(d.path, "dev", "--listen", d.addr, "--ops-listen", d.ops, "--data-dir", d.dir)
	cmd.Stderr, cmd.Env = out, append(clean(os.Environ()), d.env...)
	if err := cmd.Start(); err != nil {
		return err
	}
	d.cmd, d.done = cmd, make(chan error, 1)
	go func() { d.done <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	return poll(ctx, func() error {
		select {
		case err := <-d.done:
			d.done <- err
			return fatal{fmt.Errorf("the server ended: %w", err)}
		default:
			_, err := os.Stat(ready)
			return err
		}
	})
}

// clean returns env without the variables that begin with PARLEY_, which would configure the
// server.
func clean(env []string) []string {
	return slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "PARLEY_") })
}

func (d *dev) Kill() {
	if d.cmd != nil {
		_ = d.cmd.Process.Kill()
		<-d.done
		d.cmd = nil
	}
}

func (d *dev) Term(ctx context.Context) error {
	if d.cmd == nil {
		return rig.ErrNotRunning
	}
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-d.done:
		d.cmd = nil
		return err
	case <-ctx.Done():
		return errors.New("the server does not exit")
	}
}

func (d *dev) Stop() error { return d.cmd.Process.Signal(syscall.SIGSTOP) }
func (d *dev) Cont() error { return d.cmd.Process.Signal(syscall.SIGCONT) }

func (d *dev) restored(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, d.path, "admin", "restored", "--data-dir", d.dir)
	cmd.Env = append(clean(os.Environ()), d.env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("admin restored: %w\n%s", err, out)
	}
	return nil
}

func (d *dev) end(t *testing.T) {
	t.Helper()
	if d.cmd != nil {
		_ = d.Cont()
		if err := d.Term(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("end the server: %v", err)
			d.Kill()
		}
	}
	if t.Failed() {
		text, _ := os.ReadFile(d.log())
		t.Logf("the server's output:\n%s", tail(text))
	}
}

// fatal is an error at which poll stops.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// poll calls check every 10 ms until it returns nil or a fatal error. When ctx ends, it returns
// check's last error.
func poll(ctx context.Context, check func() error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		var f fatal
		if err == nil || errors.As(err, &f) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
