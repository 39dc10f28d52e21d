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

// NATSServer is a real NATS server with JetStream, in the test's own process, on a loopback port and with a store
// directory that both stay the same over Stop and Start.
type NATSServer struct {
	tb      testing.TB
	dir     string
	options []func(*server.Options)
	port    int

	mu  sync.Mutex // guards what follows
	run *server.Server
}

// NATS starts a server for the test and ends it with the test. options change how it is started.
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

// URL is the server's address, the same over Stop and Start.
func (s *NATSServer) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("nats://127.0.0.1:%d", s.port)
}

// Start starts the server over the same store and port as before, and waits until it takes connections. It does nothing
// if it runs.
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

// Stop ends the server and waits until it is gone; clients lose their connections. It does nothing if it does not run.
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
