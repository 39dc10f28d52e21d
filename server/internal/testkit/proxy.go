package testkit

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/parleyhq/parley/internal/rig"
)

// Proxy stands before one server. See rig.Proxy for what it can do.
type Proxy struct {
	*rig.Proxy

	listener net.Listener
}

// NewProxy listens, until the test ends, on a loopback port (network "tcp") or on a socket in a temporary folder
// ("unix"), and forwards each connection to target.
func NewProxy(tb testing.TB, network, target string) *Proxy {
	tb.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(tb.TempDir(), "proxy.sock")
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), network, addr)
	if err != nil {
		tb.Fatalf("proxy: %v", err)
	}
	p := &Proxy{rig.NewProxy(), l}
	p.Serve(l, rig.DialTo(network, target))
	tb.Cleanup(p.Close)
	return p
}

// Addr is where clients connect to: host:port, or the socket's path.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }
