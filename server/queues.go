package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/parleyhq/parley/server/internal/cluster/remote"
	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/inspect"
	"github.com/parleyhq/parley/server/internal/queue/keeper"
	"github.com/parleyhq/parley/server/internal/queue/produce"
	"github.com/parleyhq/parley/server/internal/queue/topics"
	"github.com/parleyhq/parley/server/internal/rpc"
	"github.com/parleyhq/parley/server/internal/store/redislog"
	"github.com/parleyhq/parley/server/internal/telemetry"
)

// queues are the parts of work queues.
type queues struct {
	fleet     *consume.Fleet
	consumers *consume.Service
	// peers carries calls between the consumers of the fleet's nodes.
	peers  *remote.QueuePeers
	intake *produce.Service
	topics *topics.Admin
	keeper *keeper.Keeper
	// inspector looks into topics, and records their history.
	inspector *inspect.Service
}

// buildQueues creates the parts of work queues, without starting them. It fails if Redis can be
// reached and has queues in another layout.
func (s *Server) buildQueues(ctx context.Context, b *backends, tel *telemetry.Telemetry) error {
	meter := tel.Meters.Meter(scope)
	produced, err := produce.NewMetrics(meter)
	if err != nil {
		return fmt.Errorf("make metrics of queues: %w", err)
	}
	consumed, err := consume.NewMetrics(meter)
	if err != nil {
		return fmt.Errorf("make metrics of queues: %w", err)
	}
	store := redislog.NewStore(b.redis, redislog.StoreConfig{
		Prefix: s.cfg.Redis.KeyPrefix, InProcess: b.inProcess, Logger: s.log,
	})
	s.layout = newLayoutWatcher(store, s.log)
	if err := s.layout.checkNow(ctx); err != nil {
		return err
	}
	s.hints = remote.NewQueueHints(b.bus.Nodes(), s.log)
	node := s.roster.ID()
	catalog := topics.NewCatalog(topics.CatalogConfig{Store: store, Logger: s.log})
	fleet := consume.NewFleet(consume.FleetConfig{Store: store, Node: node, Logger: s.log})
	peers := remote.NewQueuePeers(s.endpoint, fleet.Others, s.log)
	keep := keeper.New(keeper.Config{
		Store: store, Topics: catalog, Fleet: fleet, Node: node, Ager: store, Hints: s.hints, Logger: s.log,
	})
	consumers := consume.New(consume.Config{
		Store: store, Topics: catalog, Nodes: store, Fleet: fleet, Node: node, Peers: peers, Secret: b.store.Identity().Secret,
		Hints: s.hints, Entries: store, Dirty: keep.Dirty, Heartbeat: s.cfg.Limits.HeartbeatInterval,
		MaxStreams: s.cfg.Queues.Consumers, MaxPerSubject: s.cfg.Queues.ConsumersPerSubject,
		Metrics: consumed, Logger: s.log,
	})
	intake := produce.New(produce.Config{
		Store: store, Topics: catalog, Canceller: consumers, Hints: s.hints, Metrics: produced, Logger: s.log,
	})
	s.queues = &queues{
		fleet: fleet, peers: peers, consumers: consumers, keeper: keep,
		topics: topics.NewAdmin(topics.AdminConfig{Store: store, Leases: store, Catalog: catalog, Logger: s.log}),
		intake: intake,
		inspector: inspect.New(inspect.Config{
			Store: store, Topics: catalog, Consumers: consumers, Digest: consume.Digest, Producer: rpc.LetterProducer{Producers: intake},
			Hints: s.hints, Local: consumers.LocalTopics, Meter: meter, Owned: keep.Owned, Logger: s.log,
		}),
	}
	peers.Serve(consumers)
	return nil
}

// addTo sets the fields of deps that serve calls about queues.
func (q *queues) addTo(deps *rpc.Deps) {
	deps.Consumers, deps.Producers = q.consumers, q.intake
	deps.Topics, deps.Inspector = q.topics, q.inspector
}

// services returns the services in the order of their start.
func (q *queues) services() []namedService {
	return []namedService{
		{"beat of the node", q.fleet},
		{"calls between consumers", q.peers},
		{"keeper of queues", q.keeper},
		{"sessions of consumers", q.consumers},
		{"history of queues", q.inspector},
	}
}

// drain ends the streams of consumers, whose sessions continue on other nodes, and then the beat of
// the node, so that these take over its leases at once.
func (q *queues) drain(ctx context.Context) error {
	return errors.Join(q.consumers.Stop(ctx), q.fleet.Stop(ctx))
}
