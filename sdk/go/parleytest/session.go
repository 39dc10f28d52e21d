package parleytest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// sessionPrefix begins the id of a session's channel.
const sessionPrefix = "~"

func isSession(channelID string) bool { return strings.HasPrefix(channelID, sessionPrefix) }

// hasSessionLocked reports whether a session exists and the caller may use it.
func (s *shared) hasSessionLocked(ctx context.Context, l *log) bool {
	return l.made && s.admitsLocked(ctx, l)
}

// AppendSessionMessage implements the service.
func (h handler) AppendSessionMessage(
	ctx context.Context, req *parleyv1.AppendSessionMessageRequest,
) (*parleyv1.AppendSessionMessageResponse, error) {
	return do(ctx, h.s, "AppendSessionMessage", req, func() (*parleyv1.AppendSessionMessageResponse, error) {
		if req.GetContent() == "" && !req.GetOpen() {
			return nil, invalidField("content", 1)
		}
		user := cmp.Or(req.GetUserId(), h.s.userLocked(ctx))
		id, role := cmp.Or(req.GetSessionId(), newSessionID(user, req.GetClientMsgId())), cmp.Or(req.GetRole(), "user")
		switch {
		case user != h.s.userLocked(ctx) && !h.s.canLocked(ctx, "send_as"):
			return nil, missing("user_id")
		case role != "user" && !h.s.canLocked(ctx, "manage"):
			return nil, missing("role")
		}
		l := h.s.logLocked(sessionPrefix + id)
		if l.create(user, true); l.createdBy == user {
			l.join(user, owner)
		}
		if !h.s.admitsLocked(ctx, l) {
			return nil, notMember("session_id")
		}
		sent, err := h.s.sendAsLocked(ctx, &parleyv1.SendMessageRequest{
			ChannelId: l.id, Content: req.GetContent(), ClientMsgId: req.GetClientMsgId(), MsgType: role,
			Metadata: req.GetMetadata(), FromId: user,
		}, req.GetOpen())
		if err != nil {
			return nil, err
		}
		return &parleyv1.AppendSessionMessageResponse{
			SessionId: id, MsgId: sent.GetMsgId(), Seq: sent.GetSeq(), Count: sent.GetCount(), MsgTime: sent.GetMsgTime(),
			ClientMsgId: sent.GetClientMsgId(), Epoch: sent.GetEpoch(), Duplicate: sent.GetDuplicate(),
		}, nil
	})
}

// newSessionID returns the id of the session that a user's message begins.
func newSessionID(user, clientMsgID string) string {
	sum := sha256.Sum256([]byte(user + " " + clientMsgID))
	return hex.EncodeToString(sum[:16])
}

// closedAs holds the statuses of closed messages.
var closedAs = map[parleyv1.SessionOutcome]parleyv1.MessageStatus{
	parleyv1.SessionOutcome_SESSION_OUTCOME_COMPLETE:  parleyv1.MessageStatus_MESSAGE_STATUS_SENT,
	parleyv1.SessionOutcome_SESSION_OUTCOME_CANCELLED: parleyv1.MessageStatus_MESSAGE_STATUS_CANCELLED,
	parleyv1.SessionOutcome_SESSION_OUTCOME_FAILED:    parleyv1.MessageStatus_MESSAGE_STATUS_FAILED,
}

// CloseSessionMessage implements the service.
func (h handler) CloseSessionMessage(
	ctx context.Context, req *parleyv1.CloseSessionMessageRequest,
) (*parleyv1.CloseSessionMessageResponse, error) {
	return do(ctx, h.s, "CloseSessionMessage", req, func() (*parleyv1.CloseSessionMessageResponse, error) {
		l, err := h.s.usableLocked(ctx, sessionPrefix+req.GetSessionId())
		if err != nil {
			return nil, err
		}
		m, user, id := l.messages[req.GetMsgId()], h.s.userLocked(ctx), h.s.idOr(req.GetClientMsgId())
		repeated := l.byClient[user+" "+id] > 0
		switch {
		case m == nil:
			return nil, errNoMessage()
		case m.GetFromId() != user && !h.s.canLocked(ctx, "manage"):
			return nil, Error(connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_NOT_SENDER)
		case m.GetStatus() == parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED && !repeated:
			return nil, Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_MESSAGE_RECALLED)
		case m.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_OPEN && !repeated:
			return nil, Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_MESSAGE_CLOSED)
		}
		seq, duplicate, err := h.s.changeLocked(l, m, user, id, entry{kind: "closed", status: closedAs[req.GetOutcome()], content: req.GetContent()})
		if err != nil {
			return nil, err
		}
		return &parleyv1.CloseSessionMessageResponse{
			Message: proto.CloneOf(m), Seq: seq, MsgTime: timestamppb.New(l.entries[seq-1].at), Duplicate: duplicate, Epoch: l.epoch,
			ClientMsgId: id,
		}, nil
	})
}

