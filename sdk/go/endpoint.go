package parley

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

const (
	// avoidFor is how long a node is avoided after its first failure. Each further failure in a row
	// doubles the time, up to maxAvoid.
	avoidFor = 5 * time.Second
	maxAvoid = 30 * time.Second
	// minTimeoutFailure is how long an attempt must have taken for its timeout to count as a failure
	// of the node. An attempt with a shorter limit counts if it reached that.
	minTimeoutFailure = time.Second
)

// endpoint is one node that a client may call.
type endpoint struct {
	link.Services

	addr string

	// The fields below are guarded by endpoints.mu.

	// failures counts the node's failures in a row, except those while it was avoided.
	failures int
	failedAt time.Time
	// avoided is the time until which other nodes are preferred.
	avoided time.Time
}

// name returns the node's address for the log. It returns an empty string for nil.
func (n *endpoint) name() string {
	if n == nil {
		return ""
	}
	return n.addr
}

// endpoints are the nodes that a client may call, in random order. The client stays with one node
// until that node fails. Safe for concurrent use.
type endpoints struct {
	nodes []*endpoint
	now   func() time.Time

	mu      sync.Mutex // guards the fields below, and the nodes' state
	current int
}

func newEndpoints(addrs []string, dial func(addr string) link.Services) *endpoints {
	e := &endpoints{now: time.Now}
	for _, addr := range addrs {
		e.nodes = append(e.nodes, &endpoint{addr: addr, Services: dial(addr)})
	}
	// Each client has its own order, so that all nodes are used, and the clients of a failed node
	// do not all fail over to the same one.
	rand.Shuffle(len(e.nodes), func(i, j int) { e.nodes[i], e.nodes[j] = e.nodes[j], e.nodes[i] })
	return e
}

// pick returns the node for the next attempt: the current one, or the next one that is not avoided.
// If all are avoided, it returns the one whose last failure is the oldest.
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

// hasOther reports whether the next attempt goes to another node than n that is not avoided.
func (e *endpoints) hasOther(n *endpoint) bool {
	next := e.pick()
	e.mu.Lock()
	defer e.mu.Unlock()
	return next != n && !e.now().Before(next.avoided)
}

// hasSpare reports whether a node other than n is not avoided.
func (e *endpoints) hasSpare(n *endpoint) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	return slices.ContainsFunc(e.nodes, func(other *endpoint) bool { return other != n && !now.Before(other.avoided) })
}

// fail records a failure of n, so that the next attempts go to other nodes. Failures while n is
// avoided do not prolong the avoidance: many calls that fail together count once.
func (e *endpoints) fail(n *endpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	n.failedAt = now
	if now.Before(n.avoided) {
		return
	}
	n.avoided = now.Add(min(avoidFor<<min(n.failures, 8), maxAvoid))
	n.failures++
}

// markWorking records that n answered an attempt that began at the given time. An attempt that
// began before the last failure proves nothing: a node that shuts down still answers.
func (e *endpoints) markWorking(n *endpoint, began time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if began.After(n.failedAt) {
		n.failures, n.avoided = 0, time.Time{}
	}
}

// recordOutcome decides from the outcome of an attempt whether the node works. ctx is the context
// of the call, without the attempt's own limit.
func (e *endpoints) recordOutcome(ctx context.Context, n *endpoint, began time.Time, limit time.Duration, err error) {
	took := e.now().Sub(began)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
	case ctx.Err() != nil || isDeadline(err):
		// If the attempt took less time, its deadline was probably too short, which proves nothing about
		// the node.
		if took >= min(minTimeoutFailure, limit) {
			e.fail(n)
		}
	case nodeFailed(err):
		e.fail(n)
	default:
		e.markWorking(n, began)
	}
}

func isDeadline(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == connect.CodeDeadlineExceeded
}

// nodeFailed reports whether err suggests that the node failed, so that the same call may succeed
// on another node.
func nodeFailed(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok || !e.Retryable || e.ofStream {
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
