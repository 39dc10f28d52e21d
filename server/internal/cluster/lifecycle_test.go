package cluster

import (
	"context"
	"testing"

	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/queue"
)

func TestServicesStartAndStop(t *testing.T) {
	t.Parallel()
	net := newFakeNet()
	link := net.node()
	me := owners{id: nodeA, owner: func(int) string { return nodeA }}
	lifecycletest.Stress[*Roster](t, func(*testing.T) *Roster { return NewRoster(RosterConfig{Transport: link}) })
	lifecycletest.Stress[*Changes](t, func(*testing.T) *Changes { return NewChanges(link, func(channel.Change) {}, nil) })
	lifecycletest.Stress[*QueueHints](t, func(*testing.T) *QueueHints { return NewQueueHints(link, nil) })
	lifecycletest.Stress[*Sessions](t, func(*testing.T) *Sessions { return NewSessions(peers(nodeA), link, nil, nil) })
	lifecycletest.Stress[*QueueSessions](t, func(*testing.T) *QueueSessions {
		return NewQueueSessions(peers(nodeA), link, func(context.Context, queue.Call) ([]error, error) { return nil, nil }, nil)
	})
	lifecycletest.Stress[*Writer](t, func(*testing.T) *Writer {
		return NewWriter(me, link, &appended{}, 1, WriterConfig{})
	})
}
