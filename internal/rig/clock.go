package rig

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// clockSource is a library that moves the clock of a process. libfaketime does the same for more
// programs, but not for a redis-server with jemalloc, which reads the clock before libfaketime has
// been initialized: "unexpected recursive calls to clock_gettime".
//
//go:embed clock/clock.c
var clockSource []byte

// clock is the wall clock of a process that starts with its variables.
type clock struct{ path string }

// newClock builds the library in dir. It requires a C compiler, and a dynamically linked program.
func newClock(ctx context.Context, dir string) (*clock, error) {
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return nil, err
	}
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "cc"
	}
	out, err := exec.CommandContext(ctx, compiler, "-shared", "-fPIC", "-O2", "-o", library, source).CombinedOutput() //nolint:gosec // the user's compiler
	if err != nil {
		return nil, fmt.Errorf("build a movable clock with %s: %w\n%s", compiler, err, out)
	}
	c := &clock{path: filepath.Join(dir, "clock")}
	return c, c.set(0)
}

// newNodeClock creates the clock of a program that reads it on its own.
func newNodeClock(path string) (*clock, error) {
	c := &clock{path: path}
	return c, c.set(0)
}

// env returns the variables of a process that has the clock.
func (c *clock) env() []string {
	return []string{"LD_PRELOAD=" + filepath.Join(filepath.Dir(c.path), "clock.so"), c.variable()}
}

// variable returns the variable that names the file of the clock: an offset in microseconds, as an
// int64 in this machine's byte order.
func (c *clock) variable() string { return "RIG_CLOCK=" + c.path }

// set moves the clock of running and later processes to this machine's time plus offset, rounded to
// microseconds.
func (c *clock) set(offset time.Duration) error {
	f, err := os.OpenFile(c.path, os.O_CREATE|os.O_WRONLY, 0o600) // not truncated: a process has mapped it
	if err != nil {
		return err
	}
	_, err = f.Write(binary.NativeEndian.AppendUint64(nil, uint64(offset.Microseconds()))) //nolint:gosec // two's complement
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
