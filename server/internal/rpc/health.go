package rpc

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/parleyhq/parley/server/internal/fault"
)

// maxWatchers bounds the concurrent Watch streams of health checks on this node. They require no
// token.
const maxWatchers = 64

const (
	healthService        = "grpc.health.v1.Health"
	healthCheckProcedure = "/" + healthService + "/Check"
	healthWatchProcedure = "/" + healthService + "/Watch"
)

// Health holds the status that grpc.health.v1 reports: the same one for the server as a whole and
// for each of its services. It starts as serving. It is safe for concurrent use.
type Health struct {
	mu      sync.Mutex // guards serving and changed
	serving bool
	changed chan struct{} // closed at the next change

	watchers atomic.Int64
	timeout  time.Duration
}

func newHealth(timeout time.Duration) *Health {
	return &Health{serving: true, changed: make(chan struct{}), timeout: timeout}
}

// SetServing sets whether health checks report the server as serving, and wakes the watchers. It
// does not refuse calls. A draining server sets it to false first.
func (h *Health) SetServing(serving bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.serving == serving {
		return
	}
	h.serving = serving
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *Health) state() (healthv1.HealthCheckResponse_ServingStatus, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.serving {
		return healthv1.HealthCheckResponse_SERVING, h.changed
	}
	return healthv1.HealthCheckResponse_NOT_SERVING, h.changed
}

// check implements the method Check of grpc.health.v1. It returns a NotFound fault for an unknown
// service.
func (h *Health) check(_ context.Context, req *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	if !knownService(req.GetService()) {
		return nil, fault.New(fault.NotFound, fault.UnimplementedCall, "no such service")
	}
	status, _ := h.state()
	return &healthv1.HealthCheckResponse{Status: status}, nil
}

func knownService(name string) bool {
	return name == "" || name == healthService || slices.Contains(serviceNames(), name)
}

// watch implements the method Watch of grpc.health.v1: it streams the status and its changes. For
// an unknown service it sends SERVICE_UNKNOWN and waits, as gRPC's health checking protocol
// requires.
func (h *Health) watch(
	ctx context.Context, req *healthv1.HealthCheckRequest, stream *connect.ServerStream[healthv1.HealthCheckResponse],
) error {
	defer h.watchers.Add(-1)
	if h.watchers.Add(1) > maxWatchers {
		return fault.Full(maxWatchers, "the node serves at most %d health watch streams")
	}
	known := knownService(req.GetService())
	out := newFrameWriter[*healthv1.HealthCheckResponse](ctx, stream.Conn(), h.timeout, nil)
	for {
		status, changed := h.state()
		if !known {
			status, changed = healthv1.HealthCheckResponse_SERVICE_UNKNOWN, nil
		}
		if err := out.write(ctx, &healthv1.HealthCheckResponse{Status: status}); err != nil {
			return err
		}
		if err := out.idle(); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// checkHandler and watchHandler return the path and the handler of a method of the health service.
// connect's library for this service has no Watch, and its JSON does not have the field names of
// grpc.health.v1.
func (h *Health) checkHandler(opts ...connect.HandlerOption) (string, http.Handler) {
	return healthCheckProcedure, connect.NewUnaryHandlerSimple(healthCheckProcedure, h.check, opts...)
}

func (h *Health) watchHandler(opts ...connect.HandlerOption) (string, http.Handler) {
	return healthWatchProcedure, connect.NewServerStreamHandlerSimple(healthWatchProcedure, h.watch, opts...)
}
