package parley

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"
)

// Option sets a property of a Client.
type Option func(*config)

// TokenSource returns a token. The client calls it when it has no token, and after the server has
// refused the last one or ended a stream because the token had expired. It is never called
// concurrently. Its context ends after 10 s.
//
// An error that wraps ErrTokenInvalid is final: calls and subscriptions end with it. So is a token
// with a character that is not printable ASCII. Any other error is retried after a wait.
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
	// callTimeout is the default of WithCallTimeout.
	callTimeout = 30 * time.Second
	// attemptTimeout is the default of WithAttemptTimeout.
	attemptTimeout = 5 * time.Second
	// tokenTimeout bounds one call of a token source.
	tokenTimeout = 10 * time.Second
	// maxReadBytes bounds one response or stream frame from the server. A server sends frames and
	// pages of up to about 1 MiB.
	maxReadBytes = 16 << 20
)

type config struct {
	token          string
	tokenSource    TokenSource
	httpClient     connect.HTTPClient
	tls            *tls.Config
	protocol       Protocol
	backoff        Backoff
	callTimeout    time.Duration
	attemptTimeout time.Duration
	log            *slog.Logger
	interceptors   []connect.Interceptor
}

func defaultConfig() config {
	return config{callTimeout: callTimeout, attemptTimeout: attemptTimeout, log: slog.New(slog.DiscardHandler)}
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
		return nil, fmt.Errorf("unknown protocol %d", cfg.protocol)
	}
}

// WithToken sets a fixed token. After it has expired, calls and subscriptions end with
// ErrTokenExpired.
func WithToken(token string) Option { return func(c *config) { c.token = token } }

// WithTokenSource sets a source of tokens, so that a client can outlive one token. It overrides
// WithToken.
func WithTokenSource(source TokenSource) Option { return func(c *config) { c.tokenSource = source } }

// WithHTTPClient replaces the HTTP client, for example to use a proxy. For gRPC it must speak
// HTTP/2. It must have no Timeout, because that ends streams.
func WithHTTPClient(client connect.HTTPClient) Option {
	return func(c *config) { c.httpClient = client }
}

// WithTLS sets the TLS configuration for https addresses: trusted certificates, client
// certificates. It has no effect together with WithHTTPClient. The configuration is copied.
func WithTLS(c *tls.Config) Option { return func(cfg *config) { cfg.tls = c.Clone() } }

// WithProtocol sets the wire protocol. The default is ProtocolConnect.
func WithProtocol(p Protocol) Option { return func(c *config) { c.protocol = p } }

// WithBackoff sets the waits between attempts. A zero field means its default.
func WithBackoff(b Backoff) Option { return func(c *config) { c.backoff = b } }

// WithCallTimeout sets the deadline of calls whose context has none. The default is 30 s; 0 or less
// means no deadline. A deadline of the context always takes precedence.
//
// The deadline covers all attempts of a call and the waits between them. A call of several requests
// (SendBatch, AddMembers, RemoveMembers, and each page of an iterator) gets the whole time again
// whenever a request made progress. Subscriptions and queue workers are not calls: only their
// context limits them.
//
// A call that reaches the deadline returns an error that wraps context.DeadlineExceeded and the
// last failure. The outcome of its last attempt is then unknown.
func WithCallTimeout(d time.Duration) Option { return func(c *config) { c.callTimeout = d } }

// WithAttemptTimeout bounds the first attempt of a call and the wait for a stream's first frame.
// The default is 5 s, which 0 or less keeps. The second attempt of a call may take twice as long,
// later ones four times as long. Attempts of a batch may take three times that. The call as a whole
// is bounded by its context, or by WithCallTimeout.
func WithAttemptTimeout(d time.Duration) Option {
	return func(c *config) {
		if d > 0 {
			c.attemptTimeout = d
		}
	}
}

// WithLogger sets a logger for retries and reconnects, at level warn. By default, and with nil,
// nothing is logged. Tokens and message content are never logged.
func WithLogger(log *slog.Logger) Option {
	return func(c *config) {
		if log != nil {
			c.log = log
		}
	}
}

// WithInterceptors adds interceptors around every attempt of a call and every stream, for example
// those of otelconnect.
func WithInterceptors(interceptors ...connect.Interceptor) Option {
	return func(c *config) { c.interceptors = append(c.interceptors, interceptors...) }
}
