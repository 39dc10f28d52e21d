package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/fault"
)

// Method is one kind of call between nodes. Req and Res are pointers to generated structs.
type Method[Req, Res proto.Message] struct {
	// Name identifies the method and is the transport's topic. It consists of A-Z a-z 0-9 _ - and
	// is unique among methods and events.
	Name string
	// Timeout bounds the wait for one answer. 0 means that only the caller's context and the
	// transport limit it.
	Timeout time.Duration
}

// Call sends one request to a node and waits for its answer. The request is sent once and never
// repeated. If node is this node's own id, the call goes through the transport all the same;
// callers should do such work directly.
//
// The error is one of:
//   - the fault that the node's handler returned;
//   - ErrNodeGone if the node is not alive, or node is "";
//   - Unavailable with STORE_UNAVAILABLE if the node can't be reached, so that nothing was done;
//     it wraps ErrNoResponder;
//   - Unavailable with OUTCOME_UNKNOWN if the node may have received the request and may execute
//     it at any later time;
//   - any other error if req can't be encoded or is larger than about 1 MiB; it wraps
//     ErrNoResponder.
func Call[Req, Res proto.Message](ctx context.Context, e *Endpoint, node string, m Method[Req, Res], req Req) (Res, error) {
	var none Res
	if node == "" {
		return none, ErrNodeGone
	}
	payload, err := encode(req)
	if err != nil {
		return none, fmt.Errorf("call %s: %w: %w", m.Name, err, ErrNoResponder)
	}
	return exchange(ctx, e, node, m, payload)
}

// CallAll calls all other nodes concurrently and waits for every call to end. It returns the
// answers by node id. missing lists, sorted, the nodes that may be alive and have not confirmed:
// they can't be reached, did not answer within m.Timeout, or answered with a fault. A node that
// turns out to be gone is in neither.
//
// err joins the errors of the missing nodes. It is nil only if missing is empty and the transport
// has just carried a request of this node. If it wraps ErrDisconnected, other nodes may be alive
// that this node has forgotten.
//
// A node that this one does not know yet, because either has just started or reconnected, is not
// called. So the caller must first store what the call announces where such a node reads it.
func CallAll[Req, Res proto.Message](
	ctx context.Context, e *Endpoint, m Method[Req, Res], req Req,
) (answers map[string]Res, missing []string, err error) {
	return CallNodes(ctx, e, e.peers.Others(), m, req)
}

// CallNodes is CallAll for the given nodes, sorted, which must not include this one. Those that
// this node does not know and cannot reach count as gone.
func CallNodes[Req, Res proto.Message](
	ctx context.Context, e *Endpoint, nodes []string, m Method[Req, Res], req Req,
) (answers map[string]Res, missing []string, err error) {
	payload, err := encode(req)
	if err != nil {
		return nil, nodes, fmt.Errorf("call %s on all nodes: %w: %w", m.Name, err, ErrNoResponder)
	}
	results := make([]Res, len(nodes))
	errs := make([]error, len(nodes), len(nodes)+1)
	var calling sync.WaitGroup
	for i, node := range nodes {
		calling.Go(func() { results[i], errs[i] = exchange(ctx, e, node, m, payload) })
	}
	connected := e.probeConnection(ctx, m.Timeout)
	calling.Wait()
	answers = make(map[string]Res, len(nodes))
	for i, node := range nodes {
		switch {
		case errs[i] == nil:
			answers[node] = results[i]
		case errors.Is(errs[i], ErrNodeGone):
			errs[i] = nil
		default:
			missing = append(missing, node)
			errs[i] = fmt.Errorf("call %s on node %s: %w", m.Name, node, errs[i])
		}
	}
	return answers, missing, errors.Join(append(errs, connected)...)
}

// exchange sends an encoded request to a node and decodes its answer.
func exchange[Req, Res proto.Message](
	ctx context.Context, e *Endpoint, node string, m Method[Req, Res], payload []byte,
) (res Res, err error) {
	if m.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, m.Timeout)
		defer cancel()
	}
	answer, err := e.transport.Request(ctx, node, m.Name, payload)
	if err != nil {
		return res, e.requestError(ctx, node, err)
	}
	reply, err := decode[*clusterv1.Reply](answer)
	if err != nil {
		return res, OutcomeUnknown(err)
	}
	switch o := reply.GetOutcome().(type) {
	case *clusterv1.Reply_Fault:
		return res, FaultFromWire(o.Fault)
	case *clusterv1.Reply_Result:
		if res, err = decode[Res](o.Result); err != nil {
			return res, OutcomeUnknown(err)
		}
		return res, nil
	default:
		return res, OutcomeUnknown(errors.New("reply without outcome"))
	}
}

// requestError returns the error of a call whose request failed with cause.
func (e *Endpoint) requestError(ctx context.Context, node string, cause error) error {
	switch {
	case errors.Is(cause, ErrDisconnected), errors.Is(cause, ErrBusy),
		errors.Is(cause, ErrNoResponder) && (e.peers.Alive(node) || ctx.Err() != nil):
		return fault.Wrap(cause, fault.Unavailable, fault.StoreUnavailable,
			"the responsible node cannot be reached; nothing was changed; retry")
	case errors.Is(cause, ErrNoResponder):
		return ErrNodeGone
	default:
		return OutcomeUnknown(cause)
	}
}

// probeConnection returns nil once the transport has carried a probe, and otherwise an error that
// wraps ErrDisconnected.
func (e *Endpoint) probeConnection(ctx context.Context, timeout time.Duration) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	_, err := e.transport.Request(ctx, e.ID(), topicProbe, nil)
	if err == nil || ctx.Err() == nil && errors.Is(err, ErrNoResponder) && !errors.Is(err, ErrDisconnected) {
		return nil
	}
	return fmt.Errorf("probe the transport: %w: %w", err, ErrDisconnected)
}

// OutcomeUnknown returns the fault for a call that the called node may have executed without
// answering. cause is only logged.
func OutcomeUnknown(cause error) error {
	return fault.Wrap(cause, fault.Unavailable, fault.OutcomeUnknown,
		"the responsible node did not answer; the outcome is unknown")
}
