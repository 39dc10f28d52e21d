package testkit

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/internal/rig"
)

// RedisServer is a real redis-server of one test, on a unix socket in a directory of its own. It ends with the test, and
// with the test process. Its methods may be called concurrently, but faults are for one goroutine at a time. They fail
// the test when they can't do what they say.
type RedisServer struct {
	tb     testing.TB
	server *rig.Redis
}

// RedisOption changes how testkit.Redis starts its server.
type RedisOption func(*rig.RedisConfig)

// RedisAppendOnly gives the server an append-only file, fsync'd before every answer.
func RedisAppendOnly() RedisOption {
	return func(c *rig.RedisConfig) { c.AppendOnly = true }
}

// RedisArgs adds arguments to the server's command line. The last of equal ones counts.
func RedisArgs(args ...string) RedisOption {
	return func(c *rig.RedisConfig) { c.Args = append(c.Args, args...) }
}

// Redis starts a redis-server for the test: empty, in memory only, never evicting, unless options say otherwise.
func Redis(tb testing.TB, options ...RedisOption) *RedisServer {
	tb.Helper()
	// Not tb.TempDir: a socket's path is limited to 107 bytes, and a test's name can be longer.
	dir, err := rig.TempDir("redis")
	if err != nil {
		tb.Fatalf("make a directory for redis-server: %v", err)
	}
	config := rig.RedisConfig{Dir: dir, Addr: filepath.Join(dir, "redis.sock")}
	for _, o := range options {
		o(&config)
	}
	s := &RedisServer{tb: tb}
	tb.Cleanup(func() {
		if s.server != nil {
			s.server.Kill()
		}
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("remove redis-server's directory: %v", err)
		}
	})
	if s.server, err = rig.StartRedis(context.Background(), config); err != nil {
		tb.Fatal(err)
	}
	return s
}

// Addr is the path of the unix socket. It stays the same over Kill and Start.
func (s *RedisServer) Addr() string { return s.server.Addr() }

// Dir is where the server keeps its files (appendonlydir/), for tests that put older ones back while it is down.
func (s *RedisServer) Dir() string { return s.server.Dir() }

// Client makes a client that repeats nothing by itself. The test's end closes it.
func (s *RedisServer) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	c := s.server.Client()
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Start starts the server, over the same directory as before, and waits until it answers. It does nothing if it runs.
func (s *RedisServer) Start() {
	s.tb.Helper()
	s.check(s.server.Restart(context.Background()))
}

// Kill ends the server by SIGKILL and waits until it is gone. It does nothing if it does not run.
func (s *RedisServer) Kill() { s.server.Kill() }

// Stop freezes the server by SIGSTOP: connections stay open and nothing answers. Cont lets it go on.
func (s *RedisServer) Stop() {
	s.tb.Helper()
	s.check(s.server.Stop())
}

// Cont lets a server that Stop froze go on.
func (s *RedisServer) Cont() {
	s.tb.Helper()
	s.check(s.server.Cont())
}

func (s *RedisServer) check(err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatal(err)
	}
}
