package cluster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
)

// maxMessageBytes bounds an encoded request or answer. NATS carries 1 MiB, headers included.
const maxMessageBytes = 1<<20 - 4<<10

// Peers reports which nodes are alive. *Roster implements it.
type Peers interface {
	// ID returns this node's id.
	ID() string
	// Lives reports whether a node was heard of within the last 1.5 s and is not leaving. This node lives.
	Lives(node string) bool
	// Others returns the ids, sorted, of the other nodes that may answer a call: those that live and those that are
	// leaving.
	Others() []string
}

// Endpoint makes this node's calls to other nodes and answers theirs. Safe for concurrent use.
type Endpoint struct {
	peers     Peers
	transport Transport
	log       *slog.Logger
}

// NewEndpoint creates an Endpoint of the node peers.ID. A nil logger means slog.Default.
func NewEndpoint(peers Peers, transport Transport, logger *slog.Logger) *Endpoint {
	return &Endpoint{peers: peers, transport: transport, log: cmp.Or(logger, slog.Default())}
}

// ID returns this node's id.
func (e *Endpoint) ID() string { return e.peers.ID() }

// Handlers returns a set of methods, empty at first, that this node answers together.
func (e *Endpoint) Handlers() *Handlers { return &Handlers{endpoint: e} }

// Handlers is a set of methods that this node answers between Start and Stop. It is a lifecycle.Service.
type Handlers struct {
	endpoint *Endpoint
	methods  []handler
	life     lifecycle.Base
}

// handler answers the calls of one method; a nil answer sends none.
type handler struct {
	method string
	answer func(ctx context.Context, payload []byte) []byte
}

// Handle adds a method to h, whose calls fn answers, each in a goroutine of its own. ctx ends when the caller stops
// waiting. The caller gets fn's error if it is a fault; any other is logged here, and the caller gets INTERNAL. Call
// Handle before h.Start.
func Handle[Req, Res proto.Message](h *Handlers, m Method[Req, Res], fn func(ctx context.Context, req Req) (Res, error)) {
	h.methods = append(h.methods, handler{method: m.Name, answer: func(ctx context.Context, payload []byte) []byte {
		return h.endpoint.answer(ctx, m.Name, func() (proto.Message, error) {
			req, err := decode[Req](payload)
			if err != nil {
				return nil, err
			}
			return fn(ctx, req)
		})
	}})
}

// Start lets other nodes call the methods until Stop. If one can't be served, none is. See lifecycle.Service.
func (h *Handlers) Start(ctx context.Context) error {
	return h.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		var cancels []func()
		run.OnEnd(func(context.Context) error {
			var ending sync.WaitGroup
			for _, cancel := range cancels {
				ending.Go(cancel)
			}
			ending.Wait()
			return nil
		})
		for _, m := range h.methods {
			cancel, err := h.endpoint.transport.Serve(h.endpoint.ID(), m.method, m.answer)
			if err != nil {
				return fmt.Errorf("serve calls of %s: %w", m.method, err)
			}
			cancels = append(cancels, cancel)
		}
		return nil
	})
}

// Stop takes no more calls and blocks until those under way are answered.
func (h *Handlers) Stop(ctx context.Context) error { return h.life.Stop(ctx) }

// answer encodes the outcome of do.
func (e *Endpoint) answer(ctx context.Context, method string, do func() (proto.Message, error)) []byte {
	res, err := do()
	var result []byte
	if err == nil {
		result, err = encode(res)
	}
	reply := &clusterv1.Reply{Outcome: &clusterv1.Reply_Result{Result: result}}
	if err != nil {
		e.LogHidden(ctx, method, err)
		reply.Outcome = &clusterv1.Reply_Fault{Fault: FaultToWire(err)}
	}
	payload, err := proto.Marshal(reply)
	if err != nil {
		e.log.ErrorContext(ctx, "answer a call", "method", method, "error", err)
		return nil
	}
	return payload
}

// LogHidden logs an error of a method's handler that FaultToWire hides from the caller. It ignores nil and faults.
func (e *Endpoint) LogHidden(ctx context.Context, method string, err error) {
	if _, ok := fault.As(err); err != nil && !ok {
		e.log.ErrorContext(ctx, "a call from another node failed", "method", method, "error", err)
	}
}

func encode(m proto.Message) ([]byte, error) {
	data, err := proto.Marshal(m)
	if err == nil && len(data) > maxMessageBytes {
		err = fmt.Errorf("it has %d bytes, more than %d", len(data), maxMessageBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return data, nil
}

// decode decodes a message of M's type, a pointer to a generated struct.
func decode[M proto.Message](data []byte) (M, error) {
	var none M
	m, ok := none.ProtoReflect().New().Interface().(M)
	if !ok {
		return none, fmt.Errorf("decode: %T is no generated message", none)
	}
	if err := proto.Unmarshal(data, m); err != nil {
		return none, fmt.Errorf("decode %s: %w", none.ProtoReflect().Descriptor().FullName(), err)
	}
	return m, nil
}
