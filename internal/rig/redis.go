package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisConfig configures StartRedis.
type RedisConfig struct {
	// Dir is the server's directory for data and log. It is created if it is missing.
	Dir string
	// Addr is a host:port, or the absolute path of a unix socket.
	Addr string
	// AppendOnly adds an append-only file with an fsync before every reply. Without it the server
	// stores nothing on disk.
	AppendOnly bool
	// Args are additional arguments of redis-server. They override those that StartRedis sets.
	Args []string
	// Disk puts the server's data on a Disk.
	Disk bool
	// MovableClock allows SetClock. It requires Linux and a C compiler.
	MovableClock bool
	// Unwatched is for a server that ends with this process. If it is set, no goroutine waits for its
	// end, and only Kill notices that it has ended.
	Unwatched bool
}

// Redis is a redis-server process that never evicts keys. Its address stays the same when it is
// restarted. Methods may be called concurrently, but those that kill, halt, resume or restart the
// server only by one goroutine at a time.
type Redis struct {
	proc      process
	dir, addr string // dir is that of the data
	disk      *Disk  // nil without RedisConfig.Disk
	clock     *clock // nil without RedisConfig.MovableClock
}

// SharedRedis returns a function that returns one server with a socket, which the first call
// starts. The tests of a package share it, each with keys of its own. The server ends with the
// process. name is part of the name of its directory.
func SharedRedis(name string) func() (*Redis, error) {
	return sync.OnceValues(func() (*Redis, error) {
		dir, err := TempDir(name)
		if err != nil {
			return nil, err
		}
		c := RedisConfig{Dir: dir, Addr: filepath.Join(dir, "redis.sock")}
		return StartRedis(context.Background(), c) //nolint:forbidigo // it ends with the process
	})
}

// StartRedis starts a server and waits until it answers. After an error nothing is left running.
func StartRedis(ctx context.Context, c RedisConfig) (*Redis, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	disk, err := newDisk(diskDir(c.Dir, true), c.Disk)
	if err != nil {
		return nil, err
	}
	args := []string{
		"--dir", diskDir(c.Dir, c.Disk), "--daemonize", "no", "--save", "", "--maxmemory-policy", "noeviction",
		// A rewrite would change the files while SaveAOF copies them.
		"--auto-aof-rewrite-percentage", "0",
	}
	if filepath.IsAbs(c.Addr) {
		args = append(args, "--port", "0", "--unixsocket", c.Addr)
	} else {
		host, port, err := net.SplitHostPort(c.Addr)
		if err != nil {
			return nil, err
		}
		args = append(args, "--bind", host, "--port", port, "--protected-mode", "no")
	}
	if c.AppendOnly {
		args = append(args, "--appendonly", "yes", "--appendfsync", "always")
	} else {
		args = append(args, "--appendonly", "no")
	}
	r := &Redis{
		proc: process{
			name: "redis-server", path: "redis-server", args: append(args, c.Args...), log: filepath.Join(c.Dir, "log"),
			unwatched: c.Unwatched,
		},
		dir: diskDir(c.Dir, c.Disk), addr: c.Addr, disk: disk,
	}
	if c.MovableClock {
		if r.clock, err = newClock(ctx, c.Dir); err != nil {
			disk.close()
			return nil, err
		}
		r.proc.env = r.clock.env()
	}
	if err := r.Restart(ctx); err != nil {
		r.Kill()
		disk.close()
		return nil, err
	}
	return r, nil
}

// Addr returns the host:port, or the path of the unix socket.
func (r *Redis) Addr() string { return r.addr }

// Dir returns the directory of the server's data.
func (r *Redis) Dir() string { return r.dir }

// network returns the network of Addr for net.Dial.
func (r *Redis) network() string {
	if filepath.IsAbs(r.addr) {
		return "unix"
	}
	return "tcp"
}

// Client returns a client that does not retry. The caller must close it.
func (r *Redis) Client() *redis.Client {
	return redis.NewClient(&redis.Options{
		Network: r.network(), Addr: r.addr, MaxRetries: -1, ContextTimeoutEnabled: true, PoolTimeout: 5 * time.Second,
		DialerRetries: 1,
	})
}

// Restart starts the server on its data, unless it runs, and waits until it answers and has loaded
// the data.
func (r *Redis) Restart(ctx context.Context) error {
	if err := r.proc.start(); err != nil {
		return fmt.Errorf("%w (Debian package redis-server)", err)
	}
	client := r.Client()
	defer client.Close()
	return r.proc.ready(ctx, func(ctx context.Context) error {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, r.network(), r.addr) // not the client, which logs each failure
		if err != nil {
			return err
		}
		_ = conn.Close()
		return client.Ping(ctx).Err()
	})
}

// Running reports whether the process exists, including one halted by Stop.
func (r *Redis) Running() bool { return r.proc.current() != nil }

// Kill ends the server with SIGKILL and waits until it has exited. It does nothing if the server
// does not run.
func (r *Redis) Kill() { r.proc.kill() }

// Close kills the server. Its data stays, unless it is on a disk.
func (r *Redis) Close() {
	r.Kill()
	r.disk.close()
}

// Stop halts the server with SIGSTOP: its connections stay open and nothing answers.
func (r *Redis) Stop() error { return r.proc.signal(syscall.SIGSTOP) }

// Cont resumes a halted server.
func (r *Redis) Cont() error { return r.proc.signal(syscall.SIGCONT) }

// Disk returns the server's disk, or nil without RedisConfig.Disk.
func (r *Redis) Disk() *Disk { return r.disk }

// FlushAll removes every key.
func (r *Redis) FlushAll(ctx context.Context) error {
	client := r.Client()
	defer client.Close()
	return client.FlushAll(ctx).Err()
}

// SetClock moves the server's wall clock to this machine's time plus offset, now and after
// restarts. It returns an error without RedisConfig.MovableClock.
func (r *Redis) SetClock(offset time.Duration) error {
	if r.clock == nil {
		return errors.New("the clock of redis-server is not movable")
	}
	return r.clock.set(offset)
}

// aofDir is the directory of the server's append-only file, which has several parts.
const aofDir = "appendonlydir"

// SaveAOF copies the append-only file to the directory dst, which must not exist. If the server
// runs, the copy may or may not include concurrent writes.
func (r *Redis) SaveAOF(dst string) error {
	if _, err := os.Stat(dst); err == nil {
		return fmt.Errorf("%s exists", dst)
	}
	return os.CopyFS(dst, os.DirFS(filepath.Join(r.dir, aofDir)))
}

// RestoreAOF replaces the append-only file with a copy made by SaveAOF, so that the next run starts
// with the old data. It returns an error if the server runs.
func (r *Redis) RestoreAOF(src string) error {
	if r.Running() {
		return errors.New("redis-server runs")
	}
	dir := filepath.Join(r.dir, aofDir)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.CopyFS(dir, os.DirFS(src))
}
