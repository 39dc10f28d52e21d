package rpc

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/session"
)

// Sessions is the part of session.Service that the handlers call.
type Sessions interface {
	Append(ctx context.Context, r session.AppendRequest) (session.AppendResult, error)
	AppendDelta(ctx context.Context, r session.DeltaRequest) (length int, status message.Status, err error)
	Close(ctx context.Context, r message.CloseRequest) (message.Receipt, message.Message, error)
	Cancel(ctx context.Context, r message.CloseRequest) (message.Receipt, message.Message, error)
	Recalled(sessionID, msgID string)
	Deleted(ctx context.Context, sessionID string)
}

var _ Sessions = (*session.Service)(nil)

// AppendSessionMessage implements parleyv1connect.MessageServiceHandler.
func (s *messageService) AppendSessionMessage(
	ctx context.Context, req *parleyv1.AppendSessionMessageRequest,
) (*parleyv1.AppendSessionMessageResponse, error) {
	if err := s.cfg.checkSessionContent(req.GetContent()); err != nil {
		return nil, err
	}
	r, err := s.deps.Sessions.Append(ctx, session.AppendRequest{
		SessionID: req.GetSessionId(), Role: req.GetRole(), UserID: req.GetUserId(), Content: req.GetContent(),
		ClientMsgID: req.GetClientMsgId(), Metadata: req.GetMetadata(), Open: req.GetOpen(), Title: req.GetTitle(), Traceparent: traceparent(ctx),
	})
	if err != nil {
		return nil, err
	}
	return &parleyv1.AppendSessionMessageResponse{
		SessionId: r.SessionID, MsgId: r.MsgID, Seq: r.Seq, Count: r.Count, MsgTime: timestamppb.New(r.MsgTime),
		ClientMsgId: r.ClientMsgID, Epoch: r.Epoch, Duplicate: r.Duplicate, AppendToken: r.Token,
	}, nil
}

// closeKinds holds the kinds of the entries that close a message.
var closeKinds = map[parleyv1.SessionOutcome]message.Kind{
	parleyv1.SessionOutcome_SESSION_OUTCOME_COMPLETE:  message.KindComplete,
	parleyv1.SessionOutcome_SESSION_OUTCOME_CANCELLED: message.KindCancel,
	parleyv1.SessionOutcome_SESSION_OUTCOME_FAILED:    message.KindFail,
}

// CloseSessionMessage implements parleyv1connect.MessageServiceHandler.
func (s *messageService) CloseSessionMessage(
	ctx context.Context, req *parleyv1.CloseSessionMessageRequest,
) (*parleyv1.CloseSessionMessageResponse, error) {
	if err := s.cfg.checkSessionContent(req.GetContent()); err != nil {
		return nil, err
	}
	r, m, err := s.deps.Sessions.Close(ctx, message.CloseRequest{
		Kind: closeKinds[req.GetOutcome()], ChannelID: ident.SessionChannel(req.GetSessionId()), MsgID: req.GetMsgId(),
		Content: req.GetContent(), ClientMsgID: req.GetClientMsgId(), Traceparent: traceparent(ctx),
	})
	if err != nil {
		return nil, err
	}
	return &parleyv1.CloseSessionMessageResponse{
		Message: changedToWire(&m), Seq: r.Seq, MsgTime: timestamppb.New(r.MsgTime), Duplicate: r.Duplicate, Epoch: r.Epoch,
		ClientMsgId: r.ClientMsgID,
	}, nil
}

// ListSessionMessages implements parleyv1connect.MessageServiceHandler.
func (s *messageService) ListSessionMessages(
	ctx context.Context, req *parleyv1.ListSessionMessagesRequest,
) (*parleyv1.ListSessionMessagesResponse, error) {
	page, err := s.deps.Messages.List(ctx, message.ListQuery{
		ChannelID: ident.SessionChannel(req.GetSessionId()), After: req.AfterSeq, Before: req.BeforeSeq,
		MinSeq: req.GetMinSeq(), PageSize: int(req.GetPageSize()), PageToken: req.GetPageToken(),
	})
	if err != nil {
		return nil, err
	}
	if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
		info.ResponseHeader().Set(sourceHeader, sourceOf(page.FromCache))
	}
	return &parleyv1.ListSessionMessagesResponse{
		Messages: messagesToWire(page.Messages), NextPageToken: page.NextPageToken, HeadSeq: page.Head,
		Epoch: page.Epoch, OldestSeq: page.Oldest,
	}, nil
}

// EditSessionMessage implements parleyv1connect.MessageServiceHandler.
func (s *messageService) EditSessionMessage(
	ctx context.Context, req *parleyv1.EditSessionMessageRequest,
) (*parleyv1.EditSessionMessageResponse, error) {
	if err := s.cfg.checkSessionContent(req.GetContent()); err != nil {
		return nil, err
	}
	r, err := s.EditMessage(ctx, &parleyv1.EditMessageRequest{
		ChannelId: ident.SessionChannel(req.GetSessionId()), MsgId: req.GetMsgId(), Content: req.GetContent(),
		ClientMsgId: req.GetClientMsgId(),
	})
	if err != nil {
		return nil, err
	}
	return &parleyv1.EditSessionMessageResponse{
		Message: r.GetMessage(), Seq: r.GetSeq(), MsgTime: r.GetMsgTime(), Duplicate: r.GetDuplicate(), Epoch: r.GetEpoch(),
		ClientMsgId: r.GetClientMsgId(),
	}, nil
}

