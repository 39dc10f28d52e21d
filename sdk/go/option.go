package parley

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"
)

// Option changes how a Client works.
type Option func(*config)

// TokenSource gives a token. It is called when the client has none and when the server refused the last one or ended
// its streams because it had expired; never more than once at a time. It should return soon: it is given 10 s.
//
// An error that wraps ErrTokenInvalid says that there will be no token: calls and subscriptions end with it. Any other
// error counts as passing, and is tried again after a wait.
type TokenSource func(ctx context.Context) (string, error)

// Protocol is one of the three wire protocols that a Parley server speaks.
type Protocol int

// The protocols. ProtocolConnect is the default.
const (
	ProtocolConnect Protocol = iota
	ProtocolGRPC
	ProtocolGRPCWeb
)

const (
	// attemptTimeout bounds the first attempt of a call, and the wait for a stream's first frame.
	attemptTimeout = 5 * time.Second
	// tokenTimeout bounds one call of a token source.
	tokenTimeout = 10 * time.Second
	// maxReadBytes bounds a message that the client reads. Servers send frames and pages of about 1 MiB.
	maxReadBytes = 16 << 20
)

type config struct {
	token        string
	tokenSource  TokenSource
	httpClient   connect.HTTPClient
	tls          *tls.Config
	protocol     Protocol
	backoff      Backoff
	attempt      time.Duration
	log          *slog.Logger
	interceptors []connect.Interceptor
}

func defaultConfig() config {
	return config{attempt: attemptTimeout, log: slog.New(slog.DiscardHandler)}
}

func (cfg *config) connectOptions() ([]connect.ClientOption, error) {
	opts := []connect.ClientOption{
		connect.WithReadMaxBytes(maxReadBytes),
		connect.WithInterceptors(cfg.interceptors...),
	}
	switch cfg.protocol {
	case ProtocolConnect:
		return opts, nil
	case ProtocolGRPC:
		return append(opts, connect.WithGRPC()), nil
	case ProtocolGRPCWeb:
		return append(opts, connect.WithGRPCWeb()), nil
	default:
		return nil, fmt.Errorf("protocol %d: no such protocol", cfg.protocol)
	}
}

// WithToken sets a token that stays the same. When it expires, calls and subscriptions end with ErrTokenExpired.
func WithToken(token string) Option { return func(c *config) { c.token = token } }

// WithTokenSource sets where tokens come from, so that a client outlives its token. It goes before WithToken.
func WithTokenSource(source TokenSource) Option { return func(c *config) { c.tokenSource = source } }

// WithHTTPClient replaces the HTTP client, for proxies, client certificates and the like. For gRPC it must speak HTTP/2.
// It must have no Timeout, which would cut streams.
func WithHTTPClient(client connect.HTTPClient) Option {
	return func(c *config) { c.httpClient = client }
}

// WithTLS sets how the client's own HTTP client speaks to https addresses: which certificates it trusts, what it shows.
// It has no effect beside WithHTTPClient. The configuration is copied.
func WithTLS(c *tls.Config) Option { return func(cfg *config) { cfg.tls = c.Clone() } }

// WithProtocol sets the wire protocol.
func WithProtocol(p Protocol) Option { return func(c *config) { c.protocol = p } }

// WithBackoff sets the waits between attempts; a field that is zero keeps its default.
func WithBackoff(b Backoff) Option { return func(c *config) { c.backoff = b } }

// WithAttemptTimeout bounds the first attempt of a call and the wait for a stream's first frame. The default is 5 s. A
// second attempt may take twice, later ones four times as long, those of a batch three times that. What bounds a call as
// a whole is its context.
func WithAttemptTimeout(d time.Duration) Option {
	return func(c *config) {
		if d > 0 {
			c.attempt = d
		}
	}
}

// WithLogger sets where retries and reconnects are logged (level warn). The default is nowhere. Tokens and content are
// never logged.
func WithLogger(log *slog.Logger) Option {
	return func(c *config) {
		if log != nil {
			c.log = log
		}
	}
}

// WithInterceptors adds interceptors around every attempt, for instance otelconnect's.
func WithInterceptors(interceptors ...connect.Interceptor) Option {
	return func(c *config) { c.interceptors = append(c.interceptors, interceptors...) }
}
