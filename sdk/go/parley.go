// Package parley is the Go SDK of Parley: durable channels over one Connect/gRPC API.
//
// A Client sends (each message carries an id of its own, so that a repeat after a lost answer stores nothing twice),
// iterates over history, and subscribes: a Subscription reconnects by itself, goes on from where it was, and delivers
// each entry of a channel's log once and in order, or says with a gap event which ones can't be had.
//
// What this package does at each failure (states, codes, waits) is what sdk/SPEC.md asks of every SDK.
package parley

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// Client calls one Parley server, or the fleet behind one address. It is safe for concurrent use; all calls and streams
// of a client share its connections. A program wants one Client per identity, not one per call.
type Client struct {
	endpoints endpoints
	tokens    *tokens
	backoff   Backoff
	attempt   time.Duration
	heads     heads
	log       *slog.Logger
	closeIdle func()
}

// New makes a client of the server at addr: a `host:port`, which means http, or a URL with http or https. It does not
// connect; the first call does. Plain http speaks HTTP/2 without TLS (h2c).
func New(addr string, opts ...Option) (*Client, error) {
	cfg := defaultConfig()
	for _, opt := range opts {
		opt(&cfg)
	}
	base, err := parseAddr(addr)
	if err != nil {
		return nil, fmt.Errorf("new client: %w", err)
	}
	clientOpts, err := cfg.connectOptions()
	if err != nil {
		return nil, fmt.Errorf("new client: %w", err)
	}
	httpClient, closeIdle := cfg.httpClient, func() {}
	if httpClient == nil {
		own := newHTTPClient(base.Scheme)
		httpClient, closeIdle = own, own.CloseIdleConnections
	}
	return &Client{
		endpoints: endpoints{parleyv1connect.NewMessageServiceClient(httpClient, base.String(), clientOpts...)},
		tokens:    &tokens{source: cfg.tokenSource, fixed: cfg.token, limit: cfg.attempt},
		backoff:   cfg.backoff.withDefaults(),
		attempt:   cfg.attempt,
		log:       cfg.log,
		closeIdle: closeIdle,
	}, nil
}

// Close closes the connections that no call uses. Subscriptions are closed by their own Close, or by the end of the
// context that they were made with.
func (c *Client) Close() { c.closeIdle() }

// endpoints are the addresses that a client may call. There is one today; a client of a fleet will hold several, and
// pick is where it will choose.
type endpoints []parleyv1connect.MessageServiceClient

// pick gives the endpoint for the next attempt.
func (e endpoints) pick() parleyv1connect.MessageServiceClient { return e[0] }

// authorize gives the context of one attempt, which carries the token, and the token itself.
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
