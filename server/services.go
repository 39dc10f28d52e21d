package server

import (
	"context"

	"github.com/parleyhq/parley/server/internal/apikey"
	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/cluster/remote"
	"github.com/parleyhq/parley/server/internal/erasure"
	"github.com/parleyhq/parley/server/internal/fanout"
	"github.com/parleyhq/parley/server/internal/feed"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/presence"
	"github.com/parleyhq/parley/server/internal/retention"
	"github.com/parleyhq/parley/server/internal/revocation"
	"github.com/parleyhq/parley/server/internal/rpc/authn"
	"github.com/parleyhq/parley/server/internal/session"
)

// services are the parts of a node that run in the background and use its engines. The HTTP servers
// are not among them.
type services struct {
	epoch    *epochWatcher
	clock    *storeClock
	feeder   *feed.Feeder
	builder  *feed.Builder
	refills  *remote.Refills
	advancer *feed.Advancer
	trimmer  *retention.Trimmer
	eraser   *erasure.Runner
	// generations holds the texts of open messages, and closer closes abandoned ones.
	generations  *session.Generations
	sessionPeers *remote.SessionPeers
	closer       *session.Closer
	channels     *channel.Service
	sessions     *session.Service
	hub          *fanout.Hub
	writer       *message.Writer
	members      *channel.Watcher
	changes      *remote.Changes
	streams      *remote.Streams
	// forwards passes writes of messages to the home node of the channel's bucket, or to writer if
	// that is this node.
	forwards *remote.Writer
	roster   *cluster.Roster
	// revoked knows the revoked tokens, and revocations announces them.
	revoked     *revocation.List
	revocations *remote.Revocations
	// kicks ends streams for operators, on all nodes.
	kicks    *remote.Kicks
	hints    *remote.QueueHints
	layout   *layoutWatcher
	queues   *queues
	verifier *authn.Verifier
	apiKeys  *apikey.Keys
	// presence holds the streams with presence.
	presenceBus   *remote.PresenceBus
	presence      *presence.Hub
	presenceCalls *remote.PresenceStreams
}

// namedService is a service with its name in the log.
type namedService struct {
	name    string
	service lifecycle.Service
}

// start starts the services in the order of its list. They stop in reverse order, each before the
// services that it uses.
func (s *Server) start(ctx context.Context) error {
	for _, next := range append([]namedService{
		{"epoch watcher", s.epoch},
		{"clock", s.clock},
		{"feeder", s.feeder},
		{"cache builder", s.builder},
		{"hints of the cache", s.refills},
		{"retention", s.trimmer},
		{"channel rows", s.advancer},
		{"hub", s.hub},
		{"writer", s.writer},
		{"watcher of members", s.members},
		{"changes of members", s.changes},
		{"stream calls", s.streams},
		{"forwarded writes", s.forwards},
		{"erasures", s.eraser},
		{"texts of open messages", s.generations},
		{"calls about open messages", s.sessionPeers},
		{"closer of open messages", s.closer},
		{"announcements of presence", s.presenceBus},
		{"presence", s.presence},
		{"calls about presence", s.presenceCalls},
		{"roster", s.roster},
		{"hints of queues", s.hints},
		{"layout of queues", s.layout},
		{"revocations", s.revoked},
		{"announcements of revocations", s.revocations},
		{"calls that end streams", s.kicks},
		{"token keys", s.verifier},
		{"API keys", s.apiKeys},
	}, s.queues.services()...) {
		if err := s.done.Start(ctx, next.name, next.service); err != nil {
			return err
		}
	}
	return nil
}
