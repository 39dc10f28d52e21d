package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// startTimeout bounds the time that a server has to start.
const startTimeout = 60 * time.Second

// Target is a server or a fleet of nodes to measure.
type Target struct {
	// Addrs and Ops are the base URLs of each node's API and ops address.
	Addrs, Ops []string
	// Token is the token for the API.
	Token string
}

// Server is a `parleyd dev` process of the bench, with a data directory of its own.
type Server struct {
	Target

	binary string
	dir    string
	env    []string
	proc   *process // nil while it is not running
	closed bool
	// redis is the socket of its redis-server, or "" if it runs none.
	redis string
}

// StartServer starts a server of the bench and waits until it is ready. It has the settings of
// `parleyd dev`. env adds or replaces environment variables, such as
// PARLEY_LIMITS_HEARTBEAT_INTERVAL=1s. The caller must Close it.
func (e *Env) StartServer(ctx context.Context, env ...string) (*Server, error) {
	binary, err := e.parleyd()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(e.Dir, "parley-bench-")
	if err != nil {
		return nil, err
	}
	s := &Server{binary: binary, dir: dir, env: env}
	if err := s.run(ctx, "127.0.0.1:0", "127.0.0.1:0"); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// readyLine matches the first line that `parleyd dev` prints once it serves.
var readyLine = regexp.MustCompile(`is ready on (http://\S+) .*metrics on (http://[^\s)]+)`)

// cacheLine matches a later line, with the socket of the server's redis-server if it has one.
var cacheLine = regexp.MustCompile("^ *cache, queues and presence: (?:.*`redis-cli -s ([^`]+)`)?")

// run starts the process and waits until it is ready.
func (s *Server) run(ctx context.Context, listen, ops string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	p, err := start("parleyd dev",
		[]string{s.binary, "dev", "--listen", listen, "--ops-listen", ops, "--data-dir", s.dir}, s.env)
	if err != nil {
		return err
	}
	s.proc = p
	err = p.within(ctx, func() error {
		out := bufio.NewReader(p.stdout)
		for {
			line, err := out.ReadString('\n')
			if m := readyLine.FindStringSubmatch(line); m != nil {
				s.Addrs, s.Ops = []string{m[1]}, []string{m[2]}
			}
			if m := cacheLine.FindStringSubmatch(line); m != nil {
				s.redis = m[1]
				go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the process
				return nil
			}
			if err != nil {
				return fmt.Errorf("it did not print its address: %w", err)
			}
		}
	})
	if err == nil {
		err = p.within(ctx, func() error { return s.ready(ctx) })
	}
	if err != nil {
		return err
	}
	token, err := os.ReadFile(filepath.Join(s.dir, "dev-token"))
	s.Token = strings.TrimSpace(string(token))
	return err
}

// ready waits until the server reports that it is ready.
func (s *Server) ready(ctx context.Context) error {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Ops[0]+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := metricsClient.Do(req)
		if err == nil {
			_ = resp.Body.Close() // the body is not needed
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		if pause(ctx, 20*time.Millisecond); ctx.Err() != nil {
			return errors.New("it did not become ready")
		}
	}
}

// PID returns the process's id, or 0 while it is not running.
func (s *Server) PID() int {
	if s.proc == nil {
		return 0
	}
	return s.proc.cmd.Process.Pid
}

// Kill kills the process with SIGKILL and waits until it has exited. Its redis-server keeps running
// until the next start ends it.
func (s *Server) Kill() {
	if s.proc != nil {
		s.proc.kill()
		s.proc = nil
	}
}

// Restart starts a killed server again, with the same data and addresses.
func (s *Server) Restart(ctx context.Context) error {
	host := func(urls []string) string { return strings.TrimPrefix(urls[0], "http://") }
	return s.run(ctx, host(s.Addrs), host(s.Ops))
}

// Close stops the server and removes its data. It starts a killed server once more, which ends the
// redis-server left behind. Later calls do nothing.
func (s *Server) Close() error {
	var err error
	if s.closed {
		return nil
	}
	s.closed = true
	if s.proc == nil && s.Addrs != nil {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout) //nolint:forbidigo // cleaning up outlives the call
		defer cancel()
		err = s.Restart(ctx)
	}
	if s.proc != nil {
		err = errors.Join(err, s.proc.stop(s.proc.terminate))
		s.proc = nil
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
