// Package node_test runs the Node example. It requires node on the PATH, `npm ci`, and the built
// TypeScript SDK (`npm run build -w sdk/ts`).
package node_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	parley "github.com/parleyhq/parley/sdk/go"
	"github.com/parleyhq/parley/sdk/go/parleytest"
	"github.com/parleyhq/parley/server/servertest"
)

// digest is a running digest.js.
type digest struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func start(ctx context.Context, t *testing.T, addr, token string) *digest {
	t.Helper()
	cmd := exec.CommandContext(ctx, "node", "digest.js", "room")
	cmd.Env = append(os.Environ(), "PARLEY_ADDR="+addr, "PARLEY_TOKEN="+token)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &digest{t: t, cmd: cmd, lines: bufio.NewScanner(out)}
}

// until waits for the line last and returns the lines up to and including it.
func (d *digest) until(last string) []string {
	d.t.Helper()
	var lines []string
	for d.lines.Scan() {
		lines = append(lines, d.lines.Text())
		if d.lines.Text() == last {
			return lines
		}
	}
	d.t.Fatalf("the script ended without %q: %q", last, lines)
	return nil
}

// rest interrupts the script, waits for its end and returns the rest of its output.
func (d *digest) rest() []string {
	d.t.Helper()
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
		d.t.Fatal(err)
	}
	var lines []string
	for d.lines.Scan() {
		lines = append(lines, d.lines.Text())
	}
	if err := d.cmd.Wait(); err != nil {
		d.t.Errorf("the script ended with: %v", err)
	}
	return lines
}

func TestDigest(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := servertest.Dev(t)
	client, err := parley.New(s.URL, parley.WithToken(s.Token))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	say := func(from, text string) string {
		receipt, err := client.Send(ctx, "room", text, parley.WithSender(from))
		if err != nil {
			t.Fatal(err)
		}
		return receipt.MsgID
	}
	for i := range 1200 { // more than a page
		say([]string{"ann", "ben"}[i%2], fmt.Sprint("line ", i))
	}
	say("cleo", "three words here")
	d := start(ctx, t, s.URL, s.Mint("reader", "history", "subscribe"))
	want := []string{
		"ann: 1200 words in 600 messages", "ben: 1200 words in 600 messages", "cleo: 3 words in 1 messages", "following room",
	}
	if diff := cmp.Diff(want, d.until("following room")); diff != "" {
		t.Errorf("the digest (-want +got):\n%s", diff)
	}

	own := say("tester", "one two three four")
	if _, err := client.Edit(ctx, "room", own, "one two"); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	s.Start()
	gone := say("tester", "this will be gone")
	if _, err := client.Recall(ctx, "room", gone); err != nil {
		t.Fatal(err)
	}
	say("ann", "the last one")
	d.until("ann sent: the last one")
	want = []string{
		"", "ann: 1203 words in 601 messages", "ben: 1200 words in 600 messages", "cleo: 3 words in 1 messages",
		"tester: 2 words in 2 messages",
	}
	if diff := cmp.Diff(want, d.rest()); diff != "" {
		t.Errorf("the digest in the end (-want +got):\n%s", diff)
	}
}

// TestInterruptWhileLoading interrupts the script while it loads the history from a server that
// does not answer. It must end at once, without a digest.
func TestInterruptWhileLoading(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s := parleytest.Start(t)
	loading := make(chan struct{})
	var once sync.Once
	s.Fault(func(method string, _ proto.Message) *parleytest.Fault {
		if method != "ListMessages" {
			return nil
		}
		once.Do(func() { close(loading) })
		return &parleytest.Fault{
			Err: parleytest.Error(connect.CodeUnavailable, parleyv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE),
		}
	})
	d := start(ctx, t, "http://"+s.Addr(), "reader")
	select {
	case <-loading:
	case <-ctx.Done():
		t.Fatal("the script loads no history")
	}
	if lines := d.rest(); len(lines) != 0 {
		t.Errorf("the script printed %q", lines)
	}
}

func TestDigestRequiresToken(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "node", "digest.js")
	cmd.Env = append(os.Environ(), "PARLEY_TOKEN=")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "PARLEY_TOKEN") {
		t.Errorf("without a token: %v, output %q", err, out)
	}
}
