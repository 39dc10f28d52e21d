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

// maxMessageBytes is the maximum size of an encoded request, result or event. NATS carries at most
// 1 MiB including headers.
const maxMessageBytes = 1<<20 - 4<<10

// Peers reports which nodes are alive. *Roster implements it.
type Peers interface {
	// ID returns this node's id.
	ID() string
	// Alive reports whether a node announced itself within the last 1.5 s and is not leaving. It is
	// true for this node.
	Alive(node string) bool
	// Others returns the sorted ids of the other nodes that may answer a call: live and leaving
	// ones.
	Others() []string
}

// Endpoint sends this node's calls to other nodes and answers theirs. Safe for concurrent use.
type Endpoint struct {
	peers     Peers
	transport Transport
	log       *slog.Logger
}

// NewEndpoint creates the Endpoint of node peers.ID. A nil logger means slog.Default.
func NewEndpoint(peers Peers, transport Transport, logger *slog.Logger) *Endpoint {
	return &Endpoint{peers: peers, transport: transport, log: cmp.Or(logger, slog.Default())}
}

// ID returns this node's id.
func (e *Endpoint) ID() string { return e.peers.ID() }

// Others returns the sorted ids of the other nodes that this one knows and that may answer a call.
func (e *Endpoint) Others() []string { return e.peers.Others() }

// Handlers returns a new, empty set of methods for this node.
func (e *Endpoint) Handlers() *Handlers { return &Handlers{endpoint: e} }

// Handlers is a set of methods that this node answers between Start and Stop. It is a
// lifecycle.Service.
type Handlers struct {
	endpoint *Endpoint
	methods  []handler
	life     lifecycle.Base
}

// handler answers the calls of one method. If answer returns nil, no answer is sent.
type handler struct {
	method string
	answer func(ctx context.Context, payload []byte) []byte
}

// Handle adds a method to h. fn answers its calls, each in its own goroutine; its ctx ends when the
// caller stops waiting. If fn returns a fault, the caller receives it. Any other error is logged
// here and the caller receives INTERNAL. Call Handle before h.Start.
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

// Start answers calls of the methods until Stop. If one method can't be served, Start fails and
// none is. See lifecycle.Service.
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

// Stop accepts no more calls and blocks until those in flight are answered, even if ctx ends.
func (h *Handlers) Stop(ctx context.Context) error { return h.life.Stop(ctx) }

// answer calls do and returns its encoded result or fault. It returns nil if that can't be encoded.
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
		e.log.ErrorContext(ctx, "encoding a reply failed", "method", method, "error", err)
		return nil
	}
	return payload
}

// LogHidden logs an error that FaultToWire would hide from the caller. It ignores nil and faults.
func (e *Endpoint) LogHidden(ctx context.Context, method string, err error) {
	if _, ok := fault.As(err); err != nil && !ok {
		e.log.ErrorContext(ctx, "call from another node failed", "method", method, "error", err)
	}
}

func encode(m proto.Message) ([]byte, error) {
	data, err := proto.Marshal(m)
	if err == nil && len(data) > maxMessageBytes {
		err = fmt.Errorf("message of %d bytes exceeds the limit of %d", len(data), maxMessageBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return data, nil
}

// decode decodes a message of type M, a pointer to a generated struct.
func decode[M proto.Message](data []byte) (M, error) {
	var none M
	m, ok := none.ProtoReflect().New().Interface().(M)
	if !ok {
		return none, fmt.Errorf("decode: %T is not a generated message", none)
	}
	if err := proto.Unmarshal(data, m); err != nil {
		return none, fmt.Errorf("decode %s: %w", none.ProtoReflect().Descriptor().FullName(), err)
	}
	return m, nil
}