// ListSessionMessages implements the service.
func (h handler) ListSessionMessages(
	ctx context.Context, req *parleyv1.ListSessionMessagesRequest,
) (*parleyv1.ListSessionMessagesResponse, error) {
	return do(ctx, h.s, "ListSessionMessages", req, func() (*parleyv1.ListSessionMessagesResponse, error) {
		r, err := h.s.listLocked(ctx, &parleyv1.ListMessagesRequest{
			ChannelId: sessionPrefix + req.GetSessionId(), AfterSeq: req.AfterSeq, BeforeSeq: req.BeforeSeq,
			MinSeq: req.GetMinSeq(), PageSize: req.GetPageSize(), PageToken: req.GetPageToken(),
		})
		if err != nil {
			return nil, err
		}
		return &parleyv1.ListSessionMessagesResponse{
			Messages: r.GetMessages(), NextPageToken: r.GetNextPageToken(), HeadSeq: r.GetHeadSeq(), Epoch: r.GetEpoch(),
			OldestSeq: r.GetOldestSeq(),
		}, nil
	})
}

// EditSessionMessage implements the service.
func (h handler) EditSessionMessage(
	ctx context.Context, req *parleyv1.EditSessionMessageRequest,
) (*parleyv1.EditSessionMessageResponse, error) {
	return do(ctx, h.s, "EditSessionMessage", req, func() (*parleyv1.EditSessionMessageResponse, error) {
		l, err := h.s.usableLocked(ctx, sessionPrefix+req.GetSessionId())
		if err != nil {
			return nil, err
		}
		r, err := h.s.editLocked(h.s.userLocked(ctx), &parleyv1.EditMessageRequest{
			ChannelId: l.id, MsgId: req.GetMsgId(), Content: req.GetContent(), ClientMsgId: req.GetClientMsgId(),
		})
		if err != nil {
			return nil, err
		}
		return &parleyv1.EditSessionMessageResponse{
			Message: r.GetMessage(), Seq: r.GetSeq(), MsgTime: r.GetMsgTime(), Duplicate: r.GetDuplicate(), Epoch: r.GetEpoch(),
			ClientMsgId: r.GetClientMsgId(),
		}, nil
	})
}

// RecallSessionMessage implements the service.
func (h handler) RecallSessionMessage(
	ctx context.Context, req *parleyv1.RecallSessionMessageRequest,
) (*parleyv1.RecallSessionMessageResponse, error) {
	return do(ctx, h.s, "RecallSessionMessage", req, func() (*parleyv1.RecallSessionMessageResponse, error) {
		l, err := h.s.usableLocked(ctx, sessionPrefix+req.GetSessionId())
		if err != nil {
			return nil, err
		}
		r, err := h.s.recallLocked(h.s.userLocked(ctx), true, &parleyv1.RecallMessageRequest{
			ChannelId: l.id, MsgId: req.GetMsgId(), ClientMsgId: req.GetClientMsgId(),
		})
		if err != nil {
			return nil, err
		}
		return &parleyv1.RecallSessionMessageResponse{
			Message: r.GetMessage(), Seq: r.GetSeq(), MsgTime: r.GetMsgTime(), Duplicate: r.GetDuplicate(), Epoch: r.GetEpoch(),
			ClientMsgId: r.GetClientMsgId(),
		}, nil
	})
}

// MarkSessionRead implements the service.
func (h handler) MarkSessionRead(ctx context.Context, req *parleyv1.MarkSessionReadRequest) (*parleyv1.MarkSessionReadResponse, error) {
	return do(ctx, h.s, "MarkSessionRead", req, func() (*parleyv1.MarkSessionReadResponse, error) {
		r, err := h.s.markReadLocked(ctx, &parleyv1.MarkReadRequest{ChannelId: sessionPrefix + req.GetSessionId(), Seq: req.GetSeq()})
		if err != nil {
			return nil, err
		}
		return &parleyv1.MarkSessionReadResponse{ReadSeq: r.GetReadSeq(), Unread: r.GetUnread(), Epoch: r.GetEpoch()}, nil
	})
}
