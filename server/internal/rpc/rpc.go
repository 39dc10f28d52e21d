// Package rpc is the transport: parley.v1 over Connect, gRPC and gRPC-Web on one port, with reflection and health.
//
// A request passes, from the outside in: request id, log and recovery; time limits of its body and its response; CORS;
// the route; token; rate limit (all before the body is read); then decoding; then the interceptors: traces and
// metrics (not of streams), mapping of errors and what could not be decoded, recovery, deadline, and the method's gate
// (request.go): the caller's capability, the limits and rules of the request, its charge; then the service.
//
// The facts about a method stand in one place: a row of its service's table (messagemethods.go and so on) says what the schema
// does not, and all else is read from the descriptors (method.go). A new method is one row and one handler; without its row
// NewHandler fails.
//
// errors.go is the only place that knows how a fault looks on the wire. Every error of a call has an ErrorDetail, whoever
// refuses it: malformed.go and undecoded.go speak for connect and the decoders. The exceptions are the answers that are only
// HTTP's (405, 415, 431 and 505).
package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect"
	"connectrpc.com/otelconnect"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/fanout"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/rpc/authn"
	"github.com/parleyhq/parley/server/internal/rpc/intercept"
	"github.com/parleyhq/parley/server/internal/rpc/limit"
	"github.com/parleyhq/parley/server/internal/telemetry"
)

// Messages is the message service's use-cases. The caller's principal is in the context.
type Messages interface {
	Send(ctx context.Context, r message.SendRequest) (message.Receipt, error)
	SendBatch(ctx context.Context, rs []message.SendRequest) []message.SendOutcome
	List(ctx context.Context, q message.ListQuery) (message.Page, error)
	Get(ctx context.Context, channelID, msgID string) (message.Message, error)
	// Edit and Recall also return the message as it is afterwards.
	Edit(ctx context.Context, r message.EditRequest) (message.Receipt, message.Message, error)
	Recall(ctx context.Context, r message.RecallRequest) (message.Receipt, message.Message, error)
}

var (
	_ Messages = (*message.Service)(nil)
	_ Channels = (*channel.Service)(nil)
	_ Access   = (*channel.Access)(nil)
)

// Config is about limits. Every field must be set, but for CORSOrigins.
type Config struct {
	// SendReadBytes, BatchReadBytes and OtherReadBytes bound a request, or each request of a stream, after decompression. The
	// tables of the services say which of them applies to a method: contentRequest, batchRequest or smallRequest.
	SendReadBytes, BatchReadBytes, OtherReadBytes int
	// UnaryTimeout bounds a call whatever deadline it asks for, BodyTimeout the reading of a request's body,
	// FrameTimeout the writing of one frame of a stream. FrameTimeout is at least twice HeartbeatInterval.
	UnaryTimeout, BodyTimeout, FrameTimeout time.Duration
	// HeartbeatInterval is the hub's, which subscribers are told.
	HeartbeatInterval time.Duration
	// ChannelsPerStream bounds the channels that a request names, to add or to remove.
	ChannelsPerStream int
	// Reflection serves gRPC server reflection.
	Reflection bool
	// CORSOrigins are the origins that may call from a browser; `*` for all.
	CORSOrigins []string
	// HeaderTimeout bounds the reading of a request's header, IdleTimeout the time that a connection is kept without a
	// call.
	HeaderTimeout, IdleTimeout time.Duration
	// HeaderBytes bounds a request's header, and ConnectionStreams the concurrent calls of one HTTP/2 connection.
	HeaderBytes, ConnectionStreams int
}

// DefaultConfig gives the limits of an empty configuration file.
func DefaultConfig() Config {
	return Config{
		SendReadBytes: 512 << 10, BatchReadBytes: 2 << 20, OtherReadBytes: 64 << 10,
		UnaryTimeout: 30 * time.Second, BodyTimeout: 10 * time.Second, FrameTimeout: 60 * time.Second,
		HeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute,
		HeartbeatInterval: 15 * time.Second, Reflection: true, ChannelsPerStream: 500, HeaderBytes: 16 << 10, ConnectionStreams: 250,
	}
}

// Deps is what the handler calls. All but Page must be set.
type Deps struct {
	Messages Messages
	Channels Channels
	Access   Access
	Hub      *fanout.Hub
	Sessions Sessions
	// Queues, Consumers and QueueCalls serve QueueService, Admin serves AdminService.
	Queues     Queues
	Consumers  Consumers
	QueueCalls QueueCalls
	Admin      Admin
	// Info is what GetServerInfo tells besides.
	Info ServerInfo
	// Epoch is that of the store's logs: positions are only comparable within one.
	Epoch string
	// PageSecret seals the page tokens of AdminService; the same on all nodes.
	PageSecret []byte
	Verifier   *authn.Verifier
	Limiter    *limit.Limiter
	Telemetry  *telemetry.Telemetry
	// Page answers GET and HEAD of what is no procedure; nil for none. It asks for no token.
	Page http.Handler
}

func (d *Deps) check() error {
	if d.Messages == nil || d.Channels == nil || d.Access == nil || d.Hub == nil || d.Sessions == nil ||
		d.Queues == nil || d.Consumers == nil || d.QueueCalls == nil || d.Admin == nil || d.Epoch == "" || len(d.PageSecret) == 0 ||
		d.Verifier == nil || d.Limiter == nil || d.Telemetry == nil {
		return errors.New("a dependency is missing")
	}
	return nil
}

// options gives what all procedures of all services share.
func options(
	cfg *Config, deps *Deps, calls *intercept.Calls, validator protovalidate.Validator,
) ([]connect.HandlerOption, error) {
	// Of streams the hub's metrics tell more than a span that ends after hours, and every frame would pass through it. The
	// caller's trace goes on here; how much of it is kept the sampler says.
	traces, err := otelconnect.NewInterceptor(
		otelconnect.WithTrustRemote(), otelconnect.WithTracerProvider(deps.Telemetry.Tracers),
		otelconnect.WithMeterProvider(deps.Telemetry.Meters), otelconnect.WithPropagator(deps.Telemetry.Propagator))
	if err != nil {
		return nil, fmt.Errorf("telemetry of calls: %w", err)
	}
	return []connect.HandlerOption{
		connect.WithCodec(protoCodec{}),
		connect.WithHandlerOptions(jsonCodecs()...),
		connect.WithInterceptors(
			unaryOnly{traces},
			calls.Errors(),
			intercept.Recover(),
			intercept.Deadline(cfg.UnaryTimeout),
		),
		connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
			g := &gate{method: api.at(spec.Procedure), cfg: cfg, deps: deps, validator: validator}
			return append(sizeOptions(cfg, g.method), connect.WithInterceptors(intercept.Check(g.check)))
		}),
	}, nil
}

// unaryOnly is an interceptor that leaves streams alone.
type unaryOnly struct{ connect.Interceptor }

// WrapStreamingHandler implements connect.Interceptor.
func (unaryOnly) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func attrError(err error) slog.Attr { return slog.Any("error", err) }
