package redisproc_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/redisproc"
	"github.com/parleyhq/parley/server/internal/testkit"
)

func start(t *testing.T, dir string) *redisproc.Process {
	t.Helper()
	p, err := redisproc.New(redisproc.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		_ = p.Stop(ctx)
	})
	return p
}

func client(t *testing.T, p *redisproc.Process) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: p.Socket()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func pid(t *testing.T, c *redis.Client) int {
	t.Helper()
	for line := range strings.Lines(c.Info(t.Context(), "server").Val()) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "process_id:"); ok {
			n, err := strconv.Atoi(v)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("INFO shows no process_id")
	return 0
}

func TestProcessStartsAndStops(t *testing.T) {
	t.Parallel()
	lifecycletest.Stress[*redisproc.Process](t, func(t *testing.T) *redisproc.Process {
		p, err := redisproc.New(redisproc.Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		return p
	})
}

func TestStopKeepsData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir)
	if err := client(t, p).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	p = start(t, dir)
	if got := client(t, p).Get(t.Context(), "k").Val(); got != "v" {
		t.Fatalf("after a restart k is %q", got)
	}
}

const childDir = "PARLEY_TEST_REDISPROC_DIR"

// TestMain can run this test binary as a parleyd to be killed: it starts a redis-server, reports
// it, and waits.
func TestMain(m *testing.M) {
	dir := os.Getenv(childDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	p, err := redisproc.New(redisproc.Config{Dir: dir})
	if err == nil {
		err = p.Start(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(p.Socket())
	select {}
}

func TestStartStopsAnOrphan(t *testing.T) {
	t.Parallel()
	for name, stopped := range map[string]bool{"that answers": false, "that hangs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			parent := exec.Command(os.Args[0])
			parent.Env = append(os.Environ(), childDir+"="+dir)
			out, err := parent.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := parent.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			orphan := redis.NewClient(&redis.Options{Network: "unix", Addr: strings.TrimSpace(line)})
			defer orphan.Close()
			old := pid(t, orphan)
			if err := orphan.Set(t.Context(), "k", "v", 0).Err(); err != nil {
				t.Fatal(err)
			}
			_ = parent.Process.Kill()
			_ = parent.Wait()
			if err := syscall.Kill(old, 0); err != nil {
				t.Fatalf("the server ended with its parent: %v", err)
			}
			if stopped {
				_ = syscall.Kill(old, syscall.SIGSTOP)
			}
			p := start(t, dir)
			now := client(t, p)
			if got := pid(t, now); got == old {
				t.Fatalf("the server is still %d", got)
			}
			if v := now.Get(t.Context(), "k").Val(); v != "v" {
				t.Fatalf("k is %q after the orphan was replaced", v)
			}
			testkit.Eventually(t, 5*time.Second, func() error { return gone(old) })
		})
	}
}

// gone returns nil if a process has ended, even if its new parent has not waited for it yet.
func gone(pid int) error {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil || strings.Contains(string(stat), ") Z ") {
		return nil //nolint:nilerr // a process without a row has ended
	}
	return fmt.Errorf("%d still runs", pid)
}

func TestDeadServerIsRestarted(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	c := client(t, p)
	if err := syscall.Kill(pid(t, c), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() error { return c.Ping(t.Context()).Err() })
}

func TestLongDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	p := start(t, dir)
	if err := client(t, p).Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}
