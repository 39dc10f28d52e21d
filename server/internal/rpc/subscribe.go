package rpc

import (
	"context"
	"fmt"
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
	// Unreadable returns those of the channels that p may not read, because they are members-only and
	// p is not a member. It returns a fault if that can't be determined.
	Unreadable(ctx context.Context, p *ident.Principal, channelIDs []string) (refused []string, err error)
}

// Streams changes the channels of live Subscribe streams, on whichever node they are.
type Streams interface {
	// Update calls fanout.Hub.Update for the stream with this id, which must belong to the subject.
	// It returns a STREAM_NOT_FOUND fault if there is none, and a retryable fault if that can't be
	// determined.
	Update(ctx context.Context, streamID, subject string, add []fanout.Position, remove []string) error
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
	if err := s.deps.Streams.Update(ctx, req.GetStreamId(), p.Subject, add, req.GetRemove()); err != nil {
		return nil, err
	}
	if err := s.checkReadable(ctx, p, field, add); err != nil {
		if f, ok := fault.As(err); ok && f.Reason == fault.NotMember {
			s.removeRefused(ctx, req.GetStreamId(), p.Subject, f.Positions)
		}
		return nil, err
	}
	return &parleyv1.UpdateSubscriptionResponse{}, nil
}

// checkReadable returns a NOT_MEMBER fault that names all channels of add that the caller may not
// read; nil if there are none. field is the name of the request's list. Exempt positions are not
// checked.
//
// It is called before the channels are added to the stream, and again after that. Without the
// second call, a membership that ends in between could leave its channel on the stream, because the
// end of a membership need only affect channels that are there.
func (s *messageService) checkReadable(ctx context.Context, p *ident.Principal, field string, add []fanout.Position) error {
	asked := fanout.NotExempt(add)
	if len(asked) == 0 {
		return nil
	}
	some, err := s.deps.Access.Unreadable(ctx, p, asked)
	if err != nil {
		return err
	}
	refused := make(map[string]struct{}, len(some))
	for _, id := range some {
		refused[id] = struct{}{}
	}
	return notMember(field, add, refused)
}

// notMember returns a fault that names the refused channels, with the index of the first one in the
// request's list as its field; nil if none is refused. It modifies refused.
func notMember(field string, add []fanout.Position, refused map[string]struct{}) error {
	var ids []string
	first := 0
	for i, at := range add {
		if _, ok := refused[at.ChannelID]; !ok || at.Exempt {
			continue
		}
		delete(refused, at.ChannelID)
		if ids = append(ids, at.ChannelID); len(ids) == 1 {
			first = i
		}
	}
	if len(ids) == 0 {
		return nil
	}
	denied := fault.NotMemberOf(ids...)
	denied.Field = positionPath(field, first)
	return denied
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
	err := s.deps.Streams.Update(ctx, streamID, subject, nil, ids)
	if err != nil && !fault.Is(err, fault.StreamNotFound) {
		s.deps.Telemetry.Logger.WarnContext(ctx, "remove refused channels from stream failed", attrError(err))
	}
}

func positionPath(field string, i int) string { return fmt.Sprintf("%s[%d].channel_id", field, i) }
