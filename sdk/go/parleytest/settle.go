package parleytest

import (
	"context"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// settleCall executes a unary call for a consumer's stream. If the stream has ended, it returns
// LEASE_LOST as the result of each delivery, or as its error if the request names no deliveries.
func (h queueHandler) settleCall(streamID string, req *parleyv1.StreamingConsumeRequest) ([]*parleyv1.SettleResult, error) {
	c := h.s.consumers[streamID]
	if c == nil && (req.GetAck() != nil || req.GetNack() != nil || req.GetExtend().GetDeliveries() != nil) {
		c = &consumer{id: streamID}
	}
	if c == nil {
		return nil, Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_LEASE_LOST)
	}
	defer h.s.wakeLocked()
	return h.s.doLocked(c, req), nil
}

// Ack implements the service.
func (h queueHandler) Ack(ctx context.Context, req *parleyv1.AckRequest) (*parleyv1.AckResponse, error) {
	return do(ctx, h.s, "Ack", req, func() (*parleyv1.AckResponse, error) {
		results, err := h.settleCall(req.GetStreamId(), &parleyv1.StreamingConsumeRequest{
			Request: &parleyv1.StreamingConsumeRequest_Ack{Ack: &parleyv1.StreamingAck{Tokens: req.GetTokens()}},
		})
		return &parleyv1.AckResponse{Results: results}, err
	})
}

// Nack implements the service.
func (h queueHandler) Nack(ctx context.Context, req *parleyv1.NackRequest) (*parleyv1.NackResponse, error) {
	return do(ctx, h.s, "Nack", req, func() (*parleyv1.NackResponse, error) {
		results, err := h.settleCall(req.GetStreamId(), &parleyv1.StreamingConsumeRequest{
			Request: &parleyv1.StreamingConsumeRequest_Nack{Nack: &parleyv1.StreamingNack{Items: req.GetItems()}},
		})
		return &parleyv1.NackResponse{Results: results}, err
	})
}

// Extend implements the service.
func (h queueHandler) Extend(ctx context.Context, req *parleyv1.ExtendRequest) (*parleyv1.ExtendResponse, error) {
	return do(ctx, h.s, "Extend", req, func() (*parleyv1.ExtendResponse, error) {
		extend := &parleyv1.StreamingExtend{AckTimeout: req.GetAckTimeout()}
		switch target := req.GetTarget().(type) {
		case *parleyv1.ExtendRequest_All:
			extend.Target = &parleyv1.StreamingExtend_All{All: target.All}
		case *parleyv1.ExtendRequest_Deliveries:
			extend.Target = &parleyv1.StreamingExtend_Deliveries{Deliveries: target.Deliveries}
		}
		results, err := h.settleCall(req.GetStreamId(), &parleyv1.StreamingConsumeRequest{
			Request: &parleyv1.StreamingConsumeRequest_Extend{Extend: extend},
		})
		return &parleyv1.ExtendResponse{Results: results}, err
	})
}

// GrantCredits implements the service.
func (h queueHandler) GrantCredits(
	ctx context.Context, req *parleyv1.GrantCreditsRequest,
) (*parleyv1.GrantCreditsResponse, error) {
	return do(ctx, h.s, "GrantCredits", req, func() (*parleyv1.GrantCreditsResponse, error) {
		_, err := h.settleCall(req.GetStreamId(), &parleyv1.StreamingConsumeRequest{
			Request: &parleyv1.StreamingConsumeRequest_Credits{Credits: &parleyv1.StreamingCredits{
				TotalMessages: req.GetTotalMessages(), TotalBytes: req.GetTotalBytes(),
			}},
		})
		return &parleyv1.GrantCreditsResponse{}, err
	})
}

// Leave implements the service.
func (h queueHandler) Leave(ctx context.Context, req *parleyv1.LeaveRequest) (*parleyv1.LeaveResponse, error) {
	return do(ctx, h.s, "Leave", req, func() (*parleyv1.LeaveResponse, error) {
		_, err := h.settleCall(req.GetStreamId(), &parleyv1.StreamingConsumeRequest{
			Request: &parleyv1.StreamingConsumeRequest_Leave{Leave: &parleyv1.StreamingLeave{}},
		})
		return &parleyv1.LeaveResponse{}, err
	})
}
