package parley

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

const (
	// avoidFor is how long a node that failed is avoided, and avoidMost how long at most one that
	// fails again and again.
	avoidFor  = 5 * time.Second
	avoidMost = 30 * time.Second
	// tellingAfter is how long an attempt must have taken for its deadline to tell something about
	// the node.
	tellingAfter = time.Second
)

// endpoint is one node that a client may call.
type endpoint struct {
	link.Services

	addr string

	// What follows is guarded by the lock of endpoints.

	// failures counts how often in a row the node failed, not counting what failed while it was
	// avoided anyway.
	failures int
	failedAt time.Time
	// avoided is until when other nodes are preferred.
	avoided time.Time
}

// name is the node's address for the log; empty for none.
func (n *endpoint) name() string {
	if n == nil {
		return ""
	}
	return n.addr
}

// endpoints are the nodes that a client may call, in an order of its own. It sticks to one until
// that one fails. Safe for concurrent use.
type endpoints struct {
	nodes []*endpoint
	now   func() time.Time

	mu      sync.Mutex // guards what follows, and the nodes' state
	current int
}

func newEndpoints(addrs []string, dial func(addr string) link.Services) *endpoints {
	e := &endpoints{now: time.Now}
	for _, addr := range addrs {
		e.nodes = append(e.nodes, &endpoint{addr: addr, Services: dial(addr)})
	}
	// Each client has another order, so that all nodes are used, and those whose node fails do not
	// all go to the same.
	rand.Shuffle(len(e.nodes), func(i, j int) { e.nodes[i], e.nodes[j] = e.nodes[j], e.nodes[i] })
	return e
}

// pick returns the node for the next attempt: the current one, or the next one that is not avoided.
// If all are avoided, it is the one whose last failure is the oldest.
func (e *endpoints) pick() *endpoint {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	oldest := e.current
	for i := range e.nodes {
		at := (e.current + i) % len(e.nodes)
		if !now.Before(e.nodes[at].avoided) {
			e.current = at
			return e.nodes[at]
		}
		if e.nodes[at].failedAt.Before(e.nodes[oldest].failedAt) {
			oldest = at
		}
	}
	e.current = oldest
	return e.nodes[oldest]
}

// elsewhere reports whether the next attempt goes to another node than n, and to one that is not
// known to fail.
func (e *endpoints) elsewhere(n *endpoint) bool {
	next := e.pick()
	e.mu.Lock()
	defer e.mu.Unlock()
	return next != n && !e.now().Before(next.avoided)
}

// fail makes the next attempts go elsewhere. Many calls that fail together count once.
func (e *endpoints) fail(n *endpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	n.failedAt = now
	if now.Before(n.avoided) {
		return
	}
	n.avoided = now.Add(min(avoidFor<<min(n.failures, 8), avoidMost))
	n.failures++
}

// work notes that the node answered an attempt which began at the time given. What began before the
// last failure proves nothing: a node that shuts down still answers.
func (e *endpoints) work(n *endpoint, began time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if began.After(n.failedAt) {
		n.failures, n.avoided = 0, time.Time{}
	}
}

// judge decides from the outcome of an attempt whether the node works. ctx is the context of the
// call, without the attempt's own limit.
func (e *endpoints) judge(ctx context.Context, n *endpoint, began time.Time, limit time.Duration, err error) {
	took := e.now().Sub(began)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
	case ctx.Err() != nil || isDeadline(err):
		// A short deadline is more likely to be what was too short.
		if took >= min(tellingAfter, limit) {
			e.fail(n)
		}
	case nodeFailed(err):
		e.fail(n)
	default:
		e.work(n, began)
	}
}

func isDeadline(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == connect.CodeDeadlineExceeded
}

// nodeFailed reports whether another node may not have the failure.
func nodeFailed(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok || !e.Retryable {
		return false
	}
	if e.Reason == parleyv1.ErrorReason_ERROR_REASON_NODE_FULL {
		return true
	}
	switch e.Code {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeInternal:
		return true
	default:
		return e.unanswered
	}
}
