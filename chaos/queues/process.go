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

	"github.com/parleyhq/parley/chaos"
)

// ConsumeFlag is the argument with which a program is a consumer: its main calls Consume and ends.
const ConsumeFlag = "-consume"

// Consume is a consumer that is a process of its own. It reads what to do from a line of in, tells what it does by lines
// on out, each written before it goes on, and ends when in does.
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
		_, _ = lines.ReadByte() // until its end
		cancel()
	}()
	if c.SDK {
		return handle(ctx, c, &pipe{out: out})
	}
	newConsumer(c, &pipe{out: out}).run(ctx)
	return nil
}

// pipe tells another process's recorder.
type pipe struct {
	mu  sync.Mutex // guards out
	out io.Writer
}

func (p *pipe) write(l line) {
	data, err := json.Marshal(l)
	if err != nil {
		return // it has no value that can't be written
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.out.Write(append(data, '\n')) // fails once the run is gone, and then nobody reads
}

// worker is a consumer's process, which can be started again and again.
type worker struct {
	consumer Consumer
	out      sink

	mu    sync.Mutex // guards what follows
	cmd   *exec.Cmd
	stdin io.Closer
	life  int
	read  chan struct{} // closed when all that the process told is recorded
}

// start starts the process, unless it runs.
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
	c.Name = fmt.Sprintf("%s-%d", c.Name, w.life) // ids of calls are made of it
	text, err := json.Marshal(c)
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
	go func(read chan struct{}) {
		defer close(read)
		dec := json.NewDecoder(bufio.NewReaderSize(stdout, 1<<20))
		for {
			var l line
			if dec.Decode(&l) != nil {
				return
			}
			w.out.write(l)
		}
	}(w.read)
	return nil
}

// name is the present life's.
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

// kill ends the process by SIGKILL, and records what it had told.
func (w *worker) kill() {
	_ = w.signal(syscall.SIGKILL)
	w.wait()
}

// stop lets the process end by itself.
func (w *worker) stop() {
	w.mu.Lock()
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
	_ = w.cmd.Wait() // how a killed process ended is known
	w.cmd = nil
}

// The faults of consumers that are processes.
const (
	ConsumerKill chaos.FaultName = "consumer-kill" // kill -9 while it holds leases, and a new one a moment later
	ConsumerStop chaos.FaultName = "consumer-stop" // SIGSTOP past its ack timeout, and SIGCONT
)

// breaks are the faults of a run's consumers.
func breaks(workers []*worker) map[chaos.FaultName]chaos.Break {
	pick := func(p chaos.Planned) *worker { return workers[p.Node%len(workers)] }
	return map[chaos.FaultName]chaos.Break{
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
