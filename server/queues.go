package server

import (
	"context"
	"fmt"

	"github.com/parleyhq/parley/server/internal/cluster/remote"
	"github.com/parleyhq/parley/server/internal/queue"
	"github.com/parleyhq/parley/server/internal/rpc"
	"github.com/parleyhq/parley/server/internal/store/redisqueue"
	"github.com/parleyhq/parley/server/internal/telemetry"
)

// queues holds the parts of work queues that the API's handlers call.
type queues struct {
	service *queue.Service
	admin   *queue.Admin
	calls   *remote.QueueStreams
}

// addTo sets the fields of deps that serve calls about work queues.
func (q *queues) addTo(deps *rpc.Deps, hub *queue.Hub, secret []byte) {
	deps.Queues, deps.Admin, deps.ConsumerCalls = q.service, q.admin, q.calls
	deps.Consumers, deps.PageSecret = rpc.HubConsumers{Hub: hub}, secret
}

// buildQueues creates the store, catalog, consumers and scheduler of work queues, without starting
// them. It fails if Redis can be reached and has queues in another layout.
func (s *Server) buildQueues(ctx context.Context, b *backends, tel *telemetry.Telemetry) (*queues, error) {
	meter := tel.Meters.Meter(scope)
	metrics, err := queue.NewMetrics(meter)
	if err != nil {
		return nil, fmt.Errorf("make metrics of queues: %w", err)
	}
	store := redisqueue.NewStore(b.redis, redisqueue.StoreConfig{Prefix: s.cfg.Redis.KeyPrefix, Logger: s.log})
	stores := layouts{store}
	if s.cfg.Queues.Next {
		stores = append(stores, s.nextStore(b))
	}
	s.layout = newLayoutWatcher(stores, s.log)
	if err := s.layout.checkNow(ctx); err != nil {
		return nil, err
	}
	catalog := queue.NewCatalog(store)
	s.hints = remote.NewQueueHints(b.bus.Nodes(), s.log)
	s.consumers = queue.NewHub(queue.HubConfig{
		Store: store, Catalog: catalog, Node: s.roster.ID(), Secret: b.store.Identity().Secret, Ready: s.hints,
		LeaseTTL: s.cfg.Queues.LeaseTTL, HeartbeatInterval: s.cfg.Limits.HeartbeatInterval,
		MaxSessions: s.cfg.Queues.Consumers, MaxSessionsPerSubject: s.cfg.Queues.ConsumersPerSubject,
		Logger: s.log, Meter: meter,
	})
	s.calls = remote.NewQueueStreams(s.endpoint, s.consumers)
	s.scheduler = queue.NewScheduler(queue.SchedulerConfig{
		Store: store, Catalog: catalog, Owner: s.roster, Hints: s.hints, Metrics: metrics, Logger: s.log,
	})
	return &queues{
		service: queue.NewService(queue.ServiceConfig{Store: store, Catalog: catalog, Hints: s.hints, Metrics: metrics, Logger: s.log}),
		admin:   queue.NewAdmin(queue.AdminConfig{Store: store, Catalog: catalog, Hints: s.hints, Logger: s.log}),
		calls:   s.calls,
	}, nil
}
