package message

import (
	"context"

	"github.com/parleyhq/parley/server/internal/ident"
)

// CloseRequest describes the close of an open message.
type CloseRequest struct {
	// Kind is KindComplete, KindCancel or KindFail.
	Kind Kind
	// Content is the final text.
	ChannelID, MsgID, Content, ClientMsgID, Traceparent string
}

// Close closes one of the caller's own open messages, or anyone's with the capability manage, and
// sets its final text. It returns the message as Edit does.
func (s *Service) Close(ctx context.Context, r CloseRequest) (Receipt, Message, error) {
	return s.change(ctx, Draft{
		Kind: r.Kind, ChannelID: r.ChannelID, MsgID: r.MsgID, Content: r.Content,
		ClientMsgID: orNewID(r.ClientMsgID), Traceparent: r.Traceparent,
	}, s.checkClose)
}

// checkClose is the check of a close.
func (s *Service) checkClose(ctx context.Context, p *ident.Principal, d *Draft, atLeast int64) (err error) {
	d.AnySender, d.TargetType = p.Can(ident.Manage, d.ChannelID), changeable(p, d.ChannelID)
	d.Rev, err = s.access.ForRead(ctx, p, ident.Send, d.ChannelID, atLeast)
	return err
}

// Cancel is Close for a message of anybody, by the owner of its session or with the capability
// manage.
func (s *Service) Cancel(ctx context.Context, r CloseRequest) (Receipt, Message, error) {
	return s.change(ctx, Draft{
		Kind: r.Kind, ChannelID: r.ChannelID, MsgID: r.MsgID, Content: r.Content,
		ClientMsgID: orNewID(r.ClientMsgID), Traceparent: r.Traceparent,
	}, s.checkRecall)
}

// CancelTarget returns the message that the caller is about to cancel, in its current state. Its
// errors are those of Cancel for a caller who may not.
func (s *Service) CancelTarget(ctx context.Context, channelID, msgID string) (Message, error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return Message{}, err
	}
	if _, _, err := s.access.ForRecall(ctx, p, channelID, 0); err != nil {
		return Message{}, err
	}
	return s.reader.message(ctx, channelID, msgID, 0)
}
