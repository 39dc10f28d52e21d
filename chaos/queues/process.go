package queues

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/parleyhq/parley/chaos"
)

// ConsumeFlag is the argument that turns a program into a consumer: its main must call Consume and
// exit.
const ConsumeFlag = "-consume"

// Consume runs a consumer in a process of its own. It reads its Consumer from the first line of in,
// and writes every record to out as a line of JSON before it continues. It returns when in ends. It
// returns an error if that line is not a Consumer or the consumer can't start.
func Consume(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	text, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	var c Consumer
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = lines.ReadByte() // until the end of in
		cancel()
	}()
	if c.SDK {
		return handle(ctx, c, &pipe{out: out})
	}
	newConsumer(c, &pipe{out: out}).run(ctx)
	return nil
}

// pipe is a sink that sends lines to the recorder of another process.
type pipe struct {
	mu  sync.Mutex // guards out
	out io.Writer
}

func (p *pipe) write(l line) {
	data, err := json.Marshal(l)
	if err != nil {
		return // impossible: JSON can represent every value of a line
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.out.Write(append(data, '\n')) // fails only if the run has died, so nobody reads it
}

// worker is a consumer's process, which can be restarted.
type worker struct {
	consumer Consumer
	out      sink

	mu    sync.Mutex // guards the fields below
	cmd   *exec.Cmd
	stdin io.Closer
	life  int
	read  chan struct{} // closed when all output of the process is recorded
	// ending is set when the process must not start again.
	ending bool
}

// start starts the process unless it is running.
func (w *worker) start() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cmd != nil {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	w.life++
	c := w.consumer
	c.Name = fmt.Sprintf("%s-%d", c.Name, w.life) // unique ids of calls derive from it
	text, err := json.Marshal(c)                  //nolint:gosec // the secret of a fleet that lives as long as the run
	if err != nil {
		return err
	}
	cmd := exec.Command(self, ConsumeFlag) //nolint:gosec,noctx // this very program; it ends with its input
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if _, err := stdin.Write(append(text, '\n')); err != nil {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	w.cmd, w.stdin, w.read = cmd, stdin, make(chan struct{})
	go func(cmd *exec.Cmd, read chan struct{}) {
		defer func() { go w.revive(cmd) }()
		defer close(read)
		dec := json.NewDecoder(bufio.NewReaderSize(stdout, 1<<20))
		for {
			var l line
			if dec.Decode(&l) != nil {
				return
			}
			w.out.write(l)
		}
	}(w.cmd, w.read)
	return nil
}

// revive starts a process again that a message has killed.
func (w *worker) revive(cmd *exec.Cmd) {
	w.mu.Lock()
	if w.cmd != cmd {
		w.mu.Unlock()
		return // a fault has ended it
	}
	w.mu.Unlock()
	w.wait()
	if cmd.ProcessState.ExitCode() != lethalExit {
		return
	}
	<-time.After(time.Second)
	w.mu.Lock()
	ending := w.ending
	w.mu.Unlock()
	if !ending {
		_ = w.start() // else the fault that starts it next fails, or the check that it handled something
	}
}

// name returns the client name of the process that was started last.
func (w *worker) name() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("%s-%d", w.consumer.Name, w.life)
}

func (w *worker) signal(sig syscall.Signal) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cmd == nil {
		return nil
	}
	return w.cmd.Process.Signal(sig)
}

// kill kills the process with SIGKILL, and waits until its output is recorded.
func (w *worker) kill() {
	_ = w.signal(syscall.SIGKILL)
	w.wait()
}

// stop closes the process's input and waits until it has exited.
func (w *worker) stop() {
	w.mu.Lock()
	w.ending = true
	if w.cmd != nil {
		_ = w.stdin.Close()
	}
	w.mu.Unlock()
	w.wait()
}

func (w *worker) wait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cmd == nil {
		return
	}
	<-w.read
	_ = w.cmd.Wait() // fails for a killed process
	w.cmd = nil
}

// The faults of consumer processes.
const (
	ConsumerKill chaos.FaultName = "consumer-kill" // kill -9 while it holds leases, and a restart a moment later
	ConsumerStop chaos.FaultName = "consumer-stop" // SIGSTOP past its ack timeout, and SIGCONT
)

// breaks returns the run's own faults.
func (r *run) breaks() map[chaos.FaultName]chaos.Break {
	pick := func(p chaos.Planned) *worker { return r.workers[p.Node%len(r.workers)] }
	return map[chaos.FaultName]chaos.Break{
		KeysLost: r.loseKeys,
		ConsumerKill: func(_ context.Context, p chaos.Planned) (string, chaos.Mend, error) {
			w := pick(p)
			target := w.name()
			w.kill()
			return target, func(context.Context) error { return w.start() }, nil
		},
		ConsumerStop: func(_ context.Context, p chaos.Planned) (string, chaos.Mend, error) {
			w := pick(p)
			return w.name(), func(context.Context) error { return w.signal(syscall.SIGCONT) }, w.signal(syscall.SIGSTOP)
		},
	}
}
