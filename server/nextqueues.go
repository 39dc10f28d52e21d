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

// nextPrefix keeps the keys of the queues' second design apart from those of the first. It follows
// the configured prefix.
const nextPrefix = "next:"

// nextQueues are the parts of the queues' second design. A nil one has no parts.
type nextQueues struct {
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

// buildNextQueues creates the parts of the queues' second design, without starting them, if it is
// to be served, and sets the fields of deps. It must come after buildQueues, whose hints they
// share: hints about topics of the first design with the same name only cause needless looks.
func (s *Server) buildNextQueues(b *backends, tel *telemetry.Telemetry, deps *rpc.Deps) error {
	if !s.cfg.Queues.Next {
		return nil
	}
	meter := tel.Meters.Meter(scope)
	produced, err := produce.NewMetrics(meter)
	if err != nil {
		return fmt.Errorf("make metrics of queues: %w", err)
	}
	consumed, err := consume.NewMetrics(meter)
	if err != nil {
		return fmt.Errorf("make metrics of queues: %w", err)
	}
	store := s.nextStore(b)
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
	s.next = &nextQueues{
		fleet: fleet, peers: peers, consumers: consumers, keeper: keep,
		topics: topics.NewAdmin(topics.AdminConfig{Store: store, Leases: store, Catalog: catalog, Logger: s.log}),
		intake: intake,
		inspector: inspect.New(inspect.Config{
			Store: store, Topics: catalog, Consumers: consumers, Digest: consume.Digest, Producer: rpc.LetterProducer{Producers: intake},
			Hints: s.hints, Local: consumers.LocalTopics, Meter: meter, Owned: keep.Owned, Logger: s.log,
		}),
	}
	peers.Serve(s.next.consumers)
	s.next.addTo(deps)
	return nil
}

// nextStore returns the store of the queues' second design.
func (s *Server) nextStore(b *backends) *redislog.Store {
	return redislog.NewStore(b.redis, redislog.StoreConfig{
		Prefix: s.cfg.Redis.KeyPrefix + nextPrefix, InProcess: b.inProcess, Logger: s.log,
	})
}

// addTo sets the fields of deps that serve calls about the queues of the second design.
func (q *nextQueues) addTo(deps *rpc.Deps) {
	deps.NextConsumers, deps.NextProducers = q.consumers, q.intake
	deps.NextTopics, deps.NextInspector = q.topics, q.inspector
}

// services returns the services in the order of their start.
func (q *nextQueues) services() []namedService {
	if q == nil {
		return nil
	}
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
func (q *nextQueues) drain(ctx context.Context) error {
	if q == nil {
		return nil
	}
	return errors.Join(q.consumers.Stop(ctx), q.fleet.Stop(ctx))
}
