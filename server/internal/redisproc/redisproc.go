// Package redisproc runs a redis-server as a child process for `parleyd dev`: on a unix socket in
// the data directory, with an append-only file next to it. It ends the orphan that a killed parleyd
// left behind, and restarts the server when it dies.
package redisproc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/lifecycle"
)

// maxSocketPath is the maximum length of a socket's path in bytes. It is below the limits of Linux
// and the BSDs.
const maxSocketPath = 100

// Config configures a Process.
type Config struct {
	// Dir is the server's own directory; New creates it if necessary. The caller of Start must hold
	// a lock that keeps other processes from using the same directory.
	Dir string
	// Binary is the path of redis-server; empty means the one on PATH.
	Binary string
	Logger *slog.Logger
}

// Process is a redis-server that is restarted whenever it ends, between Start and Stop. It is safe
// for concurrent use.
type Process struct {
	cfg    Config
	socket string
	life   lifecycle.Base

	mu  sync.Mutex
	cmd *exec.Cmd
}

// Find returns the path of the redis-server on PATH. Its error wraps exec.ErrNotFound if there is
// none.
func Find() (string, error) { return exec.LookPath("redis-server") }

// New returns a Process and creates its directory. If Binary is empty and there is no redis-server
// on PATH, the error wraps exec.ErrNotFound.
func New(cfg Config) (*Process, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Binary == "" {
		bin, err := Find()
		if err != nil {
			return nil, err
		}
		cfg.Binary = bin
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	cfg.Dir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create redis directory: %w", err)
	}
	socket, err := socketPath(dir)
	if err != nil {
		return nil, err
	}
	return &Process{cfg: cfg, socket: socket}, nil
}

// Start ends the redis-server of an earlier run in the same directory, starts a new one, and
// returns once the new one answers. Until Stop, the server is restarted whenever it ends. See
// lifecycle.Service.
func (p *Process) Start(ctx context.Context) error {
	return p.life.Start(ctx, func(ctx context.Context, run *lifecycle.Run) error {
		if err := p.endOrphan(ctx); err != nil {
			return fmt.Errorf("stop the redis-server of an earlier run: %w", err)
		}
		exited, err := p.launch(ctx, run)
		if err != nil {
			return err
		}
		var hurry func() bool
		run.OnStop(func(ctx context.Context) error {
			hurry = context.AfterFunc(ctx, func() { p.signal(syscall.SIGKILL) })
			return nil
		})
		run.Go(func(ctx context.Context) { p.supervise(ctx, run, exited) })
		run.OnEnd(func(ctx context.Context) error {
			if !hurry() {
				return context.Cause(ctx)
			}
			return nil
		})
		return nil
	})
}

// socketPath returns the path of the unix socket: in dir, or under the system's temporary directory
// if that path is longer than maxSocketPath.
func socketPath(dir string) (string, error) {
	if s := filepath.Join(dir, "redis.sock"); len(s) <= maxSocketPath {
		return s, nil
	}
	sum := sha256.Sum256([]byte(dir))
	short := filepath.Join(os.TempDir(), "parley-"+hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(short, 0o700); err != nil {
		return "", fmt.Errorf("create socket directory: %w", err)
	}
	return filepath.Join(short, "redis.sock"), nil
}

// Socket returns the path of the server's unix socket.
func (p *Process) Socket() string { return p.socket }

// Stop ends the server, which saves its data, and waits for its end. If ctx ends first, the server
// is killed, and Stop returns the cause of ctx.
func (p *Process) Stop(ctx context.Context) error { return p.life.Stop(ctx) }

func (p *Process) signal(s os.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.cmd.Process.Signal(s) // an error means that it has ended
	}
}

// launch starts redis-server and waits until it answers. The returned channel receives the error of
// its exit.
func (p *Process) launch(ctx context.Context, run *lifecycle.Run) (<-chan error, error) {
	//nolint:gosec,noctx // the binary is the operator's choice; the child outlives ctx and is ended by SIGTERM
	cmd := exec.Command(p.cfg.Binary,
		"--port", "0", "--unixsocket", p.socket, "--unixsocketperm", "700", "--dir", p.cfg.Dir,
		"--pidfile", p.pidFile(), "--logfile", filepath.Join(p.cfg.Dir, "redis.log"),
		"--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction")
	// A Ctrl-C in the terminal must reach only parleyd, which ends Redis last.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	p.mu.Lock()
	p.cmd = cmd
	p.mu.Unlock()
	exited := make(chan error, 1)
	run.Go(func(context.Context) { exited <- cmd.Wait() })
	if err := p.await(ctx, exited); err != nil {
		p.signal(syscall.SIGTERM)
		<-exited
		return nil, err
	}
	return exited, nil
}

