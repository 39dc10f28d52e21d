package rpc

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

// Subscribe implements parleyv1connect.MessageServiceHandler.
func (s *messageService) Subscribe(
	ctx context.Context, req *parleyv1.SubscribeRequest, stream *connect.ServerStream[parleyv1.SubscribeResponse],
) error {
	p, err := principal(ctx)
	if err != nil {
		return err
	}
	if err := maySubscribe(p, "channels", req.GetChannels()); err != nil {
		return err
	}
	session, err := s.deps.Hub.Open(p.Subject, p.Expires)
	if err != nil {
		return err
	}
	defer session.Close()
	if err := session.Add(positionsFromWire(req.GetChannels())); err != nil {
		return err
	}
	out := &frameWriter{send: stream.Conn().Send, control: controllerOf(ctx), timeout: s.cfg.FrameTimeout}
	if err := out.write(ctx, &frame{[][]byte{sessionPiece(session.ID(), &s.cfg)}}); err != nil {
		return err
	}
	for {
		f, err := session.Next(ctx)
		if err != nil && ctx.Err() != nil {
			return out.ended(ctx, err)
		}
		if err != nil {
			return err
		}
		if err := out.write(ctx, frameOf(&f)); err != nil {
			return err
		}
	}
}

// UpdateSubscription implements parleyv1connect.MessageServiceHandler.
func (s *messageService) UpdateSubscription(
	ctx context.Context, req *parleyv1.UpdateSubscriptionRequest,
) (*parleyv1.UpdateSubscriptionResponse, error) {
	p, err := principal(ctx)
	if err != nil {
		return nil, err
	}
	if err := maySubscribe(p, "add", req.GetAdd()); err != nil {
		return nil, err
	}
	session, err := s.deps.Hub.Session(req.GetSessionId(), p.Subject)
	if err != nil {
		return nil, err
	}
	if err := session.Update(positionsFromWire(req.GetAdd()), req.GetRemove()); err != nil {
		return nil, err
	}
	return &parleyv1.UpdateSubscriptionResponse{}, nil
}

// maySubscribe allows all of the channels in a field of the request, or none.
func maySubscribe(p *ident.Principal, field string, channels []*parleyv1.ChannelPosition) error {
	for i, c := range channels {
		if !p.Can(ident.Subscribe, c.GetChannelId()) {
			f := fault.New(fault.PermissionDenied, fault.CapabilityMissing,
				"the token has no capability %q for channel %s", ident.Subscribe, c.GetChannelId())
			f.Field = fmt.Sprintf("%s[%d].channel_id", field, i)
			return f
		}
	}
	return nil
}
