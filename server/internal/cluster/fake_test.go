package cluster

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(ChildEnv) != "" {
		Child()
		return
	}
	goleak.VerifyTestMain(m)
}

// ChildEnv is set for a test's process that is a node by itself: then Child runs, which the outer test package sets.
const ChildEnv = "PARLEY_TEST_NODE"

// Child is what such a process does.
var Child func()

// fakeNet joins nodes in memory, and breaks as it is told.
type fakeNet struct {
	mu        sync.Mutex
	listeners map[string][]*listener
	servers   map[string]func(ctx context.Context, payload []byte) []byte
	// fates are what becomes of the next requests; afterwards all are answered.
	fates []fate
	// late are the requests that arrive when deliver is called.
	late []func()
}

type listener struct {
	by *fakeNode
	fn func(payload []byte)
}

// fate is what becomes of a request.
type fate int

const (
	answered    fate = iota
	lost             // the request is lost
	answerLost       // the node does it, and its answer is lost
	delayed          // the request arrives after the asker has gone, when deliver is called
	twice            // the request arrives twice
	cutOff           // there is no connection
	garbled          // the answer is no answer
	emptyAnswer      // the answer is empty
	slow             // the node takes two seconds
)

func newFakeNet(fates ...fate) *fakeNet {
	return &fakeNet{
		listeners: map[string][]*listener{}, servers: map[string]func(context.Context, []byte) []byte{}, fates: fates,
	}
}

// fakeNode is a node's Transport.
type fakeNode struct {
	net *fakeNet
	mu  sync.Mutex
	cut bool
}

func (n *fakeNet) node() *fakeNode { return &fakeNode{net: n} }

func (n *fakeNode) setCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

func (n *fakeNode) isCut() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut
}

func (n *fakeNode) Broadcast(topic string, payload []byte) error {
	if n.isCut() {
		return ErrCutOff
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

func (n *fakeNode) Listen(topic string, fn func(payload []byte)) (func(), error) {
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

func (n *fakeNode) Serve(node, topic string, fn func(ctx context.Context, payload []byte) []byte) (func(), error) {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	n.net.servers[node+"."+topic] = fn
	return func() {
		n.net.mu.Lock()
		defer n.net.mu.Unlock()
		delete(n.net.servers, node+"."+topic)
	}, nil
}

func (n *fakeNode) Request(ctx context.Context, node, topic string, payload []byte) ([]byte, error) {
	n.net.mu.Lock()
	fn := n.net.servers[node+"."+topic]
	f := answered
	if len(n.net.fates) > 0 {
		f, n.net.fates = n.net.fates[0], n.net.fates[1:]
	}
	if f == delayed {
		n.net.late = append(n.net.late, func() { fn(context.Background(), payload) })
	}
	n.net.mu.Unlock()
	switch {
	case f == cutOff:
		return nil, ErrCutOff
	case fn == nil:
		return nil, ErrNobody
	case f == garbled:
		return []byte{0xff}, nil
	case f == emptyAnswer:
		return []byte{}, nil
	case f == twice:
		fn(ctx, payload)
	case f == slow:
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case f == answerLost:
		fn(ctx, payload)
	}
	if f == lost || f == answerLost || f == delayed {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return fn(ctx, payload), nil
}

// deliver has the delayed requests arrive.
func (n *fakeNet) deliver() {
	n.mu.Lock()
	late := n.late
	n.late = nil
	n.mu.Unlock()
	for _, fn := range late {
		fn()
	}
}

// owners is an Owners that never changes.
type owners struct {
	id    string
	owner func(bucket int) string
	// works tells of a node, after a time, whether it still says that it works; nil is never.
	works func() bool
}

// Works implements Owners.
func (o owners) Works(string, time.Duration) bool { return o.works != nil && o.works() }

func (o owners) ID() string              { return o.id }
func (o owners) Owner(bucket int) string { return o.owner(bucket) }

// pass lets time pass, which in a synctest bubble takes none.
func pass(d time.Duration) { <-time.After(d) }