// RecallSessionMessage implements parleyv1connect.MessageServiceHandler.
func (s *messageService) RecallSessionMessage(
	ctx context.Context, req *parleyv1.RecallSessionMessageRequest,
) (*parleyv1.RecallSessionMessageResponse, error) {
	r, err := s.RecallMessage(ctx, &parleyv1.RecallMessageRequest{
		ChannelId: ident.SessionChannel(req.GetSessionId()), MsgId: req.GetMsgId(), ClientMsgId: req.GetClientMsgId(),
	})
	if err != nil {
		return nil, err
	}
	s.deps.Sessions.Recalled(req.GetSessionId(), req.GetMsgId())
	return &parleyv1.RecallSessionMessageResponse{
		Message: r.GetMessage(), Seq: r.GetSeq(), MsgTime: r.GetMsgTime(), Duplicate: r.GetDuplicate(), Epoch: r.GetEpoch(),
		ClientMsgId: r.GetClientMsgId(),
	}, nil
}

// ListSessions implements parleyv1connect.MessageServiceHandler.
func (s *messageService) ListSessions(
	ctx context.Context, req *parleyv1.ListSessionsRequest,
) (*parleyv1.ListSessionsResponse, error) {
	page, err := s.listSessions(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := &parleyv1.ListSessionsResponse{
		Sessions: make([]*parleyv1.Session, len(page.Channels)), NextPageToken: page.NextPageToken,
	}
	for i := range page.Channels {
		c := &page.Channels[i]
		id, _ := ident.SessionOf(c.Row.ChannelID)
		resp.Sessions[i] = &parleyv1.Session{
			SessionId: id, OwnerId: c.Row.CreatedBy, CreateTime: timestamppb.New(c.Row.CreatedAt), ActiveTime: timestamppb.New(c.Row.Active),
			HeadSeq: c.Row.Head, Count: c.Row.Count, ReadSeq: c.Read.Seq, Unread: c.Unread, Epoch: s.deps.Epoch,
			Title: c.Row.Title,
		}
	}
	return resp, nil
}

func (s *messageService) listSessions(ctx context.Context, req *parleyv1.ListSessionsRequest) (channel.UserChannelPage, error) {
	if !req.GetAllUsers() {
		return s.deps.Channels.UserSessions(ctx, req.GetUserId(), int(req.GetPageSize()), req.GetPageToken())
	}
	if req.GetUserId() != "" {
		return channel.UserChannelPage{}, fault.Invalid("user_id", 0, "user_id: must be empty with all_users")
	}
	return s.deps.Channels.EverySession(ctx, int(req.GetPageSize()), req.GetPageToken())
}

// DeleteSession implements parleyv1connect.MessageServiceHandler.
func (s *messageService) DeleteSession(
	ctx context.Context, req *parleyv1.DeleteSessionRequest,
) (*parleyv1.DeleteSessionResponse, error) {
	if err := s.deps.Channels.DeleteSession(ctx, req.GetSessionId()); err != nil {
		return nil, err
	}
	s.deps.Sessions.Deleted(ctx, req.GetSessionId())
	return &parleyv1.DeleteSessionResponse{}, nil
}

// MarkSessionRead implements parleyv1connect.MessageServiceHandler.
func (s *messageService) MarkSessionRead(
	ctx context.Context, req *parleyv1.MarkSessionReadRequest,
) (*parleyv1.MarkSessionReadResponse, error) {
	cursor, unread, err := s.deps.Channels.MarkRead(ctx, ident.SessionChannel(req.GetSessionId()), req.GetSeq())
	if err != nil {
		return nil, err
	}
	return &parleyv1.MarkSessionReadResponse{ReadSeq: cursor.Seq, Unread: unread, Epoch: s.deps.Epoch}, nil
}

// AppendSessionDelta implements parleyv1connect.MessageServiceHandler.
func (s *messageService) AppendSessionDelta(
	ctx context.Context, req *parleyv1.AppendSessionDeltaRequest,
) (*parleyv1.AppendSessionDeltaResponse, error) {
	length, status, err := s.deps.Sessions.AppendDelta(ctx, session.DeltaRequest{
		SessionID: req.GetSessionId(), MsgID: req.GetMsgId(), Token: req.GetAppendToken(), Offset: int(req.GetOffset()), Text: req.GetText(),
	})
	if err != nil {
		return nil, err
	}
	return &parleyv1.AppendSessionDeltaResponse{Length: int64(length), Status: statuses[status]}, nil
}

// CancelSessionMessage implements parleyv1connect.MessageServiceHandler.
func (s *messageService) CancelSessionMessage(
	ctx context.Context, req *parleyv1.CancelSessionMessageRequest,
) (*parleyv1.CancelSessionMessageResponse, error) {
	r, m, err := s.deps.Sessions.Cancel(ctx, message.CloseRequest{
		ChannelID: ident.SessionChannel(req.GetSessionId()), MsgID: req.GetMsgId(), ClientMsgID: req.GetClientMsgId(),
		Traceparent: traceparent(ctx),
	})
	if err != nil {
		return nil, err
	}
	return &parleyv1.CancelSessionMessageResponse{
		Message: changedToWire(&m), Seq: r.Seq, MsgTime: timestamppb.New(r.MsgTime), Duplicate: r.Duplicate, Epoch: r.Epoch,
		ClientMsgId: r.ClientMsgID,
	}, nil
}

// RenameSession implements parleyv1connect.MessageServiceHandler.
func (s *messageService) RenameSession(
	ctx context.Context, req *parleyv1.RenameSessionRequest,
) (*parleyv1.RenameSessionResponse, error) {
	if err := s.deps.Channels.RenameSession(ctx, req.GetSessionId(), req.GetTitle()); err != nil {
		return nil, err
	}
	return &parleyv1.RenameSessionResponse{}, nil
}
