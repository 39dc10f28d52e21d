// Package cluster joins nodes: which of them are alive and which one is a bucket's home (Roster), and how they talk to
// each other: a call to one node (Call), a call to all others (CallAll) and a broadcast (Publish). An Endpoint makes
// them over a Transport. What nodes say to each other is in package remote, a file per feature.
//
// All of it is for speed and comfort. Nothing is lost or doubled because two nodes believe themselves to be home, or
// because none does: the store decides what is true.
package cluster

import (
	"context"
	"errors"
	"fmt"
)

// ErrNobody says that nobody listens: the request has reached no one.
var ErrNobody = errors.New("nobody listens")

// ErrCutOff says that this node has no connection to the others. It is an ErrNobody.
var ErrCutOff = fmt.Errorf("no connection to the other nodes: %w", ErrNobody)

// ErrGone says that the node called is not alive, and that what it held has ended with it. It is an ErrNobody.
var ErrGone = fmt.Errorf("the node is gone: %w", ErrNobody)

// Transport carries bytes between nodes, at most once. Its methods may be called concurrently. Topics and nodes are
// words of A-Z a-z 0-9 _ -.
type Transport interface {
	// Broadcast sends payload to all who listen on topic, this node too.
	Broadcast(topic string, payload []byte) error
	// Listen has fn called with what is broadcast on topic, one at a time, until cancel. fn must not block.
	Listen(topic string, fn func(payload []byte)) (cancel func(), err error)
	// Request asks a node and waits for its answer until ctx ends. It fails with ErrNobody, at once, if the node does not
	// serve the topic, and with ErrCutOff if this node can't ask anyone. After any other error the node may have got the
	// request, or get it yet.
	Request(ctx context.Context, node, topic string, payload []byte) ([]byte, error)
	// Serve has fn answer the requests that come for a node on a topic, each in a goroutine of its own, until cancel, which
	// takes no more and waits for those under way. ctx ends when the asker ceases to wait. A nil answer sends none.
	Serve(node, topic string, fn func(ctx context.Context, payload []byte) []byte) (cancel func(), err error)
}

// The topics that no method or event may have.
const (
	// topicNodes carries the rosters' announcements.
	topicNodes = "nodes"
	// topicProbe is served by no node: a request to it fails with ErrNobody as soon as the connection has carried it.
	topicProbe = "probe"
)
