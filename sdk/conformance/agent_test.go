package conformance_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// agentEnds is how long an agent's process may take to end after its stdin was closed.
const agentEnds = 10 * time.Second

// agent is a running agent process. Safe for concurrent use.
type agent struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	// exited is closed when the process has ended. err is then its error.
	exited chan struct{}
	err    error

	mu      sync.Mutex // guards the fields below
	stderr  bytes.Buffer
	last    int64
	waiting map[int64]chan reply
}

// reply is an agent's answer to one command.
type reply struct {
	ID     int64          `json:"id"`
	Result map[string]any `json:"result"`
	Error  map[string]any `json:"error"`

	// at is when the answer arrived. took is the time from the command to the answer.
	at   time.Time
	took time.Duration
}

// startAgent starts the agent, and ends it with the test. The test fails if the agent does not end
// properly.
func startAgent(t *testing.T, command []string) *agent {
	t.Helper()
	a := &agent{
		cmd:    exec.Command(command[0], command[1:]...),
		exited: make(chan struct{}), waiting: make(map[int64]chan reply),
	}
	a.cmd.Dir = root(t)
	a.cmd.Stderr = agentLog{a}
	stdin, err := a.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	a.stdin = stdin
	if err := a.cmd.Start(); err != nil {
		t.Fatalf("start the agent: %v", err)
	}
	go a.read(stdout)
	t.Cleanup(func() { a.end(t) })
	return a
}

// agentLog appends what is written to it to the agent's stderr.
type agentLog struct{ a *agent }

func (l agentLog) Write(p []byte) (int, error) {
	l.a.mu.Lock()
	defer l.a.mu.Unlock()
	return l.a.stderr.Write(p)
}

func (a *agent) read(stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var r reply
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			a.mu.Lock()
			fmt.Fprintf(&a.stderr, "driver: not an answer: %s\n", lines.Bytes())
			a.mu.Unlock()
			continue
		}
		r.at = time.Now()
		a.mu.Lock()
		c := a.waiting[r.ID]
		delete(a.waiting, r.ID)
		a.mu.Unlock()
		if c != nil {
			c <- r
		}
	}
	a.err = errors.Join(lines.Err(), a.cmd.Wait())
	close(a.exited)
}

// end closes the agent's stdin and waits until the process has ended. It fails the test if the
// process takes longer than agentEnds or ends with an error.
func (a *agent) end(t *testing.T) {
	t.Helper()
	_ = a.cmd.Process.Signal(syscall.SIGCONT) // a failed scenario may have left it stopped
	_ = a.stdin.Close()
	select {
	case <-a.exited:
		if a.err != nil {
			t.Errorf("the agent ended with: %v", a.err)
		}
	case <-time.After(agentEnds):
		t.Errorf("the agent did not end within %s of its input", agentEnds)
		_ = a.cmd.Process.Kill()
		<-a.exited
	}
	if t.Failed() {
		a.mu.Lock()
		defer a.mu.Unlock()
		t.Logf("the agent's output:\n%s", tail(a.stderr.Bytes()))
	}
}

func tail(text []byte) []byte { return text[max(0, len(text)-6000):] }

// command is a command that was sent to the agent.
type command struct {
	id     int64
	answer chan reply
}

// begin sends the agent a command and does not wait for the answer.
func (a *agent) begin(op string, args any) (*command, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	c := &command{id: a.last, answer: make(chan reply, 1)}
	line, err := json.Marshal(map[string]any{"id": c.id, "op": op, "args": args})
	if err != nil {
		return nil, err
	}
	a.waiting[c.id] = c.answer
	_, err = a.stdin.Write(append(line, '\n'))
	return c, err
}

// await waits for a command's answer.
func (a *agent) await(ctx context.Context, c *command) (reply, error) {
	select {
	case r := <-c.answer:
		return r, nil
	case <-a.exited:
		return reply{}, fmt.Errorf("the agent has ended: %w", a.err)
	case <-ctx.Done():
		return reply{}, errors.New("no answer in time")
	}
}

// call sends a command and waits for its answer.
func (a *agent) call(ctx context.Context, op string, args any) (reply, error) {
	c, err := a.begin(op, args)
	if err != nil {
		return reply{}, fmt.Errorf("write to the agent: %w", err)
	}
	return a.await(ctx, c)
}
