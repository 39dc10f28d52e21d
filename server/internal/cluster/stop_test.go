package cluster_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/natsbus"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// childEnv is set in a process of this test binary that runs as a node.
const childEnv = "PARLEY_TEST_NODE"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	goleak.VerifyTestMain(m)
}

// child runs a node in this process, which the test has started. It prints how many of 64 buckets
// the node owns, each time that changes, and ends at the end of standard input.
func child() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	bus, err := natsbus.Connect(ctx, natsbus.Config{URL: os.Getenv(childEnv), Shards: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := cluster.NewRoster(cluster.RosterConfig{Transport: bus.Nodes(), Probe: bus.Ping})
	if err := r.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	told := -1
	tick := time.NewTicker(time.Millisecond)
	for ctx.Err() == nil {
		if n := owned(r); n != told {
			fmt.Println(n)
			told = n
		}
		<-tick.C
	}
}

func owned(r *cluster.Roster) int {
	n := 0
	for bucket := range 64 {
		if r.Owns(bucket) {
			n++
		}
	}
	return n
}

func TestResumedNodeOwnsNoBuckets(t *testing.T) {
	t.Parallel()
	url := testkit.NATS(t).URL()
	bus, err := natsbus.Connect(t.Context(), natsbus.Config{URL: url, Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() })
	here := cluster.NewRoster(cluster.RosterConfig{Transport: bus.Nodes(), Probe: bus.Ping})
	lifecycletest.Start(t, here)

	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+url)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 1024)
	go func() {
		defer close(said)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			said <- lines.Text()
		}
	}()
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = stdin.Close()
		for range said { // until it has ended
		}
		_ = cmd.Wait()
	}()
	// share waits until the two nodes have divided the buckets, and returns the lines that the other
	// process has printed meanwhile.
	share := func() (all []string) {
		t.Helper()
		patience, tick := time.After(patience), time.Tick(time.Millisecond) // the nodes find each other one by one
		for {
			select {
			case s, ok := <-said:
				all = append(all, s)
				if !ok {
					t.Fatalf("the other process ended: %q", all)
				}
			case <-tick:
				if n := owned(here); n > 0 && n < 64 && len(all) > 0 && all[len(all)-1] == fmt.Sprint(64-n) {
					return all
				}
			case <-patience:
				t.Fatalf("the other process said %q, and %d are here", all, owned(here))
			}
		}
	}
	if first := share(); first[0] != "0" {
		t.Errorf("a new process said %q", first)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	testkit.Eventually(t, patience, func() error {
		if n := owned(here); n != 64 {
			return fmt.Errorf("%d buckets are here", n)
		}
		return nil
	})
	if took := time.Since(stopped); took > 4*time.Second {
		t.Errorf("a process that was stopped is believed to live for %s", took)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if woken := share(); woken[0] != "0" {
		t.Errorf("when it woke it said %q", woken)
	}
}

const patience = 20 * time.Second
