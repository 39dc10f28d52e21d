package testkit

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// Proxy stands before a server and breaks connections in ways that a kill can't: it can lose replies to requests that
// the server has executed, refuse, or swallow everything. It forwards until told otherwise. Safe for concurrent use.
type Proxy struct {
	network, target string
	listener        net.Listener
	lost            atomic.Int64
	wg              sync.WaitGroup

	mu     sync.Mutex
	every  int                       // guarded by mu; lose one reply of so many; 0 loses none
	match  func(request []byte) bool // guarded by mu; which requests count; nil is all
	seen   int                       // guarded by mu; replies since LoseReplies
	cut    bool                      // guarded by mu
	closed bool                      // guarded by mu
	gate   chan struct{}             // guarded by mu; bytes pass once it is closed
	links  map[*proxyLink]struct{}   // guarded by mu
}

// proxyLink is one client's connection and the server's for it.
type proxyLink struct {
	client, server net.Conn
	// armed is set while a request that counts waits for its reply.
	armed atomic.Bool
	ended chan struct{}
	once  sync.Once
}

func (l *proxyLink) close() {
	l.once.Do(func() {
		close(l.ended)
		_ = l.client.Close()
		_ = l.server.Close()
	})
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
	open := make(chan struct{})
	close(open)
	p := &Proxy{network: network, target: target, listener: l, gate: open, links: make(map[*proxyLink]struct{})}
	p.wg.Go(p.serve)
	tb.Cleanup(p.close)
	return p
}

// Addr is where clients connect to: host:port, or the socket's path.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// LoseReplies makes the proxy drop a connection instead of passing on the reply, for every n-th reply to a request that
// match accepts (nil: any). The server has executed the request by then. match sees the bytes of one read, which hold
// the beginning of a request.
func (p *Proxy) LoseReplies(n int, match func(request []byte) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.every, p.match, p.seen = n, match, 0
}

// Lost is how many replies were lost so far.
func (p *Proxy) Lost() int64 { return p.lost.Load() }

// Cut closes every connection and refuses new ones, until Heal.
func (p *Proxy) Cut() {
	p.mu.Lock()
	p.cut = true
	p.mu.Unlock()
	p.closeLinks()
}

// Stall lets connections stand and new ones be made, but no byte pass in either direction, until Heal.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gate:
		p.gate = make(chan struct{})
	default:
	}
}

// Heal forwards everything again, what was stalled first.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.every = false, 0
	select {
	case <-p.gate:
	default:
		close(p.gate)
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.closeLinks()
	p.wg.Wait()
}

func (p *Proxy) closeLinks() {
	p.mu.Lock()
	links := p.links
	p.links = make(map[*proxyLink]struct{})
	p.mu.Unlock()
	for l := range links {
		l.close()
	}
}

func (p *Proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		p.wg.Go(func() { p.link(client) })
	}
}

func (p *Proxy) link(client net.Conn) {
	server, err := new(net.Dialer).DialContext(context.Background(), p.network, p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &proxyLink{client: client, server: server, ended: make(chan struct{})}
	defer l.close()
	p.mu.Lock()
	refused := p.cut || p.closed
	if !refused {
		p.links[l] = struct{}{}
	}
	p.mu.Unlock()
	if refused {
		return
	}
	p.wg.Go(func() { p.pump(l, server, client, p.request) })
	p.pump(l, client, server, p.reply)
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// pump copies src to dst until either ends or look refuses.
func (p *Proxy) pump(l *proxyLink, dst, src net.Conn, look func(*proxyLink, []byte) bool) {
	defer l.close()
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			p.mu.Lock()
			gate := p.gate
			p.mu.Unlock()
			select {
			case <-gate:
			case <-l.ended:
				return
			}
			if !look(l, buf[:n]) {
				return
			}
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *Proxy) request(l *proxyLink, data []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.every > 0 && (p.match == nil || p.match(data)) {
		l.armed.Store(true)
	}
	return true
}

// reply reports whether a reply goes back to the client.
func (p *Proxy) reply(l *proxyLink, _ []byte) bool {
	if !l.armed.Swap(false) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.every == 0 {
		return true
	}
	p.seen++
	if p.seen%p.every != 0 {
		return true
	}
	p.lost.Add(1)
	return false
}
