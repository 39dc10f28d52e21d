package server

import (
	"context"
	"errors"

	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/queue/consume"
	"github.com/parleyhq/parley/server/internal/queue/qlog"
	"github.com/parleyhq/parley/server/internal/rpc"
	"github.com/parleyhq/parley/server/internal/store/redislog"
)

// nextPrefix keeps the keys of the queues' second design apart from those of the first. It follows
// the configured prefix.
const nextPrefix = "next:"

// nextQueues are the parts of the queues' second design. A nil one has no parts.
type nextQueues struct {
	fleet     *consume.Fleet
	consumers *consume.Service
}

// buildNextQueues creates the parts of the queues' second design, without starting them, if it is
// to be served. It must come after buildQueues, whose hints they share: hints about topics of the
// first design with the same name only cause needless looks.
func (s *Server) buildNextQueues(b *backends) {
	if !s.cfg.Queues.Next {
		return
	}
	store := redislog.NewStore(b.redis, redislog.StoreConfig{
		Prefix: s.cfg.Redis.KeyPrefix + nextPrefix, InProcess: b.inProcess, Logger: s.log,
	})
	node := s.roster.ID()
	fleet := consume.NewFleet(consume.FleetConfig{Store: store, Node: node, Logger: s.log})
	s.next = &nextQueues{
		fleet: fleet,
		consumers: consume.New(consume.Config{
			Store: store, Topics: storedTopics{store}, Nodes: store, Fleet: fleet, Node: node, Secret: b.store.Identity().Secret,
			Hints: s.hints, Heartbeat: s.cfg.Limits.HeartbeatInterval, MaxStreams: s.cfg.Queues.Consumers,
			MaxPerSubject: s.cfg.Queues.ConsumersPerSubject, Logger: s.log,
		}),
	}
}

// addTo sets the fields of deps that serve calls about the queues of the second design.
func (q *nextQueues) addTo(deps *rpc.Deps) {
	if q != nil {
		deps.NextConsumers = q.consumers
	}
}

// services returns the services in the order of their start.
func (q *nextQueues) services() []namedService {
	if q == nil {
		return nil
	}
	return []namedService{{"beat of the node", q.fleet}, {"sessions of consumers", q.consumers}}
}

// drain ends the streams of consumers, whose sessions continue on other nodes, and then the beat of
// the node, so that these take over its leases at once.
func (q *nextQueues) drain(ctx context.Context) error {
	if q == nil {
		return nil
	}
	return errors.Join(q.consumers.Stop(ctx), q.fleet.Stop(ctx))
}

// storedTopics reads topics from the store.
type storedTopics struct{ store qlog.TopicStore }

// Topic implements consume.Topics.
func (t storedTopics) Topic(ctx context.Context, name string) (*qlog.Topic, error) {
	topic, err := t.store.Topic(ctx, name)
	if errors.Is(err, qlog.ErrNoTopic) {
		return nil, fault.New(fault.NotFound, fault.TopicNotFound, "topic %s does not exist", name)
	}
	return topic, err
}

// Heal implements consume.Topics.
func (t storedTopics) Heal(ctx context.Context, topic *qlog.Topic, partition int) error {
	return t.store.MakePartition(ctx, topic, partition)
}
