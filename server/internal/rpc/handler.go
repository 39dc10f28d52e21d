package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect"
	connectcors "connectrpc.com/cors"
	"connectrpc.com/grpcreflect"
	"github.com/rs/cors"
	"google.golang.org/protobuf/reflect/protoreflect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/pagetoken"
	"github.com/parleyhq/parley/server/internal/revocation"
	"github.com/parleyhq/parley/server/internal/rpc/intercept"
)

// Handler is the HTTP handler of the API's port, with the switch of its health checks.
type Handler struct {
	http.Handler

	// Health holds the status that health checks (grpc.health.v1) report.
	Health *Health

	live *liveWrites
}

// CutStalled ends the streams whose clients have not read a frame for a second, for a server that
// shuts down and does not wait for Config.FrameTimeout.
func (h *Handler) CutStalled() { h.live.cut(time.Second) }

// NewHandler returns the handler of the API's port: the services, health checks, reflection and the
// page. It fails if a required dependency is missing, or if the method tables do not fit the
// schema.
func NewHandler(cfg Config, deps Deps) (*Handler, error) {
	if err := errors.Join(errTables, deps.check()); err != nil {
		return nil, err
	}
	validator, err := protovalidate.New(protovalidate.WithMessages(
		&parleyv1.SendMessageRequest{}, &parleyv1.SubscribeRequest{}, &parleyv1.QueueMessage{}, &parleyv1.NackItem{},
		&parleyv1.AckRequest{}, &parleyv1.ConsumeRequest{}, &parleyv1.StreamingConsumeRequest{}, &parleyv1.ConnectRequest{}))
	if err != nil {
		return nil, fmt.Errorf("rules of the schema: %w", err)
	}
	calls := intercept.NewCalls(intercept.Config{
		Logger: deps.Telemetry.Logger, ToWire: toWire, Explain: cfg.explain, DecodeError: decodeError,
	})
	opts, err := options(&cfg, &deps, calls, validator)
	if err != nil {
		return nil, err
	}
	cfg.live = &liveWrites{}
	health := newHealth(cfg.FrameTimeout)
	mux := http.NewServeMux()
	handlers := handlersOf(&cfg, &deps, validator, opts)
	for _, m := range api.all {
		handler := handlers[m.descriptor.Parent().FullName()]
		if handler == nil {
			return nil, fmt.Errorf("no handler for %s", m.procedure)
		}
		if !m.sideEffects {
			handler = checkedGet(calls, handler)
		}
		if m.serverStreams {
			handler = watchToken(&deps, calls, handler)
		}
		if m.settles {
			handler = chargeFailures(&deps, handler)
		}
		mux.Handle(m.procedure, guard(&deps, calls, limiterOf(&deps, m), handler))
	}
	open := func(path string, handler http.Handler) {
		mux.Handle(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			intercept.EnterConnect(r.Context())
			handler.ServeHTTP(w, r)
		}))
	}
	open(health.checkHandler(opts...))
	open(health.watchHandler(opts...))
	if cfg.Reflection {
		reflector := grpcreflect.NewStaticReflector(append(serviceNames(), healthService)...)
		open(grpcreflect.NewHandlerV1(reflector, opts...))
		open(grpcreflect.NewHandlerV1Alpha(reflector, opts...))
	}
	mux.Handle("/", pageOrUnknown(deps.Page, refuseUnknown(calls)))
	return &Handler{
		Handler: calls.Wrap(limitConnections(deps.Telemetry.Logger, timeLimits(&cfg, allowOrigins(cfg.CORSOrigins, mux)))),
		Health:  health,
		live:    cfg.live,
	}, nil
}

// handlersOf returns the handler of each service of the API, by the service's name.
func handlersOf(
	cfg *Config, deps *Deps, validator protovalidate.Validator, opts []connect.HandlerOption,
) map[protoreflect.FullName]http.Handler {
	_, messages := parleyv1connect.NewMessageServiceHandler(
		&messageService{cfg: *cfg, deps: *deps, validator: validator, presence: newPresenceService(cfg, deps)}, opts...)
	_, queues := parleyv1connect.NewQueueServiceHandler(
		&queueService{cfg: *cfg, deps: *deps, validator: validator}, opts...)
	_, admin := parleyv1connect.NewAdminServiceHandler(
		&adminService{deps: *deps, pages: pagetoken.New(deps.PageSecret)}, opts...)
	_, presence := parleyv1connect.NewPresenceServiceHandler(newPresenceService(cfg, deps), opts...)
	_, about := parleyv1connect.NewServerServiceHandler(&serverService{cfg: *cfg, deps: *deps}, opts...)
	return map[protoreflect.FullName]http.Handler{
		messageMethods.name: messages, queueMethods.name: queues, presenceMethods.name: presence, adminMethods.name: admin,
		serverMethods.name: about,
	}
}

// serviceNames returns the names of the services of the API.
func serviceNames() []string {
	names := make([]string, 0, len(services))
	for i := range services {
		names = append(names, string(services[i].name))
	}
	return names
}