// await writes the pid file and waits until the server answers. It fails if the server exits, or
// after 30 s.
func (p *Process) await(ctx context.Context, exited chan error) error {
	if err := os.WriteFile(p.pidFile(), []byte(strconv.Itoa(p.pid())), 0o600); err != nil {
		return fmt.Errorf("write pid file: %w", err)
	}
	client := p.client()
	defer client.Close()
	_, err := backoff.Retry(ctx, func() (string, error) {
		select {
		case err := <-exited:
			exited <- err
			return "", backoff.Permanent(fmt.Errorf("redis-server exited at once (see redis.log in %s): %w", p.cfg.Dir, err))
		default:
			return client.Ping(ctx).Result()
		}
	}, backoff.WithBackOff(backoff.NewConstantBackOff(10*time.Millisecond)), backoff.WithMaxElapsedTime(30*time.Second))
	if err != nil {
		return fmt.Errorf("wait for redis-server: %w", err)
	}
	return nil
}

func (p *Process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// supervise restarts the server whenever it dies. When ctx ends, it ends the server and returns.
func (p *Process) supervise(ctx context.Context, run *lifecycle.Run, exited <-chan error) {
	wait := backoff.NewExponentialBackOff()
	for {
		select {
		case <-ctx.Done():
			p.signal(syscall.SIGTERM)
			<-exited
			return
		case err := <-exited:
			p.cfg.Logger.WarnContext(ctx, "redis-server exited, restarting", "error", err)
		}
		for {
			next, err := p.launch(ctx, run)
			if err == nil {
				exited = next
				wait.Reset()
				break
			}
			if ctx.Err() != nil {
				return
			}
			p.cfg.Logger.ErrorContext(ctx, "redis-server start failed", "error", err)
			select {
			case <-time.After(wait.NextBackOff()):
			case <-ctx.Done():
				return
			}
		}
	}
}

func (p *Process) pidFile() string { return filepath.Join(p.cfg.Dir, "redis.pid") }

func (p *Process) client() *redis.Client {
	return redis.NewClient(&redis.Options{
		Network: "unix", Addr: p.socket, MaxRetries: -1, PoolSize: 1,
		DialTimeout: time.Second, ReadTimeout: 2 * time.Second, WriteTimeout: time.Second,
	})
}

// endOrphan shuts down the redis-server that a killed parleyd left running in this directory: two
// servers would corrupt one append-only file. If it does not end, and its command line shows that
// it is ours, endOrphan kills it.
func (p *Process) endOrphan(ctx context.Context) error {
	pid := p.orphan()
	if pid == 0 {
		_ = os.Remove(p.socket) // a dead server's socket; if it cannot be removed, redis-server reports why
		return nil
	}
	p.cfg.Logger.InfoContext(ctx, "stopping the redis-server of an earlier run", "pid", pid)
	client := p.client()
	defer client.Close()
	_ = client.ShutdownSave(ctx).Err() // success is reported by a closed connection
	gone := func() (bool, error) {
		if p.orphan() == pid {
			return false, errors.New("the process is still running")
		}
		return true, nil
	}
	wait := func(d time.Duration) error {
		_, err := backoff.Retry(ctx, gone, backoff.WithBackOff(backoff.NewConstantBackOff(10*time.Millisecond)),
			backoff.WithMaxElapsedTime(d))
		return err
	}
	if wait(5*time.Second) == nil {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill %d: %w", pid, err)
	}
	return wait(5 * time.Second)
}

// orphan returns the pid of a running server of this directory, or 0. The pid file alone is not
// enough, because the pid may have been reused by another process.
func (p *Process) orphan() int {
	data, err := os.ReadFile(p.pidFile())
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid <= 0 {
		return 0
	}
	if !runs(pid, p.socket) {
		return 0
	}
	return pid
}
