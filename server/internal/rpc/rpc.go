// Package rpc serves parley.v1 over Connect, gRPC and
// gRPC-Web on one port, with reflection and health checks.
//
// A request passes these parts, from the outside in:
//   - before its body is read: request id, log and recovery; the limit on abandoned calls; the
//     limits on the time and size of its body and on the time of its response; CORS; the route; the
//     token; the rate limit
//   - decoding
//   - the interceptors: traces and metrics (unary calls only), mapping of errors and of requests
//     that could not be decoded, recovery, deadline
//   - the method's gate (request.go), which checks the caller's capability, checks the limits and
//     rules of the request, and charges it
//   - the service
//
// Each service has a table with a row for each method (messagemethods.go and so on). A row states
// what the schema does not; everything else is read from the descriptors (method.go). A new method
// is one row and one handler; without its row NewHandler fails.
//
// Only errors.go decides how a fault is represented on the wire. Every error of a call has an
// ErrorDetail, whether the service, connect (malformed.go) or a decoder (undecoded.go) raised it.
// The exceptions are `canceled`, which no client reads, and the responses that exist only in HTTP
// (405, 415, 431 and 505).
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
	"github.com/parleyhq/parley/server/internal/unread"
)

// Messages is the domain logic of the calls about messages. *message.Service implements it and
// documents the methods. ctx holds the calling user's principal.
type Messages interface {
	Send(ctx context.Context, r message.SendRequest) (message.Receipt, error)
	SendBatch(ctx context.Context, rs []message.SendRequest) []message.SendOutcome
	List(ctx context.Context, q message.ListQuery) (message.Page, error)
	Get(ctx context.Context, channelID, msgID string) (message.Message, error)
	// Edit and Recall also return the message in its current state, which includes the change.
	Edit(ctx context.Context, r message.EditRequest) (message.Receipt, message.Message, error)
	Recall(ctx context.Context, r message.RecallRequest) (message.Receipt, message.Message, error)
}

var (
	_ Messages = (*message.Service)(nil)
	_ Channels = (*channel.Service)(nil)
	_ Access   = (*channel.Access)(nil)
)

// Config holds the limits and options of the API. Every field but CORSOrigins and Reflection must
// be set.
type Config struct {
	// SendReadBytes, BatchReadBytes and OtherReadBytes bound a request, or each request of a stream,
	// in bytes after decompression. The size class in the method's row says which of them applies:
	// contentRequest, batchRequest or smallRequest.
	SendReadBytes, BatchReadBytes, OtherReadBytes int
	// UnaryTimeout bounds a unary call, even if its deadline is later, and each request of a
	// StreamingConsume. BodyTimeout bounds reading a request's body, FrameTimeout writing one frame of
	// a stream. FrameTimeout must be at least twice HeartbeatInterval.
	UnaryTimeout, BodyTimeout, FrameTimeout time.Duration
	// HeartbeatInterval is the maximum time between two frames of a stream. The hubs keep it; this
	// package only tells clients.
	HeartbeatInterval time.Duration
	// ChannelsPerStream bounds the channels of one Subscribe request, and of each list of an
	// UpdateSubscription request. The hub bounds the channels of a stream in total.
	ChannelsPerStream int
	// SessionContentBytes bounds the content of a message of a session. 0 means the schema's limit,
	// which is the maximum.
	SessionContentBytes int
	// WatchedUsers and WatchedChannels bound the users and channels that one request to open a stream
	// with presence watches. The hub bounds those of a stream in total.
	WatchedUsers, WatchedChannels int
	// Reflection enables gRPC server reflection.
	Reflection bool
	// CORSOrigins are the origins whose pages may call from a browser. `*` allows all; an empty list
	// turns CORS off.
	CORSOrigins []string
	// HeaderTimeout bounds reading a request's header. IdleTimeout bounds how long a connection
	// without a call is kept.
	HeaderTimeout, IdleTimeout time.Duration
	// HeaderBytes bounds a request's header in bytes, ConnectionStreams the concurrent calls of one
	// HTTP/2 connection.
	HeaderBytes, ConnectionStreams int

	// live is set by NewHandler.
	live *liveWrites
}

