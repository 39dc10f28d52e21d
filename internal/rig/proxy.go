package rig

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy forwards connections to one server, or to several of a kind, and breaks them in ways that a
// kill can't: it can drop replies to requests that the server has executed, refuse connections, or
// stall all bytes. It forwards everything until told otherwise. Faults apply to all its servers. It
// is safe for concurrent use.
type Proxy struct {
	lost   atomic.Int64
	trips  atomic.Int64
	late   atomic.Int64 // the delay of Slow, as a time.Duration
	wg     sync.WaitGroup
	ctx    context.Context //nolint:containedctx // the proxy's lifetime, which Close ends
	cancel context.CancelFunc

	mu        sync.Mutex
	listeners []net.Listener            // guarded by mu
	every     int                       // guarded by mu; lose one reply of so many; 0 loses none
	match     func(request []byte) bool // guarded by mu; which requests count; nil is all
	seen      int                       // guarded by mu; replies to matching requests since LoseReplies
	cut       bool                      // guarded by mu
	closed    bool                      // guarded by mu
	gate      chan struct{}             // guarded by mu; bytes pass once it is closed
	links     map[*proxyLink]struct{}   // guarded by mu
}

// Dial connects to a server. It must return when ctx ends.
type Dial func(ctx context.Context) (net.Conn, error)

// DialTo returns a Dial for an address in this process's network namespace. It times out after 10
// s.
func DialTo(network, addr string) Dial {
	return func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, addr)
	}
}

// proxyLink is a client's connection and the matching connection to the server.
type proxyLink struct {
	client, server net.Conn
	// armed is set while a matching request waits for its reply.
	armed atomic.Bool
	// asked is set if the last bytes were the client's.
	asked atomic.Bool
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

// NewProxy creates a proxy without servers. Add servers with Serve, and end the proxy with Close.
func NewProxy() *Proxy {
	open := make(chan struct{})
	close(open)
	p := &Proxy{gate: open, links: make(map[*proxyLink]struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background()) //nolint:forbidigo // its own life
	return p
}

// Serve forwards each connection that l accepts to a connection from dial, until Close. It returns
// at once and takes ownership of l.
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

// LoseReplies drops the connection instead of every n-th reply to a request that match accepts. A
// nil match accepts all requests. The server has executed the request by then. match gets the bytes
// of one read, which contain the beginning of a request. It must be fast, and is called by one
// goroutine at a time. If n is 0, no replies are lost.
func (p *Proxy) LoseReplies(n int, match func(request []byte) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.every, p.match, p.seen = n, match, 0
}

// Lost returns the number of replies that were dropped because of LoseReplies so far.
func (p *Proxy) Lost() int64 { return p.lost.Load() }

// RoundTrips returns the number of round trips so far: a client sent something, and the server had
// sent something before, or nothing at all. Several requests in a pipeline are one.
func (p *Proxy) RoundTrips() int64 { return p.trips.Load() }

// Cut closes every connection and refuses new ones, until Heal or Restore.
func (p *Proxy) Cut() {
	p.mu.Lock()
	p.cut = true
	p.mu.Unlock()
	p.closeLinks()
}

// Stall keeps connections open and accepts new ones, but passes no bytes in either direction until
// Heal or Restore. It simulates a network that drops packets silently.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gate:
		p.gate = make(chan struct{})
	default:
	}
}

// Slow makes every piece of a reply late by that time, until Heal. A piece is what one read from
// the server returns.
func (p *Proxy) Slow(by time.Duration) { p.late.Store(int64(by)) }

// Restore ends Cut and Stall but neither Slow nor LoseReplies. Stalled bytes are forwarded first.
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

// Heal ends Cut, Stall, Slow and LoseReplies.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.every = 0
	p.late.Store(0)
	p.restore()
}

// Close closes the listeners and connections and waits for their goroutines.
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
		if err != nil { // out of file descriptors, for example
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

// pump copies src to dst until either ends or look returns false. look is called with each piece of
// data before it is written to dst.
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
	if !l.asked.Swap(true) {
		p.trips.Add(1)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.every > 0 && (p.match == nil || p.match(data)) {
		l.armed.Store(true)
	}
	return true
}

// reply reports whether a reply is forwarded to the client.
func (p *Proxy) reply(l *proxyLink, _ []byte) bool {
	l.asked.Store(false)
	if late := time.Duration(p.late.Load()); late > 0 {
		select {
		case <-time.After(late):
		case <-l.ended:
			return false
		}
	}
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
