// Package parley is the Go SDK of Parley: durable channels over one Connect/gRPC API. Work queues are in its package queue.
//
// A Client sends (each message carries an id of its own, so that a repeat after a lost answer stores nothing twice),
// iterates over history, and subscribes: a Subscription reconnects by itself, goes on from where it was, and delivers
// each entry of a channel's log once and in order, or says with a gap event which ones can't be had.
//
// Given the addresses of several nodes, a Client sticks to one and moves on when that one fails; ids, positions and
// subscriptions go with it.
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
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// Client calls one Parley server, or a fleet of them. It is safe for concurrent use; all calls and streams of a client
// share its connections. A program wants one Client per identity, not one per call.
type Client struct {
	endpoints *endpoints
	tokens    *tokens
	backoff   Backoff
	attempt   time.Duration
	heads     heads
	log       *slog.Logger
	closeIdle func()
}

// New makes a client of the server at addr: a `host:port`, which means http, or a URL with http or https. Several
// addresses, with commas between them, name the nodes of a fleet: "a:8080,b:8080,c:8080"; all have the same scheme. New
// does not connect; the first call does. Plain http speaks HTTP/2 without TLS (h2c).
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
				Message: parleyv1connect.NewMessageServiceClient(httpClient, addr, clientOpts...),
				Queue:   parleyv1connect.NewQueueServiceClient(httpClient, addr, clientOpts...),
				Admin:   parleyv1connect.NewAdminServiceClient(httpClient, addr, clientOpts...),
			}
		}),
		tokens:    &tokens{source: cfg.tokenSource, fixed: cfg.token, limit: tokenTimeout},
		backoff:   cfg.backoff.withDefaults(),
		attempt:   cfg.attempt,
		log:       cfg.log,
		closeIdle: closeIdle,
	}, nil
}

// Close closes the connections that no call uses. Subscriptions are closed by their own Close, or by the end of the
// context that they were made with.
func (c *Client) Close() { c.closeIdle() }

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
