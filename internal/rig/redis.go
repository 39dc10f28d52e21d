package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisConfig says what StartRedis starts.
type RedisConfig struct {
	// Dir is the server's folder, for its data and its log. It is made if it is missing.
	Dir string
	// Addr is host:port, or the path of a unix socket.
	Addr string
	// AppendOnly gives the server an append-only file, fsync'd before every answer. Without it the server keeps nothing.
	AppendOnly bool
	// Args are more arguments. The last of equal ones counts.
	Args []string
	// Unwatched leaves no goroutine that waits for the server's end: for one that ends with this process. Only Kill notices it then.
	Unwatched bool
}

// Redis is a redis-server process that never evicts. Its address stays the same over all its lives. Its methods may be
// called concurrently, but faults are for one goroutine at a time.
type Redis struct {
	proc      process
	dir, addr string
}

// StartRedis starts a server and waits until it answers. On an error nothing is left running.
func StartRedis(ctx context.Context, c RedisConfig) (*Redis, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	args := []string{
		"--dir", c.Dir, "--daemonize", "no", "--save", "", "--maxmemory-policy", "noeviction",
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
		dir: c.Dir, addr: c.Addr,
	}
	if err := r.Restart(ctx); err != nil {
		r.Kill()
		return nil, err
	}
	return r, nil
}

// Addr is host:port, or the path of the unix socket.
func (r *Redis) Addr() string { return r.addr }

// Dir is where the server keeps its files.
func (r *Redis) Dir() string { return r.dir }

// network is what Addr is an address of.
func (r *Redis) network() string {
	if filepath.IsAbs(r.addr) {
		return "unix"
	}
	return "tcp"
}

// Client makes a client that repeats nothing by itself. The caller closes it.
func (r *Redis) Client() *redis.Client {
	return redis.NewClient(&redis.Options{
		Network: r.network(), Addr: r.addr, MaxRetries: -1, ContextTimeoutEnabled: true, PoolTimeout: 5 * time.Second,
		DialerRetries: 1,
	})
}

// Restart starts the server over its data, unless it runs, and waits until it answers and has loaded them.
func (r *Redis) Restart(ctx context.Context) error {
	if err := r.proc.start(); err != nil {
		return fmt.Errorf("%w (Debian package redis-server)", err)
	}
	client := r.Client()
	defer client.Close()
	return r.proc.ready(ctx, func(ctx context.Context) error {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, r.network(), r.addr) // the client logs each failure
		if err != nil {
			return err
		}
		_ = conn.Close()
		return client.Ping(ctx).Err()
	})
}

// Running reports whether the process exists, be it stopped.
func (r *Redis) Running() bool { return r.proc.current() != nil }

// Kill ends the server by SIGKILL and waits until it is gone. It does nothing if it does not run.
func (r *Redis) Kill() { r.proc.kill() }

// Stop halts the server with SIGSTOP: its connections stay and nothing answers.
func (r *Redis) Stop() error { return r.proc.signal(syscall.SIGSTOP) }

// Cont lets a stopped server run on.
func (r *Redis) Cont() error { return r.proc.signal(syscall.SIGCONT) }

// FlushAll removes every key.
func (r *Redis) FlushAll(ctx context.Context) error {
	client := r.Client()
	defer client.Close()
	return client.FlushAll(ctx).Err()
}

// aofDir is where the server keeps its append-only file, in pieces.
const aofDir = "appendonlydir"

// SaveAOF copies the append-only file to the folder dst, which must not exist. The server may run: what it writes
// meanwhile is in the copy or is not.
func (r *Redis) SaveAOF(dst string) error {
	if _, err := os.Stat(dst); err == nil {
		return fmt.Errorf("%s exists", dst)
	}
	return os.CopyFS(dst, os.DirFS(filepath.Join(r.dir, aofDir)))
}

// RestoreAOF puts a copy that SaveAOF made in place of the append-only file, so that the next life begins with the past.
// The server must not run.
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
