package parleytest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

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
		caller := h.s.userLocked(ctx)
		user, role := cmp.Or(req.GetUserId(), caller), cmp.Or(req.GetRole(), "user")
		id := cmp.Or(req.GetSessionId(), newSessionID(user, h.s.idOr(req.GetClientMsgId())))
		switch {
		case user != caller && !h.s.canLocked(ctx, "send_as"):
			return nil, missing("user_id")
		case role != "user" && !h.s.canLocked(ctx, "manage"):
			return nil, missing("role")
		}
		if _, ok := reservedKey(req.GetMetadata(), "parley-"); ok {
			return nil, invalidField("metadata", 0)
		}
		l := h.s.logLocked(sessionPrefix + id)
		switch {
		case !l.made && role != "user" && req.GetUserId() == "":
			return nil, refusal(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_CHANNEL_NOT_FOUND, "", nil)
		case l.deleted && l.createdBy == user:
			return nil, errorAt(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_SESSION_DELETED, "session_id", 0)
		case l.deleted, l.made && l.createdBy != user && (user != caller || !h.s.canLocked(ctx, "manage")):
			return nil, notMember("session_id")
		}
		if !l.made {
			l.title = req.GetTitle()
		}
		if l.create(user, true); l.createdBy == user {
			l.join(user, owner)
		}
		sent, err := h.s.sendLocked(user, &parleyv1.SendMessageRequest{
			ChannelId: l.id, Content: req.GetContent(), ClientMsgId: req.GetClientMsgId(), MsgType: role,
			Metadata: req.GetMetadata(), FromId: user,
		}, req.GetOpen())
		if err != nil {
			return nil, err
		}
		var token string
		if req.GetOpen() && l.messages[sent.GetMsgId()].GetStatus() == parleyv1.MessageStatus_MESSAGE_STATUS_OPEN {
			token = h.s.appendTokenLocked(ctx, sent.GetMsgId())
		}
		return &parleyv1.AppendSessionMessageResponse{
			AppendToken: token, SessionId: id, MsgId: sent.GetMsgId(), Seq: sent.GetSeq(), Count: sent.GetCount(), MsgTime: sent.GetMsgTime(),
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
		switch {
		case m == nil:
			return nil, errNoMessage()
		case m.GetFromId() != user && !h.s.canLocked(ctx, "manage"):
			return nil, Error(connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_NOT_SENDER)
		case m.GetMsgType() != "user" && !h.s.canLocked(ctx, "manage"):
			return nil, missing("")
		}
		if err := closable(l, m, user, id); err != nil {
			return nil, err
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
		if m := l.messages[req.GetMsgId()]; m.GetFromId() == h.s.userLocked(ctx) && m.GetMsgType() != "user" && !h.s.canLocked(ctx, "manage") {
			return nil, missing("")
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

// ListSessions implements the service. A page token contains the last id of the previous page.
func (h handler) ListSessions(ctx context.Context, req *parleyv1.ListSessionsRequest) (*parleyv1.ListSessionsResponse, error) {
	return do(ctx, h.s, "ListSessions", req, func() (*parleyv1.ListSessionsResponse, error) {
		all, user := req.GetAllUsers(), cmp.Or(req.GetUserId(), h.s.userLocked(ctx))
		switch {
		case all && req.GetUserId() != "":
			return nil, invalidField("user_id", 0)
		case all && !h.s.canLocked(ctx, "manage"):
			return nil, missing("all_users")
		}
		if user != h.s.userLocked(ctx) && !h.s.canLocked(ctx, "manage") {
			return nil, missing("user_id")
		}
		var keys []string // in order of activity, the latest first, and then of id
		for id, l := range h.s.channels {
			if isSession(id) && l.made && (all || l.createdBy == user) && h.s.canLocked(ctx, "history") {
				keys = append(keys, fmt.Sprintf("%019d %s", math.MaxInt64-l.active().UnixNano(), id))
			}
		}
		slices.Sort(keys)
		page, next, err := h.s.pageLocked(ctx, keys, fmt.Sprint("sessions ", all, user), req.GetPageToken(), req.GetPageSize(), 50, 200)
		if err != nil {
			return nil, err
		}
		res := &parleyv1.ListSessionsResponse{NextPageToken: next}
		for _, key := range page {
			_, id, _ := strings.Cut(key, " ")
			l := h.s.channels[id]
			var read int64
			if m := l.members[l.createdBy]; m != nil {
				read = m.read
			}
			res.Sessions = append(res.Sessions, &parleyv1.Session{
				SessionId: strings.TrimPrefix(id, sessionPrefix), OwnerId: l.createdBy, CreateTime: timestamppb.New(l.createTime),
				ActiveTime: timestamppb.New(l.active()), HeadSeq: l.head(), Count: l.count, ReadSeq: read, Unread: l.unread(read), Epoch: l.epoch,
				Title: l.title,
			})
		}
		return res, nil
	})
}

// active returns the time of the last message, or that of the creation if there is none.
func (l *log) active() time.Time {
	if m := l.lastMessage(); m != nil {
		return m.GetMsgTime().AsTime()
	}
	return l.createTime
}

// RenameSession implements the service.
func (h handler) RenameSession(ctx context.Context, req *parleyv1.RenameSessionRequest) (*parleyv1.RenameSessionResponse, error) {
	return do(ctx, h.s, "RenameSession", req, func() (*parleyv1.RenameSessionResponse, error) {
		l := h.s.logLocked(sessionPrefix + req.GetSessionId())
		if !l.made || l.createdBy != h.s.userLocked(ctx) && !h.s.canLocked(ctx, "manage") {
			return nil, refusal(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_CHANNEL_NOT_FOUND, "", nil)
		}
		l.title = req.GetTitle()
		return &parleyv1.RenameSessionResponse{}, nil
	})
}

// DeleteSession implements the service.
func (h handler) DeleteSession(ctx context.Context, req *parleyv1.DeleteSessionRequest) (*parleyv1.DeleteSessionResponse, error) {
	return do(ctx, h.s, "DeleteSession", req, func() (*parleyv1.DeleteSessionResponse, error) {
		l := h.s.logLocked(sessionPrefix + req.GetSessionId())
		if !l.made && !l.deleted || l.createdBy != h.s.userLocked(ctx) && !h.s.canLocked(ctx, "manage") {
			return nil, refusal(connect.CodeNotFound, parleyv1.ErrorReason_ERROR_REASON_CHANNEL_NOT_FOUND, "", nil)
		}
		if !l.deleted {
			l.delete()
			h.s.wakeLocked()
		}
		return &parleyv1.DeleteSessionResponse{}, nil
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
