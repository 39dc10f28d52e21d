package rpc

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// wasteBytes and wastePerSecond bound what a client sends on a connection to no effect: bytes that
// are neither a new call, nor a body that is read, nor answers to what the server has sent. Beyond
// them the connection is closed. net/http bounds neither the empty frames that may continue an
// HTTP/2 header nor other frames without effect, and each costs the server about a microsecond.
//
// net/http lets a client send 1 MiB of bodies ahead, which may not be read.
const (
	wasteBytes     = 2 << 20
	wastePerSecond = 64 << 10
	// bodyOverhead is how many bytes a client may send for each byte of a body. A frame has 9 bytes
	// around its data, and TLS about 30 more.
	bodyOverhead = 64
)

var errWaste = errors.New("the client sends too much to no effect")

// waste counts the bytes that a client sends on a connection to no effect.
type waste struct {
	mu sync.Mutex
	// bytes is the number at the time at. Below 0 it is a credit, of at most wasteBytes. Guarded by
	// mu, as at.
	bytes int64
	at    time.Time
}

// received adds bytes that the client has sent. It reports whether the client is within the bounds.
func (w *waste) received(n int, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bytes > 0 {
		w.bytes = max(0, w.bytes-int64(now.Sub(w.at).Seconds()*wastePerSecond))
	}
	w.at = now
	w.bytes += int64(n)
	return w.bytes <= wasteBytes
}

// used subtracts bytes that had an effect.
func (w *waste) used(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes = max(-wasteBytes, w.bytes-int64(n))
}

// called subtracts all that was sent before a call.
func (w *waste) called() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes = min(w.bytes, 0)
}

// LimitWaste returns a listener that closes each accepted connection on which a client sends
// megabytes to no effect, and logs it. Only connections of a TCP listener have this limit. The
// listener is for a server from NewHTTPServer, which counts what had an effect.
func LimitWaste(l net.Listener, log *slog.Logger) net.Listener { return &wasteListener{l, log} }

type wasteListener struct {
	net.Listener

	log *slog.Logger
}

// Accept implements net.Listener.
func (l *wasteListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		return &wasteConn{TCPConn: tcp, log: l.log}, err
	}
	return c, err
}

// wasteConn is a connection with its waste.
type wasteConn struct {
	*net.TCPConn

	waste waste
	log   *slog.Logger
}

// Read implements net.Conn.
func (c *wasteConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	if c.waste.received(n, time.Now()) {
		return n, err
	}
	if c.Close() == nil {
		c.log.Info("connection closed: the client sends too much to no effect", slog.String("peer", c.RemoteAddr().String()))
	}
	return 0, errWaste
}

// Write implements net.Conn. Clients answer what they receive, such as with window updates.
func (c *wasteConn) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	c.waste.used(n)
	return n, err
}

// wasteOf returns the waste of a connection from LimitWaste, and nil for others.
func wasteOf(c net.Conn) *waste {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if w, ok := c.(*wasteConn); ok {
		return &w.waste
	}
	return nil
}

// countUsed counts what was sent before a call as used, and then what is read of the call's body. A
// nil waste ignores it.
func (w *waste) countUsed(r *http.Request) {
	if w == nil {
		return
	}
	w.called()
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &usedBody{r.Body, w}
	}
}

// usedBody is the body of a call. What is read of it is not waste.
type usedBody struct {
	io.ReadCloser

	waste *waste
}

// Read implements io.Reader.
func (b *usedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.waste.used(n * bodyOverhead)
	return n, err
}
