package rig

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// keeperScript learns which processes run, and once its standard input ends it kills them and removes $ROOT. The input
// ends when the process that holds the other end does, in whatever way.
const keeperScript = `trap '' INT TERM HUP
pids=
while read -r verb pid; do
	rest=
	for p in $pids; do [ "$p" = "$pid" ] || rest="$rest $p"; done
	pids=$rest
	[ "$verb" = end ] || pids="$pids $pid"
done
[ -z "$pids" ] || kill -9 $pids 2>/dev/null
for try in 1 2 3 4 5 6 7 8 9 10; do
	rm -rf "$ROOT" 2>/dev/null
	[ -e "$ROOT" ] || exit 0
	sleep 0.2
done`

// keeper is a small shell beside this process that ends what this process started and could not end: nothing of Go runs
// after a SIGKILL or a test's time limit.
type keeper struct {
	root string

	mu    sync.Mutex
	stdin io.Writer
}

// theKeeper is this process's one; it is started with the first child or temporary directory.
var theKeeper = sync.OnceValues(startKeeper)

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
	// A group of its own: an interrupt at the terminal is for this process, which then ends in good order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the keeper: %w", err)
	}
	return &keeper{root: root, stdin: w}, nil
}

func (k *keeper) tell(verb string, pid int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, err := fmt.Fprintf(k.stdin, "%s %d\n", verb, pid)
	return err
}

// TempDir makes a directory that goes when this process ends, if it is not removed before. Its path is short enough for
// a unix socket in it.
func TempDir(prefix string) (string, error) {
	k, err := theKeeper()
	if err != nil {
		return "", err
	}
	return os.MkdirTemp(k.root, prefix+"-")
}
