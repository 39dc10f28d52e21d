package rig

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy stands before one server, or several of a kind, and breaks connections in ways that a kill can't: it can lose
// replies to requests that the server has executed, refuse, or swallow everything. It forwards until told otherwise, and
// what it is told holds for all its servers together. Safe for concurrent use.
type Proxy struct {
	lost   atomic.Int64
	wg     sync.WaitGroup
	ctx    context.Context //nolint:containedctx // the proxy's own life, which Close ends
	cancel context.CancelFunc

	mu        sync.Mutex
	listeners []net.Listener            // guarded by mu
	every     int                       // guarded by mu; lose one reply of so many; 0 loses none
	match     func(request []byte) bool // guarded by mu; which requests count; nil is all
	seen      int                       // guarded by mu; replies since LoseReplies
	cut       bool                      // guarded by mu
	closed    bool                      // guarded by mu
	gate      chan struct{}             // guarded by mu; bytes pass once it is closed
	links     map[*proxyLink]struct{}   // guarded by mu
}

// Dial makes a connection to a server. It must respect ctx.
type Dial func(ctx context.Context) (net.Conn, error)

// DialTo dials an address of this process's own network namespace.
func DialTo(network, addr string) Dial {
	return func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, addr)
	}
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

// NewProxy makes a proxy without servers; Serve gives it some, Close ends it.
func NewProxy() *Proxy {
	open := make(chan struct{})
	close(open)
	p := &Proxy{gate: open, links: make(map[*proxyLink]struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background()) //nolint:forbidigo // its own life
	return p
}

// Serve forwards, until Close, each connection that the listener accepts to one that dial makes. It returns at once and
// owns the listener.
func (p *Proxy) Serve(l net.Listener, dial Dial) {
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.listeners = append(p.listeners, l)
		p.wg.Go(func() { p.accept(l, dial) })
	}
	p.mu.Unlock()
	if closed {
		_ = l.Close()
	}
}

// LoseReplies makes the proxy drop a connection instead of passing on the reply, for every n-th reply to a request that
// match accepts (nil: any). The server has executed the request by then. match sees the bytes of one read, which hold
// the beginning of a request; it must be quick and is called by one goroutine at a time. n of 0 loses none.
func (p *Proxy) LoseReplies(n int, match func(request []byte) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.every, p.match, p.seen = n, match, 0
}

// Lost is how many replies were lost so far.
func (p *Proxy) Lost() int64 { return p.lost.Load() }

// Cut closes every connection and refuses new ones, until Heal or Restore.
func (p *Proxy) Cut() {
	p.mu.Lock()
	p.cut = true
	p.mu.Unlock()
	p.closeLinks()
}

// Stall lets connections stand and new ones be made, but no byte pass in either direction, until Heal or Restore: what a
// network does that drops packets in silence.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gate:
		p.gate = make(chan struct{})
	default:
	}
}

// Restore ends Cut and Stall, and leaves LoseReplies as it is. What was stalled goes first.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restore()
}

func (p *Proxy) restore() {
	p.cut = false
	select {
	case <-p.gate:
	default:
		close(p.gate)
	}
}

// Heal ends everything: Cut, Stall and LoseReplies.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.every = 0
	p.restore()
}

// Close ends the listeners and connections and waits for them.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	listeners := p.listeners
	p.listeners = nil
	p.mu.Unlock()
	p.cancel()
	for _, l := range listeners {
		_ = l.Close()
	}
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

func (p *Proxy) accept(listener net.Listener, dial Dial) {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // for want of files, say
			select {
			case <-time.After(10 * time.Millisecond):
			case <-p.ctx.Done():
			}
			continue
		}
		p.wg.Go(func() { p.link(client, dial) })
	}
}

func (p *Proxy) link(client net.Conn, dial Dial) {
	p.mu.Lock()
	refused := p.cut || p.closed
	p.mu.Unlock()
	if refused {
		_ = client.Close()
		return
	}
	server, err := dial(p.ctx)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &proxyLink{client: client, server: server, ended: make(chan struct{})}
	defer l.close()
	p.mu.Lock()
	refused = p.cut || p.closed
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
