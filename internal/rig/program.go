package rig

import (
	"context"
	"syscall"
)

// Program is any other command that a run needs beside its fleet and breaks, as a worker of a queue. One life at a time. Its methods
// may be called concurrently, but faults are for one goroutine at a time.
type Program struct{ proc process }

// ProgramConfig says what a Program runs.
type ProgramConfig struct {
	// Name is for errors.
	Name string
	// Path and Args are the command.
	Path string
	Args []string
	// Env are variables beside this process's own, of which those named PARLEY_* are left out.
	Env []string
	// Log is the file that both outputs of all lives are appended to.
	Log string
}

// NewProgram makes a program. It does not start it.
func NewProgram(c ProgramConfig) *Program {
	return &Program{proc: process{name: c.Name, path: c.Path, args: c.Args, env: c.Env, log: c.Log}}
}

// Start starts the program, unless it runs.
func (p *Program) Start() error { return p.proc.start() }

// Running reports whether the process exists, be it stopped.
func (p *Program) Running() bool { return p.proc.current() != nil }

// Exited gives a channel that is closed when the present life ends, and is closed already if there is none.
func (p *Program) Exited() <-chan struct{} { return p.proc.exited() }

// Err gives what the last life ended with: nil for exit code 0, and while it runs.
func (p *Program) Err() error {
	p.proc.mu.Lock()
	defer p.proc.mu.Unlock()
	if p.proc.run == nil || !p.proc.run.ended() {
		return nil
	}
	return p.proc.run.err
}

// Kill ends the program by SIGKILL and waits until it is gone. It does nothing if it does not run.
func (p *Program) Kill() { p.proc.kill() }

// Term ends the program by SIGTERM and waits. An exit code other than 0 is an error, and so is the end of ctx before the program's; it
// is then still there.
func (p *Program) Term(ctx context.Context) error { return p.proc.term(ctx) }

// Stop halts the program with SIGSTOP: its connections stay and nothing answers.
func (p *Program) Stop() error { return p.proc.signal(syscall.SIGSTOP) }

// Cont lets a stopped program run on.
func (p *Program) Cont() error { return p.proc.signal(syscall.SIGCONT) }

// LogTail is the end of what it has written, for a failure's message.
func (p *Program) LogTail() string { return p.proc.logTail() }
