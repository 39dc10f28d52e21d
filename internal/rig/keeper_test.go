package rig_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parleyhq/parley/internal/rig"
)

// TestKeeperCleansUpAfterKilledProcess runs this test binary again and kills it while it holds a
// halted redis-server, which can't end on its own. It then checks that the server and its directory
// are gone.
func TestKeeperCleansUpAfterKilledProcess(t *testing.T) {
	const hold = "PARLEY_RIG_HOLD"
	if os.Getenv(hold) != "" {
		dir, err := rig.TempDir("hold")
		if err != nil {
			t.Fatal(err)
		}
		r, err := rig.StartRedis(t.Context(), rig.RedisConfig{Dir: dir, Addr: filepath.Join(dir, "redis.sock")})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Stop(); err != nil {
			t.Fatal(err)
		}
		fmt.Println("socket:" + r.Addr())
		select {}
	}
	t.Parallel()
	child := exec.Command(os.Args[0], "-test.run=^TestKeeperCleansUpAfterKilledProcess$")
	child.Env = append(os.Environ(), hold+"=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var socket string
	for lines := bufio.NewScanner(out); socket == "" && lines.Scan(); {
		if path, ok := strings.CutPrefix(lines.Text(), "socket:"); ok {
			socket = path
		}
	}
	conn, err := net.Dial("unix", socket) // the kernel accepts it for the halted server
	if err != nil {
		t.Fatalf("the child's server is not there: %v", err)
	}
	defer conn.Close()
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("redis-server outlived the process that started it")
	}
	for ctx := within(t, 10*time.Second); ; {
		if _, err := os.Stat(filepath.Dir(socket)); errors.Is(err, os.ErrNotExist) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal("its directory is still there")
		case <-time.After(10 * time.Millisecond):
		}
	}
}
