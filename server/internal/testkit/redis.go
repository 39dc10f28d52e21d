package testkit

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/internal/rig"
)

// RedisServer is a real redis-server of one test, on a unix socket in its own directory. It ends
// with the test, and with the test process. Its methods may be called concurrently, except that
// only one goroutine at a time may inject faults. Methods that fail end the test.
type RedisServer struct {
	tb     testing.TB
	server *rig.Redis
}

// RedisOption configures the server that Redis starts.
type RedisOption func(*rig.RedisConfig)

// RedisAppendOnly returns an option that makes the server keep an append-only file, with an fsync
// before every reply.
func RedisAppendOnly() RedisOption {
	return func(c *rig.RedisConfig) { c.AppendOnly = true }
}

// RedisArgs returns an option that adds arguments to the server's command line. If an argument is
// repeated, the last one counts.
func RedisArgs(args ...string) RedisOption {
	return func(c *rig.RedisConfig) { c.Args = append(c.Args, args...) }
}

// Redis starts a redis-server for the test. Unless options say otherwise it is empty, in memory
// only, and never evicts.
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

// Addr returns the path of the unix socket. It stays the same over Kill and Start.
func (s *RedisServer) Addr() string { return s.server.Addr() }

// Dir returns the directory of the server's files (appendonlydir/), for tests that restore older
// files while the server is down.
func (s *RedisServer) Dir() string { return s.server.Dir() }

// Client returns a client that never retries. It is closed when the test ends.
func (s *RedisServer) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	c := s.server.Client()
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Start starts the server on the same directory as before, and waits until it answers. It does
// nothing if the server is running.
func (s *RedisServer) Start() {
	s.tb.Helper()
	s.check(s.server.Restart(context.Background()))
}

// Kill ends the server with SIGKILL and waits for its end. It does nothing if the server is not
// running.
func (s *RedisServer) Kill() { s.server.Kill() }

// Stop halts the server with SIGSTOP: connections stay open and it does not answer. Cont resumes
// it.
func (s *RedisServer) Stop() {
	s.tb.Helper()
	s.check(s.server.Stop())
}

// Cont resumes a server that Stop halted.
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
