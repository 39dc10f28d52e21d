package parleytest

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// serverHandler implements ServerService.
type serverHandler struct {
	parleyv1connect.UnimplementedServerServiceHandler

	s *Server
}

// GetServerInfo implements the service.
func (h serverHandler) GetServerInfo(
	ctx context.Context, req *parleyv1.GetServerInfoRequest,
) (*parleyv1.GetServerInfoResponse, error) {
	return do(ctx, h.s, "GetServerInfo", req, func() (*parleyv1.GetServerInfoResponse, error) {
		return &parleyv1.GetServerInfoResponse{
			Version: "devel", Features: []parleyv1.ServerFeature{parleyv1.ServerFeature_SERVER_FEATURE_QUEUES},
			Limits: &parleyv1.ServerLimits{
				MaxContentBytes: 65536, MaxSessionContentBytes: 131072, MaxBatchMessages: 500, MaxChannelsPerStream: 500, MaxPayloadBytes: 262144,
				MaxProduceMessages: 1000, HeartbeatInterval: durationpb.New(h.s.heartbeat),
			},
		}, nil
	})
}
