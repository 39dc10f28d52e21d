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

// queues are the parts of work queues that the transport calls.
type queues struct {
	service *queue.Service
	admin   *queue.Admin
	calls   *remote.QueueSessions
}

// addTo gives the transport what serves its calls about queues.
func (q *queues) addTo(deps *rpc.Deps, hub *queue.Hub, secret []byte) {
	deps.Queues, deps.Admin, deps.QueueCalls = q.service, q.admin, q.calls
	deps.Consumers, deps.PageSecret = rpc.HubConsumers{Hub: hub}, secret
}

// buildQueues joins the parts of work queues, and starts what works by itself. All of it ends before Redis is closed.
func (s *Server) buildQueues(ctx context.Context, b *backends, tel *telemetry.Telemetry) (*queues, error) {
	meter := tel.Meters.Meter(scope)
	metrics, err := queue.NewMetrics(meter)
	if err != nil {
		return nil, fmt.Errorf("make metrics of queues: %w", err)
	}
	store := redisqueue.NewStore(b.redis, redisqueue.StoreConfig{Prefix: s.cfg.Redis.KeyPrefix, Logger: s.log})
	catalog := queue.NewCatalog(store)
	hints := remote.NewQueueHints(b.bus.Nodes(), s.log)
	s.done.push("hints of queues", func(context.Context) error { hints.Close(); return nil })
	s.consumers = queue.NewHub(queue.HubConfig{
		Store: store, Catalog: catalog, Node: s.roster.ID(), Secret: b.store.Identity().Secret, Ready: hints,
		LeaseTTL: s.cfg.Queues.LeaseTTL, HeartbeatInterval: s.cfg.Limits.HeartbeatInterval,
		MaxSessions: s.cfg.Queues.Consumers, MaxSessionsPerSubject: s.cfg.Queues.ConsumersPerSubject,
		Logger: s.log, Meter: meter,
	})
	s.done.push("consumers of queues", func(context.Context) error { s.consumers.Close(); return nil })
	q := &queues{
		service: queue.NewService(queue.ServiceConfig{Store: store, Catalog: catalog, Hints: hints, Metrics: metrics, Logger: s.log}),
		admin:   queue.NewAdmin(queue.AdminConfig{Store: store, Catalog: catalog, Hints: hints, Logger: s.log}),
		calls:   remote.NewQueueSessions(s.endpoint, s.consumers),
	}
	if err := q.calls.Start(); err != nil {
		return nil, err
	}
	s.done.push("calls about consumers", func(context.Context) error { q.calls.Stop(); return nil })
	scheduler := queue.NewScheduler(queue.SchedulerConfig{
		Store: store, Catalog: catalog, Owner: s.roster, Hints: hints, Metrics: metrics, Logger: s.log,
	})
	scheduler.Start(ctx)
	s.done.push("scheduler of queues", func(context.Context) error { scheduler.Stop(); return nil })
	return q, nil
}
