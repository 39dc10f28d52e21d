package testkit

import (
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// NATSServer is a real NATS server with JetStream, in the test's own process. It listens on a
// loopback port. The port and the store directory stay the same over Stop and Start.
type NATSServer struct {
	tb      testing.TB
	dir     string
	options []func(*server.Options)
	port    int

	mu  sync.Mutex // guards the fields below
	run *server.Server
}

// NATS starts a server for the test. It stops when the test ends. Each of options may change its
// configuration, also when Start starts it again.
func NATS(tb testing.TB, options ...func(*server.Options)) *NATSServer {
	tb.Helper()
	dir, err := os.MkdirTemp("", "parley-nats-")
	if err != nil {
		tb.Fatalf("make a directory for the NATS server: %v", err)
	}
	s := &NATSServer{tb: tb, dir: dir, options: options, port: server.RANDOM_PORT}
	tb.Cleanup(func() {
		s.Stop()
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("remove the NATS server's directory: %v", err)
		}
	})
	s.Start()
	return s
}

// URL returns the address of the server. It stays the same over Stop and Start.
func (s *NATSServer) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("nats://127.0.0.1:%d", s.port)
}

// Start starts the server on the same store and port as before, and waits until it accepts
// connections. It does nothing if the server is running.
func (s *NATSServer) Start() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil {
		return
	}
	options := &server.Options{
		ServerName: "testkit", Host: "127.0.0.1", Port: s.port, JetStream: true, StoreDir: s.dir, NoLog: true, NoSigs: true,
		MaxPayload: 1 << 20,
	}
	for _, o := range s.options {
		o(options)
	}
	run, err := server.NewServer(options)
	if err != nil {
		s.tb.Fatalf("make a NATS server: %v", err)
	}
	run.Start()
	if !run.ReadyForConnections(15 * time.Second) {
		s.tb.Fatalf("the NATS server takes no connections")
	}
	addr, ok := run.Addr().(*net.TCPAddr)
	if !ok {
		s.tb.Fatalf("the NATS server listens on %v", run.Addr())
	}
	s.port = addr.Port
	s.run = run
}

// Stop stops the server and waits for its end; clients lose their connections. It does nothing if
// the server is not running.
func (s *NATSServer) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return
	}
	s.run.Shutdown()
	s.run.WaitForShutdown()
	s.run = nil
}
