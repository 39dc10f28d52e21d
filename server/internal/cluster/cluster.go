// Package cluster connects the nodes of a fleet. A Roster reports which nodes are alive and which
// one is the home of a bucket. An Endpoint communicates over a Transport: it calls one node (Call)
// or all others (CallAll), or broadcasts to all (Publish). Package remote defines the calls and
// events, one file per feature.
//
// All of it only saves time and work. Nothing is lost or duplicated if two nodes consider
// themselves the home of a bucket, or if none does: the store decides.
package cluster

import (
	"context"
	"errors"
	"fmt"
)

// ErrNoResponder reports that no node serves the request, so no node has received it.
var ErrNoResponder = errors.New("no node serves the request")

// ErrDisconnected reports that this node has no connection to the other nodes. It wraps
// ErrNoResponder.
var ErrDisconnected = fmt.Errorf("no connection to the other nodes: %w", ErrNoResponder)

// ErrNodeGone reports that the called node is not alive, and that everything it held has ended with
// it. It wraps ErrNoResponder.
var ErrNodeGone = fmt.Errorf("the node is gone: %w", ErrNoResponder)

// ErrBusy reports that the called node is alive, but handles too many requests, and has not handled
// this one. It wraps ErrNoResponder.
var ErrBusy = fmt.Errorf("the node has too many requests: %w", ErrNoResponder)

// Transport carries bytes between nodes, at most once. Its methods may be called concurrently.
// Topic names and node ids consist of A-Z a-z 0-9 _ -.
type Transport interface {
	// Broadcast sends payload to all listeners of the topic, including this node's.
	Broadcast(topic string, payload []byte) error
	// Listen calls fn with each payload broadcast on the topic, one at a time, until cancel is
	// called. fn must not block.
	Listen(topic string, fn func(payload []byte)) (cancel func(), err error)
	// Request sends payload to a node and waits for its answer until ctx ends. It fails at once with
	// ErrNoResponder if the node does not serve the topic, with ErrBusy if it handles too many
	// requests, and with ErrDisconnected if this node has no connection. After any other error the
	// node may have received the request, or may still receive it.
	Request(ctx context.Context, node, topic string, payload []byte) ([]byte, error)
	// Serve calls fn with each request to the topic of a node, each in its own goroutine, until
	// cancel is called. cancel stops accepting requests and waits for those in flight. fn's ctx
	// ends when the requester stops waiting. If fn returns nil, no answer is sent.
	Serve(node, topic string, fn func(ctx context.Context, payload []byte) []byte) (cancel func(), err error)
}

// Topics reserved by this package. No method or event may use them.
const (
	// topicNodes carries the announcements by which each node's Roster reports that the node is alive.
	topicNodes = "nodes"
	// topicProbe is served by no node: a request to it fails with ErrNoResponder as soon as the
	// connection has carried it.
	topicProbe = "probe"
)
