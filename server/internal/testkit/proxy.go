package testkit

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/parleyhq/parley/internal/rig"
)

// Proxy is a proxy in front of one server. See rig.Proxy for its methods.
type Proxy struct {
	*rig.Proxy

	listener net.Listener
}

// NewProxy returns a proxy that forwards each connection to target. Until the test ends it listens
// on a loopback port (network "tcp") or on a socket in a temporary directory ("unix").
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

// Addr returns the address for clients: host:port, or the path of the socket.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }
