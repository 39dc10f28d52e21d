package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespaceEnv is set in a process that RunInNamespace started.
const namespaceEnv = "PARLEY_RIG_NAMESPACE"

// InNamespace reports whether this process was started by RunInNamespace.
func InNamespace() bool { return os.Getenv(namespaceEnv) != "" }

// RunInNamespace runs this program again, with the same arguments, in a new network namespace with
// loopback up, and with mounts of its own. It forwards SIGINT and SIGTERM, waits, and returns the
// exit code. A main or TestMain begins with it:
//
//	if !rig.InNamespace() {
//		code, err := rig.RunInNamespace()
//		...
//		os.Exit(code)
//	}
//
// The namespace has no route out, so anything that requires the network must be done before, such
// as a build with modules that were never downloaded. RunInNamespace requires root, or a kernel
// that lets users create user namespaces, and the ip command (Debian package iproute2).
func RunInNamespace() (code int, err error) {
	if _, err := exec.LookPath("ip"); err != nil {
		return 1, fmt.Errorf("the ip command (Debian package iproute2): %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	// The child dies with the thread that forks it, so this thread must live until the end.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	args := append([]string{"-c", `mount --make-rprivate / && ip link set lo up && exec "$@"`, "sh", self}, os.Args[1:]...)
	cmd := exec.Command("sh", args...) //nolint:gosec,noctx // this very program; signals end it
	cmd.Env = append(os.Environ(), namespaceEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if uid := os.Getuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("make a network namespace: %w", err)
	}
	done := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				_ = cmd.Process.Signal(s)
			case <-done:
				return
			}
		}
	}()
	err = cmd.Wait()
	close(done)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// Namespace is an unnamed network namespace. It ends once it is closed and the last process in it
// has exited. It is safe for concurrent use.
type Namespace struct {
	name string
	file *os.File
}

// NewNamespace creates a namespace in which only the loopback interface is up. name appears in
// errors. The requirements are those of RunInNamespace.
func NewNamespace(ctx context.Context, name string) (*Namespace, error) {
	n := &Namespace{name: name}
	made := make(chan error)
	go func() {
		// Never unlocked: the thread can't be used again, and ends with this goroutine.
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.file, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		}
		made <- err
	}()
	if err := <-made; err != nil {
		return nil, fmt.Errorf("make namespace %s: %w", name, err)
	}
	if err := n.IP(ctx, "link set lo up"); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// enter moves the calling thread into the namespace. The thread must be locked and must not be used
// for anything else afterwards.
func (n *Namespace) enter() error {
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter namespace %s: %w", n.name, err)
	}
	return nil
}

// Do runs fn in the namespace. Sockets that fn creates and processes that it starts stay in the
// namespace. Existing sockets stay where they are. Goroutines that fn starts are not in the
// namespace.
func (n *Namespace) Do(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, see NewNamespace
		err := n.enter()
		if err == nil {
			err = fn()
		}
		done <- err
	}()
	return <-done
}

// Listen listens on a TCP address of the namespace. Any goroutine of this process may use the
// listener.
func (n *Namespace) Listen(ctx context.Context, addr string) (l net.Listener, err error) {
	err = n.Do(func() error {
		l, err = new(net.ListenConfig).Listen(ctx, "tcp", addr)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", n.name, err)
	}
	return l, nil
}

// IP runs commands of ip(8) in the namespace, each without the leading ip.
func (n *Namespace) IP(ctx context.Context, commands ...string) error {
	return n.Do(func() error { return runIP(ctx, commands...) })
}

// path returns the path of a file that identifies the namespace to other processes, while this
// process lives.
func (n *Namespace) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

// Close releases the namespace.
func (n *Namespace) Close() error { return n.file.Close() }

// runIP runs commands of ip(8) in the calling thread's namespace.
func runIP(ctx context.Context, commands ...string) error {
	cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(commands, "; "), err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}
