package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// ErrNotRunning is returned by methods that require a running process, such as Stop and Term.
var ErrNotRunning = errors.New("the process is not running")

// process is a command that can be started repeatedly, one run at a time. Its methods may be called
// concurrently.
type process struct {
	name string // for errors
	path string
	args []string
	env  []string   // in addition to this process's own
	log  string     // file that both outputs are appended to
	ns   *Namespace // nil means this process's namespace
	// If unwatched is set, no goroutine waits for the process's end: only kill and term notice it.
	unwatched bool

	mu  sync.Mutex
	run *processRun // the last run; nil before the first
}

// processRun is one run of a process.
type processRun struct {
	cmd    *exec.Cmd
	keeper *keeper
	exited chan struct{}
	err    error // result of Wait; read it after exited is closed
	once   sync.Once
}

// reap waits until the process has exited, and reports that to the keeper. It may be called several
// times.
func (l *processRun) reap() {
	l.once.Do(func() {
		l.err = l.cmd.Wait()
		_ = l.keeper.send("end", l.cmd.Process.Pid)
		close(l.exited)
	})
}

func (l *processRun) ended() bool {
	select {
	case <-l.exited:
		return true
	default:
		return false
	}
}

// start starts the process, unless it is running. It does not wait until the process is ready.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil && !p.run.ended() {
		return nil
	}
	k, err := sharedKeeper()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	l := &processRun{keeper: k, exited: make(chan struct{})}
	l.cmd = exec.Command(p.path, p.args...) //nolint:gosec,noctx // the rig's own; its life is not a call's
	// PARLEY_ variables in the caller's shell are for Parley's programs; a node would read them as
	// its configuration.
	l.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PARLEY_") })
	l.cmd.Env = append(l.cmd.Env, p.env...)
	l.cmd.Stdout, l.cmd.Stderr = out, out
	// The child has its own process group: an interrupt at the terminal is for this process only,
	// which then ends its children in order.
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	started := make(chan error)
	go func() {
		err := p.enter()
		if err == nil {
			err = l.cmd.Start()
		}
		if err == nil {
			_ = k.send("start", l.cmd.Process.Pid) // fails if the keeper was killed, which is no reason to end a fleet
		}
		started <- err
		if err == nil && !p.unwatched {
			l.reap()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.run = l
	return nil
}

// enter moves the calling goroutine into the process's namespace. Its thread is never unlocked, so
// it ends with the goroutine.
func (p *process) enter() error {
	if p.ns == nil {
		return nil
	}
	runtime.LockOSThread()
	return p.ns.enter()
}

// current returns the current run, or nil.
func (p *process) current() *processRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil || p.run.ended() {
		return nil
	}
	return p.run
}

// exited returns a channel that is closed when the current run ends. It is already closed if there
// is none.
func (p *process) exited() <-chan struct{} {
	if l := p.current(); l != nil {
		return l.exited
	}
	closed := make(chan struct{})
	close(closed)
	return closed
}

// signal sends sig to the process, or returns ErrNotRunning.
func (p *process) signal(sig syscall.Signal) error {
	l := p.current()
	if l == nil {
		return fmt.Errorf("%s: %w", p.name, ErrNotRunning)
	}
	if err := l.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// kill ends the process with SIGKILL and waits until it has exited. It does nothing if the process
// does not run.
func (p *process) kill() {
	l := p.current()
	if l == nil {
		return
	}
	_ = l.cmd.Process.Signal(syscall.SIGKILL) // fails only if the process has exited
	l.reap()
}

// term ends the process with SIGTERM and waits. It returns nil for exit code 0, else the exit
// error, or ctx's error if ctx ends first.
func (p *process) term(ctx context.Context) error {
	l := p.current()
	if l == nil {
		return fmt.Errorf("%s: %w", p.name, ErrNotRunning)
	}
	_ = l.cmd.Process.Signal(syscall.SIGTERM)
	go l.reap()
	select {
	case <-l.exited:
	case <-ctx.Done():
		return fmt.Errorf("%s does not exit: %w", p.name, ctx.Err())
	}
	if l.err != nil {
		return fmt.Errorf("%s: %w", p.name, l.err)
	}
	return nil
}

// ready calls check until it returns nil. It returns an error with the end of the log when ctx or
// the process ends, or after startTimeout.
func (p *process) ready(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	exited := p.exited()
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-exited:
			stop()
		case <-waiting.Done():
		}
	}()
	err := poll(waiting, func() error { return check(waiting) })
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s is not ready: %w; its log ends with:\n%s", p.name, err, p.logTail())
}

// logTail returns the last 2,000 bytes of the log, for error messages.
func (p *process) logTail() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}

// pid returns the process id of the current run, 0 if there is none.
func (p *process) pid() int {
	if l := p.current(); l != nil {
		return l.cmd.Process.Pid
	}
	return 0
}
