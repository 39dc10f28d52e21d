package testkit

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func TestRedisAppendOnlySurvivesKill(t *testing.T) {
	t.Parallel()
	s := Redis(t, RedisAppendOnly())
	c := s.Client(t)
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := c.Get(t.Context(), "k").Err(); err == nil {
		t.Fatal("a killed server answered")
	}
	s.Start()
	Eventually(t, 5*time.Second, func() error { return c.Get(t.Context(), "k").Err() })
	s.Stop()
	s.Cont()
	if got := c.Get(t.Context(), "k").Val(); got != "v" {
		t.Fatalf("after Stop and Cont: %q", got)
	}
}

func TestNATSRestartsOnItsPort(t *testing.T) {
	t.Parallel()
	s := NATS(t)
	for range 2 {
		nc, err := nats.Connect(s.URL())
		if err != nil {
			t.Fatal(err)
		}
		js, err := nc.JetStream()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.AccountInfo(); err != nil {
			t.Fatal(err)
		}
		nc.Close()
		s.Stop()
		s.Start()
	}
}

// TestRedisEndsWithAKilledTestProcess runs this test binary again, kills it while it has a
// redis-server, and checks that the server stops answering.
func TestRedisEndsWithAKilledTestProcess(t *testing.T) {
	if os.Getenv("PARLEY_TESTKIT_HOLD") != "" {
		fmt.Println("socket:" + Redis(t).Addr())
		select {}
	}
	t.Parallel()
	child := exec.Command(os.Args[0], "-test.run=^TestRedisEndsWithAKilledTestProcess$")
	child.Env = append(os.Environ(), "PARLEY_TESTKIT_HOLD=1")
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
	if _, err := net.Dial("unix", socket); err != nil {
		t.Errorf("the child's server does not answer: %v", err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(socket)) })
	if runtime.GOOS != "linux" {
		return
	}
	Eventually(t, 5*time.Second, func() error {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return nil //nolint:nilerr // that is what is waited for
		}
		_ = conn.Close()
		return errors.New("redis-server outlived its test")
	})
}
