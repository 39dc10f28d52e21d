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

// startTimeout bounds the start of a server.
const startTimeout = 60 * time.Second

// Target is a server, or a fleet's nodes, that is measured.
type Target struct {
	// Addrs and Ops are base URLs, of the API and of the ops address of each node.
	Addrs, Ops []string
	// Token lets in.
	Token string
}

// Server is a `parleyd dev` of the bench's own, in a directory of its own.
type Server struct {
	Target

	binary string
	dir    string
	env    []string
	proc   *process // nil while it does not run
	closed bool
	// redis is the socket of its redis-server; empty if it runs none.
	redis string
}

// StartServer starts a server of the bench's own and waits until it is ready. Its environment's settings are `parleyd
// dev`'s with env over them, as in PARLEY_LIMITS_HEARTBEAT_INTERVAL=1s. The caller must Close it.
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

// readyLine is the first line of what `parleyd dev` prints once it serves.
var readyLine = regexp.MustCompile(`is ready on (http://\S+) .*metrics on (http://[^\s)]+)`)

// cacheLine is one of the next, and tells the socket of its redis-server if it has one.
var cacheLine = regexp.MustCompile("^ *cache and queues: (?:.*`redis-cli -s ([^`]+)`)?")

// run starts the process and waits until it serves.
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
				return fmt.Errorf("it said no address: %w", err)
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

// ready waits until the server calls itself ready.
func (s *Server) ready(ctx context.Context) error {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Ops[0]+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := metricsClient.Do(req)
		if err == nil {
			_ = resp.Body.Close() // nothing in it is wanted
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		if pause(ctx, 20*time.Millisecond); ctx.Err() != nil {
			return errors.New("it does not become ready")
		}
	}
}

// PID is the process's id; 0 while it does not run.
func (s *Server) PID() int {
	if s.proc == nil {
		return 0
	}
	return s.proc.cmd.Process.Pid
}

// Kill ends the process by SIGKILL and waits until it is gone. Its redis-server goes on; the next start ends that.
func (s *Server) Kill() {
	if s.proc != nil {
		s.proc.kill()
		s.proc = nil
	}
}

// Restart starts a server that was killed again, on the same data and the same addresses.
func (s *Server) Restart(ctx context.Context) error {
	host := func(urls []string) string { return strings.TrimPrefix(urls[0], "http://") }
	return s.run(ctx, host(s.Addrs), host(s.Ops))
}

// Close ends the server in good order and removes its data. One that was killed is started once more, which ends what
// it left behind. Safe twice.
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
