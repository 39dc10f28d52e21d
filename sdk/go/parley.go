// Package parley is the Go SDK of Parley: durable channels over one Connect/gRPC API. Package queue
// below it is the SDK of work queues.
//
// A Client sends messages, iterates over history and subscribes. Each message carries an id, so a
// retry after a lost answer never stores it twice. A Subscription reconnects on its own and resumes
// from its position. It delivers each entry of a channel's log once and in order, or reports
// missing entries with a gap event. A Presence makes a device online and follows who else is.
//
// A Client with the addresses of several nodes uses one of them, and fails over to the next one
// when that node fails. Ids, positions and subscriptions stay valid on every node.
//
// Calls whose context has no deadline get one of 30 s: see WithCallTimeout.
//
// sdk/SPEC.md specifies what this package does at each failure: states, codes and waits.
package parley

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// Client calls one Parley server, or the nodes of a fleet. It is safe for concurrent use. All calls
// and streams of a client share its connections, so a program needs one Client per identity, not
// one per call.
type Client struct {
	endpoints *endpoints
	tokens    *tokens
	backoff   Backoff
	// callTimeout bounds calls whose context has no deadline. 0 or less means no bound.
	callTimeout    time.Duration
	attemptTimeout time.Duration
	heads          heads
	carriers       carriers
	log            *slog.Logger
	closeIdle      func()
}

// New returns a client of the server at addr: a `host:port`, which means http, or an http or https
// URL. Several addresses, separated by commas, are the nodes of a fleet: "a:8080,b:8080,c:8080".
// All must have the same scheme. New does not connect; the first call does. Plain http uses HTTP/2
// without TLS (h2c).
func New(addr string, opts ...Option) (*Client, error) {
	cfg := defaultConfig()
	for _, opt := range opts {
		opt(&cfg)
	}
	addrs, scheme, err := parseAddrs(addr)
	if err != nil {
		return nil, fmt.Errorf("new client: %w", err)
	}
	clientOpts, err := cfg.connectOptions()
	if err != nil {
		return nil, fmt.Errorf("new client: %w", err)
	}
	httpClient, closeIdle := cfg.httpClient, func() {}
	if httpClient == nil {
		own := newHTTPClient(scheme, cfg.tls)
		httpClient, closeIdle = own, own.CloseIdleConnections
	}
	return &Client{
		endpoints: newEndpoints(addrs, func(addr string) link.Services {
			return link.Services{
				Message:  parleyv1connect.NewMessageServiceClient(httpClient, addr, clientOpts...),
				Queue:    parleyv1connect.NewQueueServiceClient(httpClient, addr, clientOpts...),
				Admin:    parleyv1connect.NewAdminServiceClient(httpClient, addr, clientOpts...),
				Presence: parleyv1connect.NewPresenceServiceClient(httpClient, addr, clientOpts...),
				Server:   parleyv1connect.NewServerServiceClient(httpClient, addr, clientOpts...),
			}
		}),
		tokens:         &tokens{source: cfg.tokenSource, fixed: cfg.token, limit: tokenTimeout},
		backoff:        cfg.backoff.withDefaults(),
		callTimeout:    cfg.callTimeout,
		attemptTimeout: cfg.attemptTimeout,
		log:            cfg.log,
		closeIdle:      closeIdle,
	}, nil
}

// Close closes idle connections, except those of an HTTP client from WithHTTPClient. It does not
// end subscriptions and presences: close those, or end the contexts that they were created with.
func (c *Client) Close() { c.closeIdle() }

// authorize returns the context of one attempt, with the token in its request header, and the token
// itself.
func (c *Client) authorize(ctx context.Context) (context.Context, string, error) {
	token, err := c.tokens.get(ctx)
	if err != nil {
		return nil, "", err
	}
	ctx, info := connect.NewClientContext(ctx)
	if token != "" {
		info.RequestHeader().Set("Authorization", "Bearer "+token)
	}
	return ctx, token, nil
}
