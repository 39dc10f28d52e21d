// Package servertest runs the whole server for tests: as `parleyd dev` in a temporary directory, or
// as `parleyd serve` on a real MongoDB, Redis and NATS. Only tests import it.
package servertest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/internal/rig"
	"github.com/parleyhq/parley/server"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/rpc/authn"
	"github.com/parleyhq/parley/server/internal/testkit"
)

// stopTimeout is far longer than a drain takes. A test that exceeds it fails.
const stopTimeout = 30 * time.Second

// Server is a running server.
type Server struct {
	// URL and OpsURL are the base URLs of the API and of the ops address.
	URL, OpsURL string
	// Token has every capability. It is valid for an hour.
	Token string
	// Redis and NATS are the engines of a server started with Serve or Join. They are nil for Dev.
	Redis *testkit.RedisServer
	NATS  *testkit.NATSServer

	tb     testing.TB
	cfg    config.Config
	opts   []server.Option
	dev    bool
	secret []byte

	mu   sync.Mutex
	stop context.CancelFunc
	done chan error
}

// Option changes the configuration of a server before it starts.
type Option func(*settings)

type settings struct {
	cfg  config.Config
	opts []server.Option
}

// With returns an option that changes the configuration.
func With(f func(*config.Config)) Option { return func(s *settings) { f(&s.cfg) } }

// WithServerOption returns an option that passes o, an option of package server, to server.New.
func WithServerOption(o server.Option) Option {
	return func(s *settings) { s.opts = append(s.opts, o) }
}

// Dev starts a `parleyd dev` on free ports with a temporary directory, and stops it when the test
// ends.
func Dev(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	cfg := server.DevConfig()
	cfg.DataDir = filepath.Join(tb.TempDir(), "data")
	s := newServer(tb, cfg, opts)
	s.dev = true
	s.opts = append(s.opts, server.WithDev())
	s.Start()
	return s
}

// Serve starts a `parleyd serve` on the test's own MongoDB database, Redis and NATS, and stops it
// when the test ends. tb must be a *testing.T.
func Serve(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	t, ok := tb.(*testing.T)
	if !ok {
		tb.Fatal("Serve requires a *testing.T")
	}
	cfg := server.DevConfig()
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	cfg.Auth.HS256Secret = config.Secret(hex.EncodeToString(secret))
	redis, nats := testkit.Redis(t), testkit.NATS(t)
	cfg.Mongo.URI = config.SecretURL(testkit.MongoURI(t))
	cfg.Mongo.Database = testkit.MongoDatabase(t)
	cfg.Redis.Addr = redis.Addr()
	cfg.Redis.AllowVolatile = true
	cfg.NATS.URL = config.SecretURL(nats.URL())
	s := newServer(tb, cfg, opts)
	s.Redis, s.NATS = redis, nats
	s.Start()
	return s
}

// Join starts another node on the engines of s, and stops it when the test ends. s must have been
// started by Serve. Both nodes accept each other's tokens.
func (s *Server) Join(opts ...Option) *Server {
	s.tb.Helper()
	n := newServer(s.tb, s.cfg, opts)
	n.Redis, n.NATS = s.Redis, s.NATS
	n.Start()
	return n
}

func newServer(tb testing.TB, cfg config.Config, opts []Option) *Server {
	set := settings{cfg: cfg, opts: []server.Option{server.WithLogOutput(testLog{tb})}}
	// Other ports could be taken while the server is down between Stop and Start.
	addrs, err := rig.FreeAddrs(2)
	if err != nil {
		tb.Fatal(err)
	}
	set.cfg.Listen, set.cfg.OpsListen = addrs[0], addrs[1]
	for _, o := range opts {
		o(&set)
	}
	s := &Server{tb: tb, cfg: set.cfg, opts: set.opts}
	tb.Cleanup(s.Stop)
	return s
}

// testLog writes the server's log to the test's log, until the test has ended.
type testLog struct{ tb testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	if l.tb.Context().Err() == nil {
		l.tb.Logf("%s", p)
	}
	return len(p), nil
}

var _ io.Writer = testLog{}

// Start starts the server again after Stop, with the same stores and addresses. Dev, Serve and Join
// call it themselves.
func (s *Server) Start() {
	s.tb.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(s.tb.Context()))
	srv, err := server.New(ctx, s.cfg, s.opts...)
	if err != nil {
		stop()
		s.tb.Fatalf("start the server: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.URL, s.OpsURL = srv.URL(), srv.OpsURL()
	s.secret = []byte(s.cfg.Auth.HS256Secret)
	if s.dev {
		s.secret = srv.DevSecret()
	}
	s.Token = s.TokenOf("tester")
	s.stop, s.done = stop, make(chan error, 1)
	done := s.done
	go func() { done <- srv.Run(ctx) }()
}

// Reconfigure changes the configuration for the next Start. The server must be stopped.
func (s *Server) Reconfigure(f func(*config.Config)) { f(&s.cfg) }

// Stop drains the server as a first SIGTERM does, and fails the test if the drain fails. It does
// nothing if the server was stopped or Ended was called.
func (s *Server) Stop() {
	s.mu.Lock()
	stop, done := s.stop, s.done
	s.stop = nil
	s.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	select {
	case err := <-done:
		if err != nil {
			s.tb.Errorf("the server ended with: %v", err)
		}
	case <-time.After(stopTimeout):
		s.tb.Errorf("the server did not end within %s", stopTimeout)
	}
}

// Restored prepares the store of a server that Serve started as `parleyd admin restored` does.
func (s *Server) Restored(ctx context.Context, erasures ...server.Erasure) error {
	_, err := server.Restored(ctx, s.cfg, erasures...)
	return err
}

// Ended waits until the server ends on its own, and returns Run's error. If ctx ends first, it
// fails the test and stops the server. The server must not have been stopped before.
func (s *Server) Ended(ctx context.Context) error {
	s.mu.Lock()
	stop, done := s.stop, s.done
	s.stop = nil
	s.mu.Unlock()
	defer stop()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		s.tb.Errorf("the server goes on")
		stop()
		return <-done
	}
}

