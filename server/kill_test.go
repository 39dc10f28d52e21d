package server_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// binary builds parleyd, once per test process, and returns the path of the executable.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "parleyd-test-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "parleyd")
	out, err := exec.Command("go", "build", "-o", path, "./cmd/parleyd").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build parleyd: %w\n%s", err, out)
	}
	return path, nil
})

// process is a `parleyd dev` that runs as a child process, so that a test can kill it.
type process struct {
	t    *testing.T
	dir  string
	cmd  *exec.Cmd
	addr string
	done chan error
}

func startDev(t *testing.T, dir string) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(dir, "dev-addr"))
	p := &process{t: t, dir: dir, done: make(chan error, 1)}
	p.cmd = exec.Command(path, "dev", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--data-dir", dir)
	out, err := os.CreateTemp(t.TempDir(), "parleyd-*.log")
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	t.Cleanup(func() {
		p.end(syscall.SIGTERM)
		if t.Failed() {
			log, _ := os.ReadFile(out.Name())
			t.Logf("parleyd: %s", log)
		}
	})
	testkit.Eventually(t, 30*time.Second, func() error {
		select {
		case err := <-p.done:
			p.done <- err
			log, _ := os.ReadFile(out.Name())
			t.Fatalf("parleyd ended: %v\n%s", err, log)
		default:
		}
		addr, err := os.ReadFile(filepath.Join(dir, "dev-addr"))
		p.addr = strings.TrimSpace(string(addr))
		return err
	})
	return p
}

func (p *process) client() client {
	p.t.Helper()
	return parleyv1connect.NewMessageServiceClient(servertest.HTTPClient(p.t, p.token()), p.addr)
}

func (p *process) token() string {
	p.t.Helper()
	token, err := os.ReadFile(filepath.Join(p.dir, "dev-token"))
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(string(token))
}

// end sends a signal to the process and waits until it has ended.
func (p *process) end(sig os.Signal) {
	_ = p.cmd.Process.Signal(sig)
	select {
	case err := <-p.done:
		p.done <- err
	case <-time.After(30 * time.Second):
		p.t.Errorf("parleyd did not end by %s", sig)
		_ = p.cmd.Process.Kill()
	}
}

// redisServers counts the running redis-server processes that use a data directory.
func redisServers(dir string) int {
	n := 0
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range procs {
		line, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(line), "redis-server") && strings.Contains(string(line), dir) {
			n++
		}
	}
	return n
}

// TestKillLosesNoAcknowledgedMessage checks that after kill -9 at any moment the next start finds
// every acknowledged message once and in its place, and takes over the orphaned redis-server.
func TestKillLosesNoAcknowledgedMessage(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	dir := filepath.Join(t.TempDir(), "d")
	acked := make(map[string]*parleyv1.SendMessageResponse)
	n := 0
	for round := range 4 {
		p := startDev(t, dir)
		c := p.client()
		var mu sync.Mutex
		var wg sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		enough := make(chan struct{})
		left := 100 + rnd.IntN(300)
		for w := range 8 {
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					id := fmt.Sprintf("%d-%d-%d", round, w, i)
					res, err := c.SendMessage(ctx, &parleyv1.SendMessageRequest{
						ChannelId: "kill", Content: "text " + id, ClientMsgId: id,
					})
					if err != nil {
						return // killed
					}
					mu.Lock()
					acked[id] = res
					if left--; left == 0 {
						close(enough)
					}
					mu.Unlock()
				}
			})
		}
		<-enough
		p.end(syscall.SIGKILL)
		stop()
		wg.Wait()
		if redisServers(dir) != 1 {
			t.Fatalf("%d redis-servers after kill -9, want the one that was orphaned", redisServers(dir))
		}
		n = len(acked)
	}
	p := startDev(t, dir)
	if got := redisServers(dir); got != 1 {
		t.Fatalf("%d redis-servers after the restart, want 1", got)
	}
	c := p.client()
	byID := make(map[string]*parleyv1.ChannelMessage)
	next := int64(1)
	for token := ""; ; {
		page := listPage(t, c, &parleyv1.ListMessagesRequest{
			ChannelId: "kill", AfterSeq: proto.Int64(0), PageSize: 1000, PageToken: token,
		})
		for _, m := range page.GetMessages() {
			if m.GetSeq() != next || m.GetContent() != "text "+m.GetClientMsgId() {
				t.Fatalf("message %d is %v", next, m)
			}
			if byID[m.GetClientMsgId()] != nil {
				t.Fatalf("%s is stored twice", m.GetClientMsgId())
			}
			byID[m.GetClientMsgId()] = m
			next++
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	for id, ack := range acked {
		if m := byID[id]; m == nil || m.GetSeq() != ack.GetSeq() || m.GetMsgId() != ack.GetMsgId() {
			t.Fatalf("%s was acknowledged as %v and is stored as %v", id, ack, m)
		}
	}
	t.Logf("%d acknowledged over 4 kills, %d stored", n, len(byID))
	// Everything is also published: a subscriber receives all of it, and the next send rebuilds the
	// cache.
	subscribe(t, c, from("kill", 0)).await("kill", 0, len(byID))
	send(t, c, "kill", "after")
	awaitSource(t, c, "kill", "cache")
}

// TestSignalDrainsWithinFiveSeconds checks that a signal drains and ends the process successfully
// within five seconds.
func TestSignalDrainsWithinFiveSeconds(t *testing.T) {
	t.Parallel()
	p := startDev(t, filepath.Join(t.TempDir(), "d"))
	sub := subscribe(t, p.client(), from("x", 0))
	send(t, p.client(), "x", "1")
	sub.await("x", 0, 1)
	start := time.Now()
	p.end(syscall.SIGINT)
	if err := <-p.done; err != nil {
		t.Errorf("parleyd ended with %v", err)
	}
	p.done <- nil
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("shutdown took %s", took)
	}
	if got := redisServers(p.dir); got != 0 {
		t.Errorf("%d redis-servers are left", got)
	}
}

// TestKillKeepsASignOut checks that a token is still revoked after kill -9 right after the answer
// to its SignOut.
func TestKillKeepsASignOut(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	p := startDev(t, dir)
	token := p.token()
	presence := parleyv1connect.NewPresenceServiceClient(servertest.HTTPClient(t, token), p.addr)
	if err := callErr(presence.SignOut(t.Context(), &parleyv1.SignOutRequest{})); err != nil {
		t.Fatal(err)
	}
	p.end(syscall.SIGKILL)
	p = startDev(t, dir)
	c := parleyv1connect.NewMessageServiceClient(servertest.HTTPClient(t, token), p.addr)
	err := callErr(c.ListChannels(t.Context(), &parleyv1.ListChannelsRequest{}))
	if reason, _ := reasonOf(err); reason != tokenRevoked {
		t.Errorf("after a restart: %v", err)
	}
}
