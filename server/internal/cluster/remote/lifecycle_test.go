package remote

import (
	"testing"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/cluster/clustertest"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
)

func TestServicesStartAndStop(t *testing.T) {
	t.Parallel()
	net := clustertest.NewNet()
	lifecycletest.Stress[*Changes](t, func(*testing.T) *Changes {
		return NewChanges(endpointOf(net, nodeA), func(channel.Change) {}, nil)
	})
	lifecycletest.Stress[*QueueHints](t, func(*testing.T) *QueueHints { return NewQueueHints(net.Link(), nil) })
	lifecycletest.Stress[*Sessions](t, func(*testing.T) *Sessions { return NewSessions(endpointOf(net, nodeA), nil) })
	lifecycletest.Stress[*QueueSessions](t, func(*testing.T) *QueueSessions {
		return NewQueueSessions(endpointOf(net, nodeA), &consumers{})
	})
	lifecycletest.Stress[*Writer](t, func(*testing.T) *Writer {
		me := owners{owner: func(int) string { return nodeA }}
		return NewWriter(endpointOf(net, nodeA), me, &appended{}, 1, WriterConfig{})
	})
}