// Deps holds the parts of the server that the handlers call. Every field but Acquaintances,
// Info, Page and those of parley.v1 must be set.
type Deps struct {
	Messages Messages
	Channels Channels
	Sessions Sessions
	Access   Access
	Hub      *fanout.Hub
	Streams  Streams
	// Consumers and Producers are for QueueService; Topics, Inspector and Erasures for AdminService.
	Consumers Consumers
	Producers Producers
	Topics    Topics
	Inspector Inspector
	Erasures  Erasures
	// APIKeys manages the API keys, which Verifier accepts.
	APIKeys APIKeys
	// Presence and PresenceCalls are for PresenceService. Acquaintances limits who may watch whom; nil
	// means no limit.
	Presence      Presence
	PresenceCalls PresenceCalls
	Acquaintances Acquaintances
	// Info is the part of GetServerInfo's response that Config and the schema do not state.
	Info ServerInfo
	// Epoch is the epoch of the store's logs. Positions are comparable only within one epoch.
	Epoch string
	// PageSecret is the key that seals the page tokens of AdminService and PresenceService, and the
	// login tokens. It must be the same on all nodes.
	PageSecret []byte
	Verifier   *authn.Verifier
	// Revocations knows which tokens were revoked.
	Revocations Revocations
	// Kicks ends streams.
	Kicks Kicks
	// Limiter limits the rate of all calls except those that settle or extend deliveries, which
	// Settles limits.
	Limiter *limit.Limiter
	// Settles limits the calls of each subject that settle or extend deliveries. Only what fails is
	// charged: a call that fails as one, and otherwise each item that fails. What succeeds costs
	// nothing, for a caller at its rate limit would otherwise lose jobs whose acks are late. It is
	// bounded by the deliveries that are in flight, which a session bounds, and the bytes of one
	// call by BatchReadBytes. It must not be the same as Limiter.
	Settles *limit.Limiter
	// Unread bounds the unary responses that their clients do not read.
	Unread    *unread.Budget
	Telemetry *telemetry.Telemetry
	// Page serves GET and HEAD requests whose path does not have the form of a procedure, without a
	// token. Nil means that they are refused like unknown procedures.
	Page http.Handler
}

func (d *Deps) check() error {
	if d.Messages == nil || d.Channels == nil || d.Sessions == nil || d.Access == nil || d.Hub == nil || d.Streams == nil ||
		d.Erasures == nil || d.Consumers == nil || d.Producers == nil || d.Topics == nil || d.Inspector == nil || d.Presence == nil ||
		d.PresenceCalls == nil || d.Epoch == "" || len(d.PageSecret) == 0 || d.Verifier == nil || d.Revocations == nil || d.Kicks == nil || d.Limiter == nil || d.Settles == nil || d.Unread == nil ||
		d.APIKeys == nil || d.Telemetry == nil {
		return errors.New("a required field of Deps is not set")
	}
	return nil
}

// options returns the handler options that all procedures of all services share.
func options(
	cfg *Config, deps *Deps, calls *intercept.Calls, validator protovalidate.Validator,
) ([]connect.HandlerOption, error) {
	// Streams have no spans and no metrics of connect: the hub's metrics say more about them than a
	// span that ends after hours, and every frame would pass through the interceptor. The caller's
	// trace is continued; the sampler decides how much of it is kept.
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
			unreadResponses{deps.Unread},
			intercept.Deadline(cfg.UnaryTimeout),
		),
		connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
			g := &gate{method: api.forProcedure(spec.Procedure), cfg: cfg, deps: deps, validator: validator}
			return append(sizeOptions(cfg, g.method), connect.WithInterceptors(intercept.Check(g.check)))
		}),
	}, nil
}

// unaryOnly is an interceptor that applies another one to unary calls only.
type unaryOnly struct{ connect.Interceptor }

// WrapStreamingHandler implements connect.Interceptor.
func (unaryOnly) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func attrError(err error) slog.Attr { return slog.Any("error", err) }
