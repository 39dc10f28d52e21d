package rig

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// keeperScript is a shell script that reads from its standard input which processes started and
// ended. When the input ends, it kills those that still run, and removes $ROOT and the disks in
// it. The input ends when
// the process that writes it does, for any reason.
const keeperScript = `trap '' INT TERM HUP
pids=
while read -r verb pid; do
	rest=
	for p in $pids; do [ "$p" = "$pid" ] || rest="$rest $p"; done
	pids=$rest
	[ "$verb" = end ] || pids="$pids $pid"
done
[ -z "$pids" ] || kill -9 $pids 2>/dev/null
while read -r _ dir _; do
	case $dir in "$ROOT"/*) umount -l "$dir" 2>/dev/null ;; esac
done 2>/dev/null </proc/self/mounts
for try in 1 2 3 4 5 6 7 8 9 10; do
	rm -rf "$ROOT" 2>/dev/null
	[ -e "$ROOT" ] || exit 0
	sleep 0.2
done`

// keeper is a shell beside this process that ends the children that this process could not end: no
// Go code runs after a SIGKILL or a test's time limit.
type keeper struct {
	root string

	mu    sync.Mutex
	stdin io.Writer
}

// sharedKeeper returns this process's keeper. It is started with the first child or temporary
// directory.
var sharedKeeper = sync.OnceValues(startKeeper)

func startKeeper() (*keeper, error) {
	root, err := os.MkdirTemp("", "parley-rig-")
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	cmd := exec.Command("sh", "-c", keeperScript) //nolint:noctx // it outlives this process by design
	cmd.Env = append(os.Environ(), "ROOT="+root)
	cmd.Stdin = r
	// The keeper has its own process group: an interrupt at the terminal is for this process only,
	// which then ends in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the keeper: %w", err)
	}
	return &keeper{root: root, stdin: w}, nil
}

func (k *keeper) send(verb string, pid int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, err := fmt.Fprintf(k.stdin, "%s %d\n", verb, pid)
	return err
}

// TempDir creates a directory and returns its path. The directory is removed when this process
// ends, if not before. The path is short enough for a unix socket in it.
func TempDir(prefix string) (string, error) {
	k, err := sharedKeeper()
	if err != nil {
		return "", err
	}
	return os.MkdirTemp(k.root, prefix+"-")
}
