package remote

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/cluster/clustertest"
	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
	"github.com/parleyhq/parley/server/internal/revocation"
)

func TestRevocationsReachAllNodes(t *testing.T) {
	t.Parallel()
	net := clustertest.NewNet()
	link := net.Link()
	revocations := NewRevocations(cluster.NewEndpoint(clustertest.Peers{Node: nodeA}, link, nil), nil, nil)
	var got []revocation.Entry
	for range 2 {
		lifecycletest.Start(t, NewRevocations(endpointOf(net, nodeB), func(e revocation.Entry) { got = append(got, e) }, nil))
	}
	until := time.UnixMilli(1_700_000_000_123).UTC()
	user := revocation.Entry{Key: revocation.UserKey("ann"), Until: until, Before: until.Add(-time.Hour)}
	login := revocation.Entry{Key: "s:phone", Until: until}
	revocations.Publish(user)
	revocations.Publish(login)
	for _, word := range [][]byte{nil, {0xff}} {
		if err := link.Broadcast(tokenRevoked.Name, word); err != nil {
			t.Fatal(err)
		}
	}
	link.SetCut(true)
	revocations.Publish(user) // no other node can be reached, which is not an error
	if diff := cmp.Diff([]revocation.Entry{user, user, login, login}, got); diff != "" {
		t.Error(diff)
	}
}
