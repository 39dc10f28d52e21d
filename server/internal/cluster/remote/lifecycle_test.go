package remote

import (
	"testing"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/cluster/clustertest"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/revocation"
	"github.com/parleyhq/parley/server/internal/session"
)

func TestServicesStartAndStop(t *testing.T) {
	t.Parallel()
	net := clustertest.NewNet()
	lifecycletest.Stress[*Changes](t, func(*testing.T) *Changes {
		return NewChanges(endpointOf(net, nodeA), func(channel.Change) {}, nil)
	})
	lifecycletest.Stress[*QueueHints](t, func(*testing.T) *QueueHints { return NewQueueHints(net.Link(), nil) })
	lifecycletest.Stress[*Streams](t, func(*testing.T) *Streams { return NewStreams(endpointOf(net, nodeA), nil, nil) })
	lifecycletest.Stress[*QueuePeers](t, func(*testing.T) *QueuePeers {
		p := NewQueuePeers(endpointOf(net, nodeA), nil, nil)
		p.Serve(&peerHandler{})
		return p
	})
	lifecycletest.Stress[*PresenceBus](t, func(*testing.T) *PresenceBus { return NewPresenceBus(endpointOf(net, nodeA), nil) })
	lifecycletest.Stress[*PresenceStreams](t, func(*testing.T) *PresenceStreams {
		return NewPresenceStreams(endpointOf(net, nodeA), &presenceHub{})
	})
	lifecycletest.Stress[*Refills](t, func(*testing.T) *Refills {
		return NewRefills(endpointOf(net, nodeA), owners{owner: func(int) string { return nodeA }}, 1, func(string, int64) {}, nil)
	})
	lifecycletest.Stress[*Revocations](t, func(*testing.T) *Revocations {
		return NewRevocations(endpointOf(net, nodeA), func(revocation.Entry) {}, nil)
	})
	lifecycletest.Stress[*Kicks](t, func(*testing.T) *Kicks {
		return NewKicks(endpointOf(net, nodeA), func(revocation.Kick) int { return 0 })
	})
	lifecycletest.Stress[*SessionPeers](t, func(*testing.T) *SessionPeers {
		return NewSessionPeers(endpointOf(net, nodeA), session.NewGenerations(session.GenerationsConfig{}), nil)
	})
	lifecycletest.Stress[*Writer](t, func(*testing.T) *Writer {
		me := owners{owner: func(int) string { return nodeA }}
		return NewWriter(endpointOf(net, nodeA), me, &appended{}, 1, WriterConfig{})
	})
}
