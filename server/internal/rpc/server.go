package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// shutdownPoll is how often a shutdown looks for connections that have nothing left to do.
const shutdownPoll = 50 * time.Millisecond

// Server serves the API: HTTP/1.1 and HTTP/2, the latter in the clear too. It has no overall read and write timeouts,
// which would cut streams; the handler sets deadlines itself. Dead peers are found by pings.
//
// net/http's own server would do, but it gives each connection the two buffers of HTTP/1 before it sees that HTTP/2 is
// spoken in the clear, and keeps them: a fifth of the memory of an idle subscriber. So connections are told apart here.
type Server struct {
	// http has all but HTTP/2 in the clear, which http2 has under the limits of base.
	http, base *http.Server
	http2      *http2.Server

	running sync.WaitGroup
	mu      sync.Mutex // guards what follows
	closed  bool
	// conns are those that are still to be told apart, or speak HTTP/2 in the clear: in which state.
	conns map[net.Conn]http.ConnState
}

// NewServer makes a server, which Serve starts. The log hears of connections that break the protocol.
func NewServer(cfg *Config, h http.Handler, log *slog.Logger) (*Server, error) {
	s := &Server{
		http: newHTTPServer(cfg, h, log), base: newHTTPServer(cfg, h, log), http2: &http2.Server{},
		conns: make(map[net.Conn]http.ConnState),
	}
	s.base.ConnState = s.note
	if err := http2.ConfigureServer(s.base, s.http2); err != nil {
		return nil, err
	}
	return s, nil
}

// newHTTPServer makes a server with the configured limits.
func newHTTPServer(cfg *Config, h http.Handler, log *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler:           h,
		Protocols:         &protocols,
		ReadHeaderTimeout: cfg.HeaderTimeout,
		IdleTimeout:       cfg.IdleTimeout,
		MaxHeaderBytes:    cfg.HeaderBytes,
		ConnContext:       withConnection,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelInfo),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: cfg.ConnectionStreams,
			SendPingTimeout:      15 * time.Second,
			PingTimeout:          10 * time.Second,
			WriteByteTimeout:     10 * time.Second,
		},
	}
}

// Serve serves the listener's connections, over TLS if security is not nil, until Shutdown or Close: then it returns
// http.ErrServerClosed. It closes the listener.
func (s *Server) Serve(l net.Listener, security *tls.Config) error {
	if security != nil {
		s.http.TLSConfig = security
		return s.http.ServeTLS(l, "", "")
	}
	rest := &restListener{Listener: l, conns: make(chan accepted), done: make(chan struct{})}
	s.running.Go(func() { s.accept(l, rest) })
	return s.http.Serve(rest)
}

func (s *Server) accept(l net.Listener, rest *restListener) {
	for {
		conn, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			rest.hand(nil, err) // net/http logs it, and waits before it asks again
		case s.enter(conn):
			s.running.Go(func() { s.tellApart(conn, rest) })
		}
	}
}

// enter takes a connection on the books, or closes it if the server does.
func (s *Server) enter(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		return false
	}
	s.conns[conn] = http.StateNew
	return true
}

func (s *Server) leave(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

// note is http.Server.ConnState.
func (s *Server) note(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.conns[conn]; ok {
		s.conns[conn] = state
	}
}

// tellApart reads a connection's first bytes, and serves it if they are those of HTTP/2.
func (s *Server) tellApart(conn net.Conn, rest *restListener) {
	defer s.leave(conn)
	head, err := readPreface(conn, s.http.ReadHeaderTimeout)
	switch {
	case err != nil && head == "":
		_ = conn.Close()
	case err != nil || head != http2.ClientPreface:
		rest.hand(&begun{conn, head}, nil)
	default:
		s.http2.ServeConn(conn, &http2.ServeConnOpts{
			Context: withConnection(context.Background(), conn), BaseConfig: s.base, SawClientPreface: true,
		})
	}
}

// readPreface reads for as long as it may be the preface of HTTP/2.
func readPreface(conn net.Conn, timeout time.Duration) (string, error) {
	if err := conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	head := make([]byte, 0, len(http2.ClientPreface))
	for len(head) < cap(head) && strings.HasPrefix(http2.ClientPreface, string(head)) {
		n, err := conn.Read(head[len(head):cap(head)])
		head = head[:len(head)+n]
		if err != nil {
			return string(head), err
		}
	}
	return string(head), conn.SetReadDeadline(time.Time{})
}

// begun is a connection of which the head was read.
type begun struct {
	net.Conn

	head string
}

// Read implements net.Conn.
func (c *begun) Read(p []byte) (int, error) {
	if c.head == "" {
		return c.Conn.Read(p)
	}
	n := copy(p, c.head)
	c.head = c.head[n:]
	return n, nil
}

// CloseWrite ends this half of the connection; net/http looks for it.
func (c *begun) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// restListener has the connections that are left for net/http.
type restListener struct {
	net.Listener

	conns chan accepted
	close sync.Once
	done  chan struct{}
}

type accepted struct {
	conn net.Conn
	err  error
}

func (l *restListener) hand(conn net.Conn, err error) {
	select {
	case l.conns <- accepted{conn, err}:
	case <-l.done:
		if conn != nil {
			_ = conn.Close()
		}
	}
}

// Accept implements net.Listener.
func (l *restListener) Accept() (net.Conn, error) {
	select {
	case a := <-l.conns:
		return a.conn, a.err
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *restListener) Close() error {
	l.close.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// Shutdown takes no more connections and waits for the calls of those there are, until ctx ends; then it returns ctx's
// error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	err := s.http.Shutdown(ctx)
	ended := make(chan struct{})
	go func() { s.running.Wait(); close(ended) }()
	poll := time.NewTicker(shutdownPoll)
	defer poll.Stop()
	for {
		// Each connection is told to take no more calls; one that came meanwhile, the next time.
		err = errors.Join(err, s.base.Shutdown(ctx))
		s.closeConns(http.StateIdle, http.StateNew)
		select {
		case <-ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-poll.C:
		}
	}
}

// Close ends everything at once.
func (s *Server) Close() error {
	s.stop()
	err := errors.Join(s.http.Close(), s.base.Close())
	s.closeConns(http.StateNew, http.StateActive, http.StateIdle)
	return err
}

func (s *Server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// closeConns closes the connections that are in one of the states.
func (s *Server) closeConns(states ...http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn, state := range s.conns {
		if slices.Contains(states, state) {
			_ = conn.Close()
		}
	}
}
