package testkit

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisServer is a real redis-server of one test, on a unix socket in a directory of its own. It ends with the test, and
// with the test process. Its methods may be called concurrently, but faults are for one goroutine at a time.
type RedisServer struct {
	tb   testing.TB
	dir  string
	args []string

	mu  sync.Mutex // guards what follows
	run *redisRun
}

// redisRun is one life of the server.
type redisRun struct {
	cmd    *exec.Cmd
	output *bytes.Buffer // read only after exited is closed
	exited chan struct{}
}

// RedisOption changes how testkit.Redis starts its server.
type RedisOption func(*RedisServer)

// RedisAppendOnly gives the server an append-only file, fsync'd before every answer.
func RedisAppendOnly() RedisOption {
	return RedisArgs("--appendonly", "yes", "--appendfsync", "always")
}

// RedisArgs adds arguments to the server's command line. The last of equal ones counts.
func RedisArgs(args ...string) RedisOption {
	return func(s *RedisServer) { s.args = append(s.args, args...) }
}

// Redis starts a redis-server for the test: empty, in memory only, never evicting, unless options say otherwise.
func Redis(tb testing.TB, options ...RedisOption) *RedisServer {
	tb.Helper()
	// Not tb.TempDir: a socket's path is limited to 107 bytes, and a test's name can be longer.
	dir, err := os.MkdirTemp("", "parley-redis-")
	if err != nil {
		tb.Fatalf("make a directory for redis-server: %v", err)
	}
	s := &RedisServer{tb: tb, dir: dir}
	s.args = []string{
		"--port", "0", "--unixsocket", s.Addr(), "--dir", dir, "--daemonize", "no", "--save", "", "--appendonly", "no",
		"--maxmemory-policy", "noeviction",
	}
	for _, o := range options {
		o(s)
	}
	tb.Cleanup(func() {
		s.Kill()
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("remove redis-server's directory: %v", err)
		}
	})
	s.Start()
	return s
}

// Addr is the path of the unix socket. It stays the same over Kill and Start.
func (s *RedisServer) Addr() string { return filepath.Join(s.dir, "redis.sock") }

// Dir is where the server keeps its files (appendonlydir/), for tests that put older ones back while it is down.
func (s *RedisServer) Dir() string { return s.dir }

// Client makes a client that repeats nothing by itself. The test's end closes it.
func (s *RedisServer) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	c := redis.NewClient(&redis.Options{
		Network: "unix", Addr: s.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, PoolTimeout: 5 * time.Second,
		DialerRetries: 1,
	})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Start starts the server, over the same directory as before, and waits until it answers. It does nothing if it runs.
func (s *RedisServer) Start() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil {
		return
	}
	run := &redisRun{output: &bytes.Buffer{}, exited: make(chan struct{})}
	run.cmd = exec.Command("redis-server", slices.Clone(s.args)...)
	run.cmd.Stdout, run.cmd.Stderr = run.output, run.output
	run.cmd.SysProcAttr = boundToUs()
	started := make(chan error)
	go func() {
		// The thread that forks must live as long as the child, and Go ends idle ones.
		runtime.LockOSThread()
		err := run.cmd.Start()
		started <- err
		if err == nil {
			_ = run.cmd.Wait() // it is killed as a rule
		}
		close(run.exited)
	}()
	if err := <-started; err != nil {
		s.tb.Fatalf("start redis-server (Debian package redis-server): %v", err)
	}
	s.run = run
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Addr(), MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	Eventually(s.tb, 15*time.Second, func() error {
		select {
		case <-run.exited:
			s.tb.Fatalf("redis-server ended at once:\n%s", run.output)
		default:
		}
		conn, err := net.Dial("unix", s.Addr()) // first, because the client logs each failure
		if err != nil {
			return fmt.Errorf("connect to redis-server: %w", err)
		}
		_ = conn.Close()
		if err := client.Ping(context.Background()).Err(); err != nil {
			return fmt.Errorf("ping redis-server: %w", err)
		}
		return nil
	})
}

// Kill ends the server by SIGKILL and waits until it is gone. It does nothing if it does not run.
func (s *RedisServer) Kill() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return
	}
	s.signal(syscall.SIGKILL)
	<-s.run.exited
	s.run = nil
}

// Stop freezes the server by SIGSTOP: connections stay open and nothing answers. Cont lets it go on.
func (s *RedisServer) Stop() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signal(syscall.SIGSTOP)
}

// Cont lets a server that Stop froze go on.
func (s *RedisServer) Cont() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signal(syscall.SIGCONT)
}

// signal sends a signal to the running server. mu is held.
func (s *RedisServer) signal(sig syscall.Signal) {
	s.tb.Helper()
	if s.run == nil {
		s.tb.Fatalf("redis-server does not run")
	}
	if err := s.run.cmd.Process.Signal(sig); err != nil {
		select {
		case <-s.run.exited: // it has ended by itself
		default:
			s.tb.Errorf("signal redis-server: %v", err)
		}
	}
}
