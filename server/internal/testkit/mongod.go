package testkit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// watchdog runs its arguments and kills them once its standard input ends, which it does when the process that holds
// the other end has ended in whatever way. It then removes $DATA, unless a line said to keep it.
const watchdog = `"$@" >"$DATA/log" 2>&1 & pid=$!; echo $pid; line=; read -r line; kill -9 $pid 2>/dev/null; wait $pid 2>/dev/null
[ "$line" = keep ] || rm -rf "$DATA"`

// mongod is one server process, a member of a replica set. It ends with the process that started it.
type mongod struct {
	dir     string
	addr    string
	replSet string // empty for a server of its own
	// more are arguments beside the usual ones.
	more []string

	mu    sync.Mutex
	pid   int
	shell *exec.Cmd
	stdin io.WriteCloser
}

// mongodBinary finds the mongod to run.
func mongodBinary() (string, error) {
	if bin := os.Getenv("MONGOD"); bin != "" {
		return bin, nil
	}
	root, err := repoRoot()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, ".cache", "mongod", "bin", "mongod")
	if _, err := os.Stat(bin); err != nil {
		return "", fmt.Errorf("no mongod: run hack/fetch-mongod.sh, or set MONGOD or MONGO_URI: %w", err)
	}
	return bin, nil
}

// repoRoot is the nearest folder above the test's that has a go.mod.
func repoRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod above the test")
		}
		dir = up
	}
}

// newMongod prepares a member with an empty data folder and a free port, and does not start it.
func newMongod(replSet string) (*mongod, error) {
	dir, err := os.MkdirTemp("", "parley-mongod-")
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	m := &mongod{dir: dir, addr: l.Addr().String(), replSet: replSet}
	return m, l.Close()
}

// start runs the server over its data folder. It does not wait until the server answers.
func (m *mongod) start() error {
	bin, err := mongodBinary()
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(m.addr)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	args := append([]string{
		"-c", watchdog, "mongod", bin, "--dbpath", m.dir, "--port", port, "--bind_ip", "127.0.0.1", "--nounixsocket",
		"--wiredTigerCacheSizeGB", "0.25",
		"--setParameter", "enableTestCommands=1", "--setParameter", "diagnosticDataCollectionEnabled=false",
	}, m.more...)
	if m.replSet != "" {
		args = append(args, "--replSet", m.replSet)
	}
	cmd := exec.Command("sh", args...)
	cmd.Env = append(os.Environ(), "DATA="+m.dir)
	// A group of its own, so that an interrupt at the terminal does not reach it before the tests have ended.
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
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return fmt.Errorf("start mongod: %w", err)
	}
	m.pid, err = strconv.Atoi(strings.TrimSpace(line))
	m.shell, m.stdin = cmd, stdin
	return err
}

// kill ends the server as kill -9 does and waits until it is gone. Its data stays.
func (m *mongod) kill() error { return m.end("keep\n") }

// remove ends the server and removes its data.
func (m *mongod) remove() error { return m.end("") }

func (m *mongod) end(line string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shell == nil {
		if line == "" {
			return os.RemoveAll(m.dir)
		}
		return nil
	}
	_, err := io.WriteString(m.stdin, line)
	err = errors.Join(err, m.stdin.Close())
	_ = m.shell.Wait() // the shell's code says nothing
	m.shell, m.pid = nil, 0
	return err
}

func (m *mongod) signal(sig syscall.Signal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pid == 0 {
		return fmt.Errorf("mongod %s is not running", m.addr)
	}
	return syscall.Kill(m.pid, sig)
}

// logTail is the end of the server's log, for a failure's message.
func (m *mongod) logTail() string {
	data, err := os.ReadFile(filepath.Join(m.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}
