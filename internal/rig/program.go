package rig

import (
	"context"
	"syscall"
)

// Program is a command outside the fleet, such as a queue worker, that can be started, killed and
// halted like a node. It has one run at a time. Methods may be called concurrently, but those that
// end, halt or resume it only by one goroutine at a time.
type Program struct{ proc process }

// ProgramConfig configures a Program.
type ProgramConfig struct {
	// Name appears in errors.
	Name string
	// Path and Args are the command.
	Path string
	Args []string
	// Env are variables in addition to this process's own, from which PARLEY_ variables are
	// removed.
	Env []string
	// Log is the file that both outputs of all runs are appended to.
	Log string
}

// NewProgram creates a program. It does not start it.
func NewProgram(c ProgramConfig) *Program {
	return &Program{proc: process{name: c.Name, path: c.Path, args: c.Args, env: c.Env, log: c.Log}}
}

// Start starts the program, unless it runs.
func (p *Program) Start() error { return p.proc.start() }

// Running reports whether the process exists, including one halted by Stop.
func (p *Program) Running() bool { return p.proc.current() != nil }

// Exited returns a channel that is closed when the current run ends. If the program does not run,
// the channel is already closed.
func (p *Program) Exited() <-chan struct{} { return p.proc.exited() }

// Err returns the error of the last run: nil for exit code 0, while it runs, and before the first
// run.
func (p *Program) Err() error {
	p.proc.mu.Lock()
	defer p.proc.mu.Unlock()
	if p.proc.run == nil || !p.proc.run.ended() {
		return nil
	}
	return p.proc.run.err
}

// Kill ends the program with SIGKILL and waits until it has exited. It does nothing if the program
// does not run.
func (p *Program) Kill() { p.proc.kill() }

// Term ends the program with SIGTERM and waits. It returns an error if the exit code is not 0, or
// if ctx ends first; the program then still runs.
func (p *Program) Term(ctx context.Context) error { return p.proc.term(ctx) }

// Stop halts the program with SIGSTOP: its connections stay open and nothing answers.
func (p *Program) Stop() error { return p.proc.signal(syscall.SIGSTOP) }

// Cont resumes a halted program.
func (p *Program) Cont() error { return p.proc.signal(syscall.SIGCONT) }

// LogTail returns the last 2,000 bytes of the log, for error messages.
func (p *Program) LogTail() string { return p.proc.logTail() }
