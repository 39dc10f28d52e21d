package parley

import (
	"context"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/sdk/go/internal/link"
)

// fleetOf returns endpoints for n nodes, and the time of their clock, which the test can set.
func fleetOf(n int) (*endpoints, *time.Time) {
	addrs := make([]string, n)
	for i := range addrs {
		addrs[i] = fmt.Sprintf("node-%d", i)
	}
	e := newEndpoints(addrs, func(string) link.Services { return link.Services{} })
	now := time.Unix(1_700_000_000, 0)
	e.now = func() time.Time { return now }
	return e, &now
}

// TestEndpointsAreUsedEvenly checks that many clients spread evenly over the nodes, and that those
// of a failed node spread evenly over the other nodes.
func TestEndpointsAreUsedEvenly(t *testing.T) {
	t.Parallel()
	const clients = 3000
	first, second := make(map[string]int), make(map[string]int)
	for range clients {
		e, _ := fleetOf(3)
		n := e.pick()
		first[n.addr]++
		if n.addr == "node-0" {
			e.fail(n)
			second[e.pick().addr]++
		}
	}
	for _, addr := range []string{"node-0", "node-1", "node-2"} {
		if first[addr] < clients/3-200 || first[addr] > clients/3+200 {
			t.Errorf("clients per first node: %v, want a third each", first)
		}
	}
	if second["node-0"] > 0 || second["node-1"] < clients/6-150 || second["node-2"] < clients/6-150 {
		t.Errorf("clients per node after node-0 failed: %v, want half each", second)
	}
}

func TestEndpointsStickAndAvoid(t *testing.T) {
	t.Parallel()
	e, now := fleetOf(3)
	a := e.pick()
	if e.pick() != a || e.hasOther(a) {
		t.Fatalf("the client left a working node")
	}
	for range 100 { // as many calls that fail together
		e.fail(a)
	}
	b := e.pick()
	if b == a || !e.hasOther(a) || e.pick() != b {
		t.Fatalf("the client stayed with the failed node")
	}
	*now = now.Add(avoidFor + 1)
	if e.pick() != b {
		t.Errorf("the client returned to the first node on its own")
	}
	e.fail(b)
	*now = now.Add(1)
	c := e.pick()
	if c == b || c == a {
		t.Errorf("the client skipped the next node of the list")
	}
	e.fail(c)
	if e.pick() != a {
		t.Errorf("the client still avoids a node after its time")
	}
	*now = now.Add(1)
	e.fail(a)
	// All are avoided now, and b's last failure is the oldest.
	if e.pick() != b || e.hasOther(a) {
		t.Errorf("all nodes avoided: want the node with the oldest failure, and a wait")
	}
	e.markWorking(b, b.failedAt)
	if e.hasOther(a) {
		t.Errorf("an answer to an attempt from before the failure ended the avoidance")
	}
	e.markWorking(b, *now)
	if !e.hasOther(a) || e.pick() != b {
		t.Errorf("an answer did not end the avoidance")
	}
}

func TestEndpointAvoidanceGrows(t *testing.T) {
	t.Parallel()
	e, now := fleetOf(2)
	n := e.pick()
	for i, want := range []int{5, 10, 20, 30, 30} {
		e.fail(n)
		e.fail(n)
		if got := n.avoided.Sub(*now); got != time.Duration(want)*time.Second {
			t.Errorf("failure %d: avoided for %s, want %d s", i+1, got, want)
		}
		*now = n.avoided
	}
	*now = now.Add(1)
	e.markWorking(n, *now)
	e.fail(n)
	if got := n.avoided.Sub(*now); got != avoidFor {
		t.Errorf("after an answer: avoided for %s, want %s", got, avoidFor)
	}
}

// TestRecordOutcome checks which outcomes of an attempt count as a failure of the node.
func TestRecordOutcome(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	passed, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	wire := func(code connect.Code, retryable bool) error { return &Error{Code: code, Retryable: retryable} }
	full := toError(connect.NewError(connect.CodeResourceExhausted, nil))
	full.(*Error).fill(&parleyv1.ErrorDetail{Reason: parleyv1.ErrorReason_ERROR_REASON_NODE_FULL})
	for name, one := range map[string]struct {
		ctx    context.Context
		took   time.Duration
		err    error
		failed bool
	}{
		"an answer":                    {t.Context(), 0, nil, false},
		"final":                        {t.Context(), 0, wire(connect.CodeNotFound, false), false},
		"final and unavailable":        {t.Context(), 0, wire(connect.CodeUnavailable, false), false},
		"over the rate limit":          {t.Context(), 0, wire(connect.CodeResourceExhausted, true), false},
		"the node is full":             {t.Context(), 0, full, true},
		"a limit of the caller":        {t.Context(), 0, wire(connect.CodeResourceExhausted, false), false},
		"aborted":                      {t.Context(), 0, wire(connect.CodeAborted, true), false},
		"unavailable":                  {t.Context(), 0, wire(connect.CodeUnavailable, true), true},
		"internal":                     {t.Context(), 0, wire(connect.CodeInternal, true), true},
		"unanswered":                   {t.Context(), 0, &Error{Retryable: true, unanswered: true}, true},
		"the attempt's time limit":     {t.Context(), 5 * time.Second, wire(connect.CodeDeadlineExceeded, true), true},
		"the server's short deadline":  {t.Context(), time.Millisecond, wire(connect.CodeDeadlineExceeded, true), false},
		"the caller cancelled":         {cancelled, time.Minute, wire(connect.CodeCanceled, true), false},
		"the caller's short deadline":  {passed, time.Millisecond, wire(connect.CodeDeadlineExceeded, true), false},
		"the caller's long deadline":   {passed, 2 * time.Second, wire(connect.CodeDeadlineExceeded, true), true},
		"a failure after the deadline": {passed, time.Millisecond, wire(connect.CodeUnavailable, true), false},
	} {
		e, now := fleetOf(2)
		n, began := e.pick(), *now
		*now = now.Add(one.took)
		e.recordOutcome(one.ctx, n, began, 5*time.Second, one.err)
		if got := e.pick() != n; got != one.failed {
			t.Errorf("%s: node failed: %v, want %v", name, got, one.failed)
		}
	}
}
