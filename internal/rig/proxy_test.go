package rig_test

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parleyhq/parley/internal/rig"
)

// lineServer answers each line with "ok" and counts the lines.
func lineServer(t *testing.T) (addr string, lines *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	lines = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for s := bufio.NewScanner(c); s.Scan(); {
					lines.Add(1)
					if _, err := c.Write([]byte("ok\n")); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String(), lines
}

func dial(t *testing.T, addr string) (ask func(line string) error) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	r := bufio.NewReader(c)
	return func(line string) error {
		if _, err := c.Write([]byte(line + "\n")); err != nil {
			return err
		}
		answer, err := r.ReadString('\n')
		if err == nil && strings.TrimSpace(answer) != "ok" {
			err = errors.New("answer is " + answer)
		}
		return err
	}
}

// testProxy is a proxy with its listen address.
type testProxy struct {
	*rig.Proxy

	addr string
}

func newProxy(t *testing.T, target string) testProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := rig.NewProxy()
	p.Serve(l, rig.DialTo("tcp", target))
	t.Cleanup(p.Close)
	return testProxy{p, l.Addr().String()}
}

// TestRoundTrips checks that requests in a pipeline are one round trip, and that each request after
// a reply is another.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	addr, _ := lineServer(t)
	p := newProxy(t, addr)
	ask := dial(t, p.addr)
	for range 3 {
		if err := ask("read"); err != nil {
			t.Fatal(err)
		}
	}
	if err := ask("write\nwrite\nwrite"); err != nil {
		t.Fatal(err)
	}
	if n := p.RoundTrips(); n != 4 {
		t.Errorf("%d round trips, want 4", n)
	}
}

func TestProxyLosesRepliesToExecutedRequests(t *testing.T) {
	t.Parallel()
	addr, lines := lineServer(t)
	p := newProxy(t, addr)
	p.LoseReplies(2, func(request []byte) bool { return bytes.HasPrefix(request, []byte("write")) })

	ask := dial(t, p.addr)
	for _, line := range []string{"write", "read", "read"} {
		if err := ask(line); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	if err := ask("write"); err == nil {
		t.Fatal("the second write was answered")
	}
	if got := lines.Load(); got != 4 {
		t.Errorf("server executed %d requests, want 4", got)
	}
	if got := p.Lost(); got != 1 {
		t.Errorf("lost %d replies, want 1", got)
	}
	p.Heal()
	ask = dial(t, p.addr)
	for range 4 {
		if err := ask("write"); err != nil {
			t.Fatalf("after Heal: %v", err)
		}
	}
}

func TestProxyCutStallAndHeal(t *testing.T) {
	t.Parallel()
	addr, lines := lineServer(t)
	p := newProxy(t, addr)
	ask := dial(t, p.addr)
	if err := ask("a"); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	if err := ask("b"); err == nil {
		t.Fatal("answered through a cut link")
	}
	if err := dial(t, p.addr)("c"); err == nil {
		t.Fatal("a new link was made through a cut")
	}
	p.Heal()
	ask = dial(t, p.addr)
	p.Stall()
	answered := make(chan error, 1)
	go func() { answered <- ask("d") }()
	select {
	case err := <-answered:
		t.Fatalf("answered through a stall: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if got := lines.Load(); got != 1 {
		t.Errorf("server saw %d requests, want 1", got)
	}
	p.Heal()
	if err := <-answered; err != nil {
		t.Fatalf("after Heal: %v", err)
	}
	const late = 300 * time.Millisecond
	p.Slow(late)
	began := time.Now()
	if err := ask("e"); err != nil || time.Since(began) < late {
		t.Errorf("answered slowly after %v: %v", time.Since(began), err)
	}
}
