package session

import (
	"context"

	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

// Peers are the other nodes. It is safe for concurrent use.
type Peers interface {
	// Freeze lets the other nodes take no more deltas of a message, and returns the longest text of
	// the highest attempt among those that answer within a second; ok is false if none has a text.
	Freeze(ctx context.Context, channelID, msgID string) (text message.OpenText, ok bool)
	// Peek returns the text of the youngest age that another node has of a message; ok is false if
	// none has a text. err is set if not all nodes have answered.
	Peek(ctx context.Context, channelID, msgID string) (text message.OpenText, ok bool, err error)
	// Ended announces to all nodes that a message is no longer open; see Generations.Ended. It does
	// not wait, and may fail.
	Ended(channelID, msgID string, status message.Status)
}

// DeltaRequest appends a piece to the text of an open message.
type DeltaRequest struct {
	SessionID, MsgID string
	// Token is that of AppendResult.
	Token string
	// Offset is the number of bytes before Text.
	Offset int
	// Text is UTF-8; empty text only keeps the message open.
	Text string
}

// AppendDelta appends a piece to the text of an open message. It returns the number of bytes that
// the text has then, and the message's status; unless that is StatusOpen, nothing was appended. It
// fails with APPEND_SUPERSEDED if the message was opened again since, with OutOfRange if text
// before the offset is missing, and with LIMIT_EXCEEDED.
func (s *Service) AppendDelta(ctx context.Context, r DeltaRequest) (length int, status message.Status, err error) {
	p, err := ident.Caller(ctx)
	if err != nil {
		return 0, 0, err
	}
	t := target{ident.SessionChannel(r.SessionID), r.MsgID}
	token, err := s.openToken(r.Token, p.Subject, t.channelID, t.msgID)
	if err != nil {
		return 0, 0, err
	}
	return s.cfg.Generations.append(ctx, t, &message.Delta{
		MsgID: r.MsgID, Seq: token.seq, Attempt: token.attempt, Offset: r.Offset, Text: r.Text,
	}, p.Subject, p.CanSession(ident.Manage, r.SessionID))
}

// Close closes an open message; see message.Service.Close.
func (s *Service) Close(ctx context.Context, r message.CloseRequest) (message.Receipt, message.Message, error) {
	receipt, m, err := s.cfg.Messages.Close(ctx, r)
	return s.closed(&r, receipt, m, err)
}

// Cancel closes an open message as cancelled, with the text that was streamed until then, or its
// text if none was. The owner of the session may cancel everyone's messages. r's Kind and Content
// are ignored.
func (s *Service) Cancel(ctx context.Context, r message.CloseRequest) (message.Receipt, message.Message, error) {
	m, err := s.cfg.Messages.CancelTarget(ctx, r.ChannelID, r.MsgID)
	if err != nil {
		return message.Receipt{}, message.Message{}, err
	}
	r.Kind, r.Content = message.KindCancel, m.Content
	if m.Status == message.StatusOpen {
		if text, ok := s.freeze(ctx, target{r.ChannelID, r.MsgID}); ok && text.Text != "" {
			r.Content = text.Text
		}
	}
	receipt, m, err := s.cfg.Messages.Cancel(ctx, r)
	return s.closed(&r, receipt, m, err)
}

// freeze ends the growth of a text on all nodes and returns it.
func (s *Service) freeze(ctx context.Context, t target) (text message.OpenText, ok bool) {
	text, ok = s.cfg.Generations.Freeze(t.channelID, t.msgID)
	if other, found := s.cfg.Peers.Freeze(ctx, t.channelID, t.msgID); found && (!ok || Longer(&other, &text)) {
		text, ok = other, true
	}
	if ok && text.Text != "" {
		return text, true
	}
	return s.cfg.Generations.known(ctx, t)
}

// Recalled ends the text of a message of a session that was recalled, if it was open.
func (s *Service) Recalled(sessionID, msgID string) {
	s.ended(target{ident.SessionChannel(sessionID), msgID}, message.StatusRecalled)
}

// Deleted ends the texts of a session that was deleted.
func (s *Service) Deleted(ctx context.Context, sessionID string) {
	channelID := ident.SessionChannel(sessionID)
	s.ended(target{channelID, ""}, message.StatusRecalled)
	s.cfg.Generations.dropAll(ctx, channelID)
}

func (s *Service) ended(t target, status message.Status) {
	s.cfg.Generations.Ended(t.channelID, t.msgID, status)
	s.cfg.Peers.Ended(t.channelID, t.msgID, status)
}

func (s *Service) closed(
	r *message.CloseRequest, receipt message.Receipt, m message.Message, err error,
) (message.Receipt, message.Message, error) {
	if err == nil {
		s.ended(target{r.ChannelID, r.MsgID}, r.Kind.After())
	}
	return receipt, m, err
}