// TokenOf returns a token for userID with the actions on all channels, valid for an hour. With the
// action append it has those of them that there are for sessions on all sessions too. The actions
// connect, watch and list are those of presence. Without actions, the token has every capability.
func (s *Server) TokenOf(userID string, actions ...string) string {
	s.tb.Helper()
	if len(actions) == 0 {
		return s.MintAs(everything(userID), time.Hour)
	}
	p := &ident.Principal{Subject: userID}
	var onChannels, inSessions []ident.Action
	for _, a := range actions {
		if action := ident.Action(a); slices.Contains(ident.PresenceActions, action) {
			p.Presence = append(p.Presence, action)
		} else if action != ident.Append {
			onChannels = append(onChannels, action)
		}
		if action := ident.Action(a); slices.Contains(actions, string(ident.Append)) && slices.Contains(ident.SessionActions, action) {
			inSessions = append(inSessions, action)
		}
	}
	if len(inSessions) > 0 {
		p.Sessions = []ident.Capability{{Pattern: "*", Actions: inSessions}}
	}
	if len(onChannels) > 0 {
		p.Channels = []ident.Capability{{Pattern: "*", Actions: onChannels}}
	}
	return s.MintAs(p, time.Hour)
}

// everything returns a principal that has every capability.
func everything(userID string) *ident.Principal {
	return &ident.Principal{
		Subject:  userID,
		Channels: []ident.Capability{{Pattern: "*", Actions: ident.ChannelActions}},
		Sessions: []ident.Capability{{Pattern: "*", Actions: ident.SessionActions}},
		Queues:   []ident.Capability{{Pattern: "*", Actions: ident.QueueActions}},
		Presence: ident.PresenceActions,
		Admin:    ident.AdminActions,
	}
}

// Mint returns a token for subject with actions on all channels, valid for an hour.
func (s *Server) Mint(subject string, actions ...ident.Action) string {
	s.tb.Helper()
	return s.MintFor(subject, time.Hour, ident.Capability{Pattern: "*", Actions: actions})
}

// MintFor returns a token for subject with the given channel capabilities, valid for ttl.
func (s *Server) MintFor(subject string, ttl time.Duration, caps ...ident.Capability) string {
	s.tb.Helper()
	return s.MintAs(&ident.Principal{Subject: subject, Channels: caps}, ttl)
}

// MintAs returns a token for p, valid for ttl.
func (s *Server) MintAs(p *ident.Principal, ttl time.Duration) string {
	s.tb.Helper()
	token, err := authn.Mint(s.secret, p, ttl)
	if err != nil {
		s.tb.Fatalf("mint a token: %v", err)
	}
	return token
}

// Client returns a MessageService client that sends token; an empty token is not sent.
func (s *Server) Client(token string, opts ...connect.ClientOption) parleyv1connect.MessageServiceClient {
	return parleyv1connect.NewMessageServiceClient(HTTPClient(s.tb, token), s.URL, opts...)
}

// Queues returns a QueueService client that sends token; an empty token is not sent.
func (s *Server) Queues(token string, opts ...connect.ClientOption) parleyv1connect.QueueServiceClient {
	return parleyv1connect.NewQueueServiceClient(HTTPClient(s.tb, token), s.URL, opts...)
}

// QueueAdmin returns a AdminService client that sends token; an empty token is not sent.
func (s *Server) QueueAdmin(token string, opts ...connect.ClientOption) parleyv1connect.AdminServiceClient {
	return parleyv1connect.NewAdminServiceClient(HTTPClient(s.tb, token), s.URL, opts...)
}

// Presence returns a PresenceService client that sends token; an empty token is not sent.
func (s *Server) Presence(token string, opts ...connect.ClientOption) parleyv1connect.PresenceServiceClient {
	return parleyv1connect.NewPresenceServiceClient(HTTPClient(s.tb, token), s.URL, opts...)
}

// Admin returns an AdminService client that sends token; an empty token is not sent.
func (s *Server) Admin(token string, opts ...connect.ClientOption) parleyv1connect.AdminServiceClient {
	return parleyv1connect.NewAdminServiceClient(HTTPClient(s.tb, token), s.URL, opts...)
}

// HTTPClient returns a client that speaks HTTP/2 without TLS and sends token with every request; an
// empty token is not sent.
func HTTPClient(tb testing.TB, token string) *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	tb.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: WithToken(transport, token)}
}

// WithToken returns a transport that sends token with every request; an empty token is not sent.
func WithToken(next http.RoundTripper, token string) http.RoundTripper { return bearer{next, token} }

type bearer struct {
	next  http.RoundTripper
	token string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.next.RoundTrip(r)
}