// setNoStore forbids caches to store the response to a GET, regardless of its status: the response
// is for one caller, and for one moment.
func setNoStore(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		w.Header().Set("Cache-Control", "no-store")
	}
}

// limiterOf returns the function that limits the rate of the method's calls by their subjects.
func limiterOf(deps *Deps, m *method) func(subject string) error {
	if m.settles {
		return deps.Settles.Check
	}
	return deps.Limiter.Allow
}

// chargeFailures returns a handler that calls next, and charges the call to Deps.Settles if it
// fails, also before it reaches a handler.
func chargeFailures(deps *Deps, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		if intercept.Failed(r.Context()) {
			deps.Settles.Charge(ident.FromContext(r.Context()).Subject, 1)
		}
	})
}

// guard returns a handler that calls next for requests with a valid token whose subject allow
// admits, and refuses all others. It reads only the header.
func guard(deps *Deps, calls *intercept.Calls, allow func(subject string) error, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// This function stays on the stack for as long as a stream lives, see intercept.Calls.Wrap.
		if r := admit(deps, calls, allow, w, r); r != nil {
			next.ServeHTTP(w, r)
		}
	})
}

// admit returns the request with the principal of its token in its context. If it refuses the call,
// it answers it and returns nil.
func admit(
	deps *Deps, calls *intercept.Calls, allow func(subject string) error, w http.ResponseWriter, r *http.Request,
) *http.Request {
	setNoStore(w, r)
	p, err := deps.Verifier.Authenticate(r)
	if err == nil {
		intercept.SetSubject(r.Context(), p.Subject)
		err = deps.Revocations.Check(r.Context(), p)
		if fault.Is(err, fault.TokenRevoked) && r.URL.Path == parleyv1connect.PresenceServiceSignOutProcedure && deps.Revocations.Unstored(p) {
			err = nil // the repeat stores what the first call could not
		}
		if err == nil {
			err = allow(p.Subject)
		}
	}
	if err != nil {
		calls.Refuse(w, r, err)
		return nil
	}
	intercept.EnterConnect(r.Context())
	return r.WithContext(ident.NewContext(r.Context(), p))
}

// watchToken returns a handler of a stream that calls next with a context that is canceled, with a
// fault as its cause, when the caller's token is revoked or KickUser ends the stream.
func watchToken(deps *Deps, calls *intercept.Calls, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		p := ident.FromContext(ctx)
		watch := deps.Revocations.Watch(p, cancel)
		defer watch.Close()
		// Once more, for what was revoked before the stream was watched.
		if err := deps.Revocations.Check(ctx, p); err != nil {
			calls.Refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, watchKey{}, watch)))
	})
}

// watchKey is the key of the stream's *revocation.Stream in its context.
type watchKey struct{}

// renewToken makes the stream of ctx end when p's token is revoked, instead of the one that it was
// opened with.
func renewToken(ctx context.Context, p *ident.Principal) {
	if watch, ok := ctx.Value(watchKey{}).(*revocation.Stream); ok {
		watch.Renew(p)
	}
}

// pageOrUnknown returns a handler that calls page for a GET or HEAD whose path does not have a
// procedure's form, and unknown for everything else. page may be nil.
func pageOrUnknown(page, unknown http.Handler) http.Handler {
	if page == nil {
		return unknown
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if (r.Method == http.MethodGet || r.Method == http.MethodHead) && !isProcedurePath(r.URL.Path) {
			page.ServeHTTP(w, r)
			return
		}
		unknown.ServeHTTP(w, r)
	})
}

// isProcedurePath reports whether a path has the form /package.Service/Method.
func isProcedurePath(path string) bool {
	service, _, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return ok && strings.Contains(service, ".")
}

// refuseUnknown returns a handler that answers calls of procedures that do not exist: with
// `unimplemented` in the caller's protocol. The HTTP status is always 404, even for gRPC.
func refuseUnknown(calls *intercept.Calls) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setNoStore(w, r)
		calls.Refuse(&notFoundWriter{w}, r, fault.New(fault.Unimplemented, fault.UnimplementedCall, "no such procedure"))
	})
}

// notFoundWriter is a ResponseWriter that writes status 404 instead of any other.
type notFoundWriter struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *notFoundWriter) WriteHeader(int) { w.ResponseWriter.WriteHeader(http.StatusNotFound) }

// allowOrigins returns next with CORS for these origins; next itself if there are none.
func allowOrigins(origins []string, next http.Handler) http.Handler {
	if len(origins) == 0 {
		return next
	}
	return cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: connectcors.AllowedMethods(),
		AllowedHeaders: append(connectcors.AllowedHeaders(), "Authorization", intercept.RequestIDHeader, "Traceparent"),
		ExposedHeaders: append(connectcors.ExposedHeaders(), intercept.RequestIDHeader, sourceHeader),
		MaxAge:         int((2 * time.Hour).Seconds()),
	}).Handler(next)
}
