package rpc

import (
	"context"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fanout"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
)

// Access checks memberships: a members-only channel requires one in addition to the token's
// capability to read. *channel.Access implements it.
type Access interface {
	// ForSubscribe returns a fault whose positions are the channels to which p may not subscribe
	// although the token allows it: NOT_MEMBER or CHANNEL_NOT_FOUND. It returns another fault if that
	// can't be determined.
	ForSubscribe(ctx context.Context, p *ident.Principal, channelIDs []string) error
}

// Streams changes live Subscribe streams, on whichever node they are.
type Streams interface {
	// Update calls fanout.Hub.Update for the stream with this id, which must belong to the subject.
	// It returns a STREAM_NOT_FOUND fault if there is none, and a retryable fault if that can't be
	// determined.
	Update(ctx context.Context, streamID, subject string, c fanout.Change) error
}

// removeTimeout bounds the removal of channels that the caller may not read. The removal continues
// after the call has ended.
const removeTimeout = 2 * time.Second

// Subscribe implements parleyv1connect.MessageServiceHandler.
func (s *messageService) Subscribe(
	ctx context.Context, req *parleyv1.SubscribeRequest, stream *connect.ServerStream[parleyv1.SubscribeResponse],
) error {
	if req.GetPresence() != nil {
		return s.subscribeWithPresence(ctx, req, stream)
	}
	live, err := s.open(ctx, req.GetChannels())
	if err != nil {
		return err
	}
	defer live.Close()
	out, err := s.writeInfo(ctx, stream, live.ID())
	if err != nil {
		return err
	}
	return writeFrames(ctx, out, live, writeHubFrame)
}

// writeInfo writes the first frame, which contains the stream's id, and returns the writer for all
// later frames.
func (s *messageService) writeInfo(
	ctx context.Context, stream *connect.ServerStream[parleyv1.SubscribeResponse], streamID string,
) (*frameWriter[*frame], error) {
	out := newFrameWriter[*frame](ctx, stream.Conn(), s.cfg.FrameTimeout, s.cfg.live)
	return out, out.write(ctx, infoFrame(streamID, &s.cfg))
}

func writeHubFrame(ctx context.Context, out *frameWriter[*frame], f fanout.Frame) error {
	return out.write(ctx, frameOf(&f))
}

// open opens a stream of the calling user with its first channels. It fails if the user may not
// read one of them. The caller of open must close the stream.
func (s *messageService) open(ctx context.Context, channels []*parleyv1.ChannelPosition) (*fanout.Stream, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	const field = "channels"
	add := positionsFromWire(p, channels)
	if err := s.checkReadable(ctx, p, field, add); err != nil {
		return nil, err
	}
	stream, err := s.deps.Hub.Open(p.Subject, p.Expires)
	if err != nil {
		return nil, err
	}
	stream.OnRenew(func(token *ident.Principal) { renewToken(ctx, token) })
	if err = stream.Add(add); err == nil {
		err = s.checkReadable(ctx, p, field, add)
	}
	if err != nil {
		stream.Close()
		return nil, err
	}
	return stream, nil
}

// UpdateSubscription implements parleyv1connect.MessageServiceHandler.
func (s *messageService) UpdateSubscription(
	ctx context.Context, req *parleyv1.UpdateSubscriptionRequest,
) (*parleyv1.UpdateSubscriptionResponse, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return nil, err
	}
	const field = "add"
	add := positionsFromWire(p, req.GetAdd())
	if err := s.checkReadable(ctx, p, field, add); err != nil {
		return nil, err
	}
	change := fanout.Change{Add: add, Remove: req.GetRemove()}
	if req.GetRenewToken() {
		change.Token = p
	}
	if err := s.deps.Streams.Update(ctx, req.GetStreamId(), p.Subject, change); err != nil {
		return nil, err
	}
	if err := s.checkReadable(ctx, p, field, add); err != nil {
		if f, ok := fault.As(err); ok && isRefusal(f) {
			s.removeRefused(ctx, req.GetStreamId(), p.Subject, f.Positions)
		}
		return nil, err
	}
	return &parleyv1.UpdateSubscriptionResponse{}, nil
}

// checkReadable returns the fault of Access.ForSubscribe for the channels of add. Its field is the
// first of them; field is the name of the request's list.
//
// It is called before the channels are added to the stream, and again after that. Without the
// second call, a membership that ends in between could leave its channel on the stream, because the
// end of a membership need only affect channels that are there.
func (s *messageService) checkReadable(ctx context.Context, p *ident.Principal, field string, add []fanout.Position) error {
	if len(add) == 0 {
		return nil
	}
	ids := make([]string, len(add))
	for i := range add {
		ids[i] = add[i].ChannelID
	}
	err := s.deps.Access.ForSubscribe(ctx, p, ids)
	if f, ok := fault.As(err); ok && isRefusal(f) {
		f.Field = positionPath(field, slices.Index(ids, f.Positions[0].ChannelID))
	}
	return err
}

// isRefusal reports whether f is the fault of Access.ForSubscribe for channels that are refused.
func isRefusal(f *fault.Error) bool {
	return (f.Reason == fault.NotMember || f.Reason == fault.ChannelNotFound) && len(f.Positions) > 0
}

// removeRefused removes channels from a stream that were just added to it and that the caller may
// not read. It logs a failure.
func (s *messageService) removeRefused(ctx context.Context, streamID, subject string, refused []fault.Position) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	ids := make([]string, len(refused))
	for i, at := range refused {
		ids[i] = at.ChannelID
	}
	err := s.deps.Streams.Update(ctx, streamID, subject, fanout.Change{Remove: ids})
	if err != nil && !fault.Is(err, fault.StreamNotFound) {
		s.deps.Telemetry.Logger.WarnContext(ctx, "remove refused channels from stream failed", attrError(err))
	}
}

func positionPath(field string, i int) string { return fmt.Sprintf("%s[%d].channel_id", field, i) }
