package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopTimeout is the time that a process has to exit when asked to.
const stopTimeout = 20 * time.Second

// process is a child process.
type process struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	// errors holds the end of the child's error output.
	errors *tailBuffer
	exited chan struct{}
	err    error // of Wait; may be read after exited is closed
}

// start starts a command with its arguments. name is for errors, and env adds to the environment.
// The caller must read the command's standard output.
func start(name string, argv, env []string) (*process, error) {
	p := &process{name: name, errors: &tailBuffer{}, exited: make(chan struct{})}
	p.cmd = exec.Command(argv[0], argv[1:]...) //nolint:gosec,noctx // the user's own; its life is not a call's
	// PARLEY_ variables of the caller's shell would configure the server.
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PARLEY_") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stderr = p.errors
	// A process group of its own: an interrupt at the terminal must reach only this process, which
	// then stops the others in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// StdoutPipe does not work here: Wait closes it while it is read.
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.stdout, p.cmd.Stdout = read, write
	err = p.cmd.Start()
	_ = write.Close() // the child has it
	if err != nil {
		_ = read.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// kill kills the child with SIGKILL and waits until it has exited.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails if it is gone
	<-p.exited
	_ = p.stdout.Close()
}

// stop calls ask, which must ask the child to exit, and waits until it has. It kills a child that
// takes longer than stopTimeout, and returns an error then.
func (p *process) stop(ask func()) error {
	defer func() { _ = p.stdout.Close() }()
	ask()
	select {
	case <-p.exited:
	case <-time.After(stopTimeout):
		p.kill()
		return fmt.Errorf("%s did not end within %s", p.name, stopTimeout)
	}
	if p.err != nil {
		return p.failure()
	}
	return nil
}

// terminate asks the child to exit, by SIGTERM.
func (p *process) terminate() { _ = p.cmd.Process.Signal(syscall.SIGTERM) } // fails if it is gone

// failure returns an error about the child's exit, with its error output.
func (p *process) failure() error {
	return fmt.Errorf("%s ended: %w\n%s", p.name, p.err, p.errors.String())
}

// within runs read, which reads from the child, and returns early if ctx ends. Its errors contain
// the child's error output.
func (p *process) within(ctx context.Context, read func() error) error {
	done := make(chan error, 1)
	go func() { done <- read() }()
	select {
	case err := <-done:
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return errors.Join(err, p.failure())
		case <-time.After(time.Second):
			return fmt.Errorf("%s: %w\n%s", p.name, err, p.errors.String())
		}
	case <-ctx.Done():
		return fmt.Errorf("%s: %w\n%s", p.name, context.Cause(ctx), p.errors.String())
	}
}

// tailBuffer keeps the last 4 to 8 KiB written.
type tailBuffer struct {
	mu   sync.Mutex
	data []byte
}

// Write implements io.Writer.
func (t *tailBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if len(t.data) > 8<<10 {
		t.data = append([]byte(nil), t.data[len(t.data)-4<<10:]...)
	}
	return len(p), nil
}

// String returns the bytes kept, without surrounding space.
func (t *tailBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.data))
}

// FloorProcess is a floor that runs as a child process.
type FloorProcess struct {
	proc *process
	out  *json.Decoder
}

// StartFloor runs a floor of RunFloor as a child process. It runs until it is closed or done.
func (e *Env) StartFloor(kind string, args ...string) (*FloorProcess, error) {
	argv := append(append(append([]string(nil), e.Floor...), kind), args...)
	p, err := start("floor "+kind, argv, nil)
	if err != nil {
		return nil, err
	}
	return &FloorProcess{proc: p, out: json.NewDecoder(p.stdout)}, nil
}

// Read waits for the next JSON value that the floor writes, and decodes it into the pointer into.
func (f *FloorProcess) Read(ctx context.Context, into any) error {
	return f.proc.within(ctx, func() error { return f.out.Decode(into) })
}

// Close ends the floor and waits until it has exited.
func (f *FloorProcess) Close() error {
	return f.proc.stop(func() { _ = f.proc.stdin.Close() }) // a floor ends with its input
}

// StartFloorServer runs a floor that is a server, and returns it as a target once it serves. The
// caller must close the process.
func (e *Env) StartFloorServer(ctx context.Context, kind string, args ...string) (*Target, *FloorProcess, error) {
	f, err := e.StartFloor(kind, args...)
	if err != nil {
		return nil, nil, err
	}
	var at floorAddrs
	if err := f.Read(ctx, &at); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return &Target{Addrs: []string{at.Addr}, Ops: []string{at.Ops}, Token: "none"}, f, nil
}
