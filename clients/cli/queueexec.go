package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	queue "github.com/parleyhq/parley/sdk/go/queue"
)

const (
	// execGrace is how long a command may take to end after SIGTERM. Afterwards, processes that it
	// started may keep its outputs open for the same time.
	execGrace = 5 * time.Second
	// maxExecLine bounds the buffered part of a line that a command writes. Longer lines are
	// written in pieces.
	maxExecLine = 64 << 10
)

// execJSON is the JSON form of a command's result. Code is exit-n, signal-n or exec-too-large. It
// is empty if the command was terminated.
type execJSON struct {
	OK     bool   `json:"ok"`
	Code   string `json:"code"`
	TookMS int64  `json:"took_ms"`
}

// execute runs the command for one message. Its error decides what happens to the message.
func (c *consumeRun) execute(ctx context.Context, d *queue.Delivery) error {
	c.commands.Add(1)
	defer c.commands.Done()
	began := time.Now()
	code, err := c.command(ctx, d)
	if code == "" && ctx.Err() == nil {
		return c.abort(fmt.Errorf("--exec: %w", err))
	}
	if c.s.flags.JSON {
		value := deliveryToJSON(d)
		value.Exec = &execJSON{OK: err == nil, Code: code, TookMS: time.Since(began).Milliseconds()}
		c.mu.Lock()
		writeErr := c.s.printer().print(value, "")
		c.mu.Unlock()
		if writeErr != nil {
			return c.abort(fmt.Errorf("write: %w", writeErr))
		}
	}
	if err == nil {
		return nil
	}
	c.printNote(fmt.Sprintf("%s: attempt %d failed: %s", d.MessageID, d.Attempt, err))
	return c.withFailureFlags(err, code)
}

// command runs the command and returns its code, exit-n or signal-n. err is nil only for exit-0.
// The code is empty if the command could not be started, if its output could not be written, or if
// ctx ended it. It is exec-too-large if the headers do not fit into the environment.
func (c *consumeRun) command(ctx context.Context, d *queue.Delivery) (code string, err error) {
	cmd := groupCommand(ctx, execGrace, "sh", "-c", c.Exec)
	cmd.Env = append(os.Environ(), environment(d)...)
	cmd.Stdin = bytes.NewReader(d.Payload)
	stdout := &lineWriter{mu: &c.mu, w: c.s.stdout}
	if c.s.flags.JSON {
		stdout.w = c.s.stderr // the output has one JSON object per line
	}
	stderr := &lineWriter{mu: &c.mu, w: c.s.stderr}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err = runGroup(ctx, cmd)
	stdout.end()
	stderr.end()
	if ctx.Err() != nil {
		return "", fmt.Errorf("the command was terminated: %w", context.Cause(ctx))
	}
	if stdout.err != nil {
		return "", fmt.Errorf("write: %w", stdout.err)
	}
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // processes that it left behind do not count
		return "exit-0", nil
	case errors.Is(err, syscall.E2BIG): // headers too long for an environment; no other attempt would help
		return "exec-too-large", err
	case !exited:
		return "", err
	}
	code = "exit-" + strconv.Itoa(exit.ExitCode())
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = "signal-" + strconv.Itoa(int(status.Signal()))
	}
	if stderr.last != "" {
		return code, fmt.Errorf("%w: %s", err, stderr.last)
	}
	return code, err
}

// groupCommand returns a command with its own process group: an interrupt at the terminal reaches
// only this process. The end of ctx sends SIGTERM to the group, and SIGKILL to the command after
// grace.
func groupCommand(ctx context.Context, grace time.Duration, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // the user's own
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = grace
	return cmd
}

// runGroup runs a command of groupCommand. If ctx has ended, it kills what is left of the process
// group: processes that ignored SIGTERM.
func runGroup(ctx context.Context, cmd *exec.Cmd) error {
	err := cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	return err
}

// environment returns the environment variables that describe a message to its command.
func environment(d *queue.Delivery) []string {
	headers := []byte("{}")
	if len(d.Headers) > 0 {
		headers, _ = json.Marshal(d.Headers) // strings only
	}
	env := []string{
		"PARLEY_TOPIC=" + d.Topic, "PARLEY_GROUP=" + d.Group, "PARLEY_MESSAGE_ID=" + d.MessageID,
		"PARLEY_PARTITION=" + strconv.Itoa(d.Partition), "PARLEY_KEY=" + d.Key, "PARLEY_ATTEMPT=" + strconv.Itoa(d.Attempt),
		"PARLEY_PRODUCE_TIME=" + d.ProduceTime.Format(timeFormat), "PARLEY_HEADERS=" + string(headers),
	}
	if parent := d.Headers["traceparent"]; parent != "" && !strings.ContainsRune(parent, 0) {
		env = append(env, "TRACEPARENT="+parent)
	}
	return env
}

// lineWriter writes whole lines, so that lines of concurrent commands are not mixed. It is for one
// command.
type lineWriter struct {
	mu *sync.Mutex // held to write to w
	w  io.Writer

	part []byte
	// last is the last line that was not empty.
	last string
	err  error
}

// Write implements io.Writer. It accepts everything: a command must not fail because of parley's
// output.
func (l *lineWriter) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	whole := bytes.LastIndexByte(l.part, '\n') + 1
	if whole == 0 && len(l.part) >= maxExecLine {
		whole = len(l.part)
	}
	l.flush(whole)
	return len(p), nil
}

// end writes the rest of the buffer as a line.
func (l *lineWriter) end() {
	if len(l.part) > 0 {
		l.part = append(l.part, '\n')
		l.flush(len(l.part))
	}
}

func (l *lineWriter) flush(n int) {
	if n == 0 {
		return
	}
	for line := range bytes.Lines(l.part[:n]) {
		if text := strings.TrimSpace(string(line)); text != "" {
			l.last = text
		}
	}
	l.mu.Lock()
	_, err := l.w.Write(l.part[:n])
	l.mu.Unlock()
	if err != nil && l.err == nil {
		l.err = err
	}
	l.part = append(l.part[:0], l.part[n:]...)
}
