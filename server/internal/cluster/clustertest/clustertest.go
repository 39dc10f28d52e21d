// Package clustertest provides an in-memory network of nodes that loses, repeats and delays
// requests, for tests.
package clustertest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/cluster"
)

// Fate determines what happens to a request.
type Fate int

// The fates of a request.
const (
	// Answered requests arrive once and are answered. It is the default.
	Answered Fate = iota
	// Lost requests do not arrive, and their sender waits until its context ends.
	Lost
	// AnswerLost requests are executed, but their answer does not arrive: the sender waits until its
	// context ends.
	AnswerLost
	// Delayed requests are executed when Deliver is called. Their sender gets no answer.
	Delayed
	// Twice is the fate of a request that arrives two times.
	Twice
	// CutOff requests fail because there is no connection.
	CutOff
	// Garbled requests are not executed, and their answer can't be decoded.
	Garbled
	// EmptyAnswer requests are not executed, and are answered with zero bytes.
	EmptyAnswer
	// Slow requests are executed and answered after two seconds.
	Slow
	// Stalled requests do not arrive, and their sender does not find out whether anyone serves
	// them.
	Stalled
	// Busy requests are answered at once and not executed, because there are too many.
	Busy
)

// Net connects nodes. Safe for concurrent use.
type Net struct {
	mu        sync.Mutex
	listeners map[string][]*listener
	servers   map[string]func(ctx context.Context, payload []byte) []byte
	// fates holds the fates of the next requests to any node. byNode holds the fates of all later
	// requests by node.
	fates  []Fate
	byNode map[string]Fate
	// late holds the requests that arrive when Deliver is called.
	late []func()
}

type listener struct {
	by *Link
	fn func(payload []byte)
}

// NewNet creates a network with the given fates for the first requests.
func NewNet(fates ...Fate) *Net {
	return &Net{
		listeners: make(map[string][]*listener), servers: make(map[string]func(context.Context, []byte) []byte),
		byNode: make(map[string]Fate), fates: fates,
	}
}

// SetFates sets the fates of the next requests to any node, in order. It replaces those not used
// yet.
func (n *Net) SetFates(fates ...Fate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fates = fates
}

// SetNodeFate sets the fate of all requests to a node, except those whose fate SetFates has set.
func (n *Net) SetNodeFate(node string, fate Fate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.byNode[node] = fate
}

// Deliver executes the delayed requests and returns once they are done.
func (n *Net) Deliver() {
	n.mu.Lock()
	late := n.late
	n.late = nil
	n.mu.Unlock()
	for _, fn := range late {
		fn()
	}
}

// Link creates the connection of a new node.
func (n *Net) Link() *Link { return &Link{net: n} }

// Link is a node's connection to a Net.
type Link struct {
	net *Net
	mu  sync.Mutex
	cut bool
}

var _ cluster.Transport = (*Link)(nil)

// SetCut cuts the link, or restores it. While it is cut, the node's requests and broadcasts fail
// and it hears no broadcasts. Requests to the node still arrive.
func (n *Link) SetCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

func (n *Link) isCut() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut
}

// Broadcast implements cluster.Transport.
func (n *Link) Broadcast(topic string, payload []byte) error {
	if n.isCut() {
		return cluster.ErrDisconnected
	}
	n.net.mu.Lock()
	listeners := slices.Clone(n.net.listeners[topic])
	n.net.mu.Unlock()
	for _, l := range listeners {
		if !l.by.isCut() {
			l.fn(payload)
		}
	}
	return nil
}

// Listen implements cluster.Transport.
func (n *Link) Listen(topic string, fn func(payload []byte)) (func(), error) {
	l := &listener{by: n, fn: fn}
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	n.net.listeners[topic] = append(n.net.listeners[topic], l)
	return func() {
		n.net.mu.Lock()
		defer n.net.mu.Unlock()
		n.net.listeners[topic] = slices.DeleteFunc(n.net.listeners[topic], func(o *listener) bool { return o == l })
	}, nil
}

// Serve implements cluster.Transport.
func (n *Link) Serve(node, topic string, fn func(ctx context.Context, payload []byte) []byte) (func(), error) {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	n.net.servers[node+"."+topic] = fn
	return func() {
		n.net.mu.Lock()
		defer n.net.mu.Unlock()
		delete(n.net.servers, node+"."+topic)
	}, nil
}

// Request implements cluster.Transport.
func (n *Link) Request(ctx context.Context, node, topic string, payload []byte) ([]byte, error) {
	n.net.mu.Lock()
	fn := n.net.servers[node+"."+topic]
	f := n.net.byNode[node]
	if len(n.net.fates) > 0 {
		f, n.net.fates = n.net.fates[0], n.net.fates[1:]
	}
	if f == Delayed {
		n.net.late = append(n.net.late, func() { fn(context.Background(), payload) })
	}
	n.net.mu.Unlock()
	switch {
	case f == CutOff || n.isCut():
		return nil, cluster.ErrDisconnected
	case f == Stalled:
		<-ctx.Done()
		return nil, ctx.Err()
	case fn == nil:
		return nil, cluster.ErrNoResponder
	case f == Busy:
		return nil, cluster.ErrBusy
	case f == Garbled:
		return []byte{0xff}, nil
	case f == EmptyAnswer:
		return []byte{}, nil
	case f == Twice:
		fn(ctx, payload)
	case f == Slow:
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case f == AnswerLost:
		fn(ctx, payload)
	}
	if f == Lost || f == AnswerLost || f == Delayed {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return fn(ctx, payload), nil
}

// Peers is a cluster.Peers that never changes.
type Peers struct {
	// Node is this node's id. Nodes holds the ids of all live nodes.
	Node  string
	Nodes []string
}

// ID implements cluster.Peers.
func (p Peers) ID() string { return p.Node }

// Alive implements cluster.Peers.
func (p Peers) Alive(node string) bool { return node == p.Node || slices.Contains(p.Nodes, node) }

// Others implements cluster.Peers.
func (p Peers) Others() []string {
	return slices.DeleteFunc(slices.Clone(p.Nodes), func(node string) bool { return node == p.Node })
}
