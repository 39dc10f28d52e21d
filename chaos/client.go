package chaos

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
)

// AfterFailure is how long a client pauses after a failed call. Without it, a client would make
// thousands of calls a second to a node that is down.
const AfterFailure = 300 * time.Millisecond

// Conn holds the connections and the token that the generated clients for one node share. Such a
// client never retries, so every result is the server's own. Safe for concurrent use.
type Conn struct {
	// HTTP uses HTTP/2 without TLS. It detects a dead node within seconds, by pings.
	HTTP *http.Client
	// Addr is the node's host:port.
	Addr string

	token string
}

// NewConn returns a Conn to the node at addr. It connects on the first call.
func NewConn(addr, token string) *Conn {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &Conn{Addr: addr, token: token, HTTP: &http.Client{Transport: &http.Transport{
		Protocols:   protocols,
		DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
		HTTP2:       &http.HTTP2Config{SendPingTimeout: 4 * time.Second, PingTimeout: 3 * time.Second},
	}}}
}

// Token returns the token.
func (c *Conn) Token() string { return c.token }

// With returns a Conn with the same connections and another token.
func (c *Conn) With(token string) *Conn {
	other := *c
	other.token = token
	return &other
}

// URL returns the node's base URL for generated clients.
func (c *Conn) URL() string { return "http://" + c.Addr }

// Authorize returns a context that adds the token to a call or a stream.
func (c *Conn) Authorize(ctx context.Context) context.Context {
	ctx, info := connect.NewClientContext(ctx)
	info.RequestHeader().Set("Authorization", "Bearer "+c.token)
	return ctx
}

// Call returns a context for one call, with the token and a timeout of limit.
func (c *Conn) Call(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	return c.Authorize(ctx), cancel
}

// Close closes idle connections.
func (c *Conn) Close() { c.HTTP.CloseIdleConnections() }

// Source returns a random source that depends only on the run's seed and the client's name. The
// source is not safe for concurrent use.
func Source(seed uint64, name string) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, b := range []byte(name) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(seed, h))
}

// Sleep blocks for d, or until ctx ends. It reports whether d passed.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Pause sleeps for a random time between half of mean and one and a half times mean, or until ctx
// ends. It reports whether the time passed.
func Pause(ctx context.Context, rng *rand.Rand, mean time.Duration) bool {
	return Sleep(ctx, mean/2+rand.N(mean)+time.Duration(rng.IntN(1000)))
}
