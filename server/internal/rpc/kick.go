package rpc

import (
	"context"
	"maps"
	"slices"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/revocation"
)

// Kicks ends streams on all nodes. *remote.Kicks implements it and documents the method.
type Kicks interface {
	Kick(ctx context.Context, what revocation.Kick) (ended map[string]int, unanswered []string, err error)
}

// KickUser implements parleyv1connect.AdminServiceHandler.
func (s *adminService) KickUser(ctx context.Context, req *parleyv1.KickUserRequest) (*parleyv1.KickUserResponse, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	ended, unanswered, err := s.deps.Kicks.Kick(ctx, revocation.Kick{
		User: req.GetUserId(), Reason: req.GetReason(),
		Login: revocation.Login{
			Platform: uint8(req.GetPlatform()), //nolint:gosec // validated
			Device:   req.GetDeviceId(), Connection: req.GetConnectionId(),
		},
	})
	if err != nil {
		return nil, err
	}
	resp := &parleyv1.KickUserResponse{UnansweredNodeIds: unanswered}
	for _, node := range slices.Sorted(maps.Keys(ended)) {
		if n := ended[node]; n > 0 {
			resp.Nodes = append(resp.Nodes, &parleyv1.KickedStreams{NodeId: node, Ended: int32(n)}) //nolint:gosec // a number of streams
		}
	}
	s.deps.Telemetry.Logger.InfoContext(ctx, "streams of a user were ended",
		"user_id", req.GetUserId(), "by", p.Subject, "reason", req.GetReason(), "nodes", ended, "unanswered", unanswered)
	return resp, nil
}

// showLogin makes the stream of ctx known as one with a presence, for KickUser.
func showLogin(ctx context.Context, live PresenceStream, req *parleyv1.ConnectRequest) {
	watch, ok := ctx.Value(watchKey{}).(*revocation.Stream)
	if !ok || req.GetInvisible() {
		return
	}
	watch.SetLogin(revocation.Login{
		Platform: uint8(req.GetPlatform()), //nolint:gosec // validated
		Device:   req.GetDeviceId(), Connection: live.ConnectionID(),
	})
}
