package remote

import (
	"context"
	"errors"
	"time"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/revocation"
)

var kickUser = cluster.Method[*clusterv1.KickRequest, *clusterv1.KickReply]{Name: "kick", Timeout: time.Second}

// Kicks ends streams on all nodes. It is a lifecycle.Service, and safe for concurrent use.
type Kicks struct {
	endpoint *cluster.Endpoint
	handlers *cluster.Handlers
	kick     func(revocation.Kick) int
	life     lifecycle.Base
}

// NewKicks returns the Kicks of a node, where kick ends streams and returns their number.
func NewKicks(endpoint *cluster.Endpoint, kick func(revocation.Kick) int) *Kicks {
	k := &Kicks{endpoint: endpoint, handlers: endpoint.Handlers(), kick: kick}
	cluster.Handle(k.handlers, kickUser, func(_ context.Context, r *clusterv1.KickRequest) (*clusterv1.KickReply, error) {
		ended := kick(revocation.Kick{
			User: r.GetUserId(), Reason: r.GetReason(),
			Login: revocation.Login{
				Platform: uint8(r.GetPlatform()), //nolint:gosec // from a node's uint8
				Device:   r.GetDeviceId(), Connection: r.GetConnectionId(),
			},
		})
		return &clusterv1.KickReply{Ended: int32(ended)}, nil //nolint:gosec // the node's limit of streams is below
	})
	return k
}

// Start starts to answer the other nodes. See lifecycle.Service.
func (k *Kicks) Start(ctx context.Context) error {
	return k.life.Start(ctx, func(ctx context.Context, run *lifecycle.Run) error {
		run.OnEnd(k.handlers.Stop)
		return k.handlers.Start(ctx)
	})
}

// Stop stops answering. Kick continues to work.
func (k *Kicks) Stop(ctx context.Context) error { return k.life.Stop(ctx) }

// Kick ends streams on this node, and then on all others, and returns how many each node has ended.
// unanswered are the nodes that may be alive and did not confirm within a second. If this node is
// cut off from the others, so that it cannot know them, the error is Unavailable with
// OUTCOME_UNKNOWN.
func (k *Kicks) Kick(ctx context.Context, what revocation.Kick) (ended map[string]int, unanswered []string, err error) {
	ended = map[string]int{k.endpoint.ID(): k.kick(what)}
	answers, unanswered, err := cluster.CallAll(ctx, k.endpoint, kickUser, &clusterv1.KickRequest{
		UserId: what.User, Reason: what.Reason,
		Platform: int32(what.Login.Platform), DeviceId: what.Login.Device, ConnectionId: what.Login.Connection,
	})
	if errors.Is(err, cluster.ErrDisconnected) {
		return nil, nil, fault.Wrap(err, fault.Unavailable, fault.OutcomeUnknown,
			"this node cannot reach the others; its own streams of the user have ended; repeat the call")
	}
	for node, a := range answers {
		ended[node] = int(a.GetEnded())
	}
	return ended, unanswered, nil
}
