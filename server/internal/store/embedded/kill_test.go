package embedded

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/parleyhq/parley/server/internal/message"
)

// childDir is the environment variable with the directory to which a process of this test binary
// appends until it is killed.
const childDir = "PARLEY_TEST_APPEND_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		fmt.Fprintln(os.Stderr, appendForEver(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// appendForEver inserts entries into the store in dir and prints a line for each acknowledged one.
// It returns only after an error.
func appendForEver(dir string) error {
	s, err := Open(dir, Config{})
	if err != nil {
		return err
	}
	var g errgroup.Group
	for b := range defaultShards {
		g.Go(func() error {
			channels := []string{channelIn(b, 0), channelIn(b, 1)}
			for {
				var batch []message.Entry
				for _, c := range channels {
					h, err := s.Head(context.Background(), c)
					if err != nil {
						return err
					}
					for i := range int64(5) {
						batch = append(batch, sendEntry(c, h.Seq+1+i))
					}
				}
				if _, err := s.Insert(context.Background(), b, batch); err != nil {
					return err
				}
				for i := range batch {
					// One write each, so that a line is never printed in part.
					if _, err := fmt.Printf("%s %d\n", batch[i].ChannelID, batch[i].Seq); err != nil {
						return err
					}
				}
			}
		})
	}
	return g.Wait()
}

// TestKill kills a process that appends, three times over the same directory, and checks that all
// acknowledged entries exist.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	acked := map[string]int64{}
	for round := range 3 {
		countAcks(t, dir, 400*(round+1), acked)
		s, err := Open(dir, Config{})
		if err != nil {
			t.Fatalf("open after the kill: %v", err)
		}
		for channel, seq := range acked {
			wantLog(t, s, channel, seq, true)
		}
		closeStore(t, s)
	}
	if len(acked) != 2*defaultShards {
		t.Fatalf("%d channels were acknowledged, want %d", len(acked), 2*defaultShards)
	}
}

// countAcks runs a child process that inserts entries into dir, and kills it after n lines of its
// output. It reads the output to its end and raises acked to each channel's highest printed seq.
func countAcks(t *testing.T, dir string, n int, acked map[string]int64) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for scanner := bufio.NewScanner(out); scanner.Scan(); lines++ {
		var channel string
		var seq int64
		if _, err := fmt.Sscan(scanner.Text(), &channel, &seq); err != nil {
			continue // the line cut off by the kill
		}
		acked[channel] = max(acked[channel], seq)
		if lines == n {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // killed
	if lines < n {
		t.Fatalf("the child ended after %d acknowledgements", lines)
	}
}
