package cluster_test

import (
	"testing"

	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/cluster/clustertest"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
)

func TestServicesStartAndStop(t *testing.T) {
	t.Parallel()
	link := clustertest.NewNet().Link()
	lifecycletest.Stress[*cluster.Roster](t, func(*testing.T) *cluster.Roster {
		return cluster.NewRoster(cluster.RosterConfig{Transport: link})
	})
	lifecycletest.Stress[*cluster.Handlers](t, func(*testing.T) *cluster.Handlers {
		return cluster.NewEndpoint(clustertest.Peers{Node: "ME"}, link, nil).Handlers()
	})
}
