package parleytest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// maxText is the maximum size of a session's message, in bytes.
const maxText = 128 << 10

// openText is the text that was streamed of an open message.
type openText struct {
	// attempt numbers the calls that opened the message; the text is of the highest one that was used.
	attempt int
	text    string
}

// appendToken returns the append token of a call that has opened a message.
func (s *shared) appendTokenLocked(ctx context.Context, msgID string) string {
	s.minted++
	return fmt.Sprintf("%s/%s/%d", msgID, s.userLocked(ctx), s.minted)
}

// AppendSessionDelta implements the service.
func (h handler) AppendSessionDelta(
	ctx context.Context, req *parleyv1.AppendSessionDeltaRequest,
) (*parleyv1.AppendSessionDeltaResponse, error) {
	return do(ctx, h.s, "AppendSessionDelta", req, func() (*parleyv1.AppendSessionDeltaResponse, error) {
		var attempt int
		by, ok := strings.CutPrefix(req.GetAppendToken(), req.GetMsgId()+"/"+h.s.userLocked(ctx)+"/")
		l := h.s.logLocked(sessionPrefix + req.GetSessionId())
		if _, err := fmt.Sscan(by, &attempt); err != nil || !ok || l.messages[req.GetMsgId()] == nil && !l.deleted {
			return nil, invalidField("append_token", 0)
		}
		t := l.textOf(req.GetMsgId())
		status := parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED
		if m := l.messages[req.GetMsgId()]; m != nil && !l.deleted {
			status = m.GetStatus()
		}
		if status != parleyv1.MessageStatus_MESSAGE_STATUS_OPEN {
			return &parleyv1.AppendSessionDeltaResponse{Length: int64(len(t.text)), Status: status}, nil
		}
		switch {
		case attempt < t.attempt:
			return nil, Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_APPEND_SUPERSEDED)
		case attempt > t.attempt:
			t.attempt, t.text = attempt, ""
		}
		offset, known := int(req.GetOffset()), len(t.text)
		if offset > known {
			return nil, errorAt(connect.CodeOutOfRange, parleyv1.ErrorReason_ERROR_REASON_POSITION_OUT_OF_RANGE, "offset", int64(known))
		}
		again := min(known-offset, len(req.GetText()))
		if !strings.HasPrefix(t.text[offset:], req.GetText()[:again]) {
			return nil, invalidField("text", 0)
		}
		if offset+len(req.GetText()) > maxText {
			return nil, errorAt(connect.CodeResourceExhausted, parleyv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, "text", maxText)
		}
		t.text += req.GetText()[again:]
		h.s.wakeLocked()
		return &parleyv1.AppendSessionDeltaResponse{Length: int64(len(t.text)), Status: status}, nil
	})
}

// textOf returns the text of a message, which it adds if there is none.
func (l *log) textOf(msgID string) *openText {
	if l.texts == nil {
		l.texts = map[string]*openText{}
	}
	if l.texts[msgID] == nil {
		l.texts[msgID] = &openText{}
	}
	return l.texts[msgID]
}

// CancelSessionMessage implements the service.
func (h handler) CancelSessionMessage(
	ctx context.Context, req *parleyv1.CancelSessionMessageRequest,
) (*parleyv1.CancelSessionMessageResponse, error) {
	return do(ctx, h.s, "CancelSessionMessage", req, func() (*parleyv1.CancelSessionMessageResponse, error) {
		l, err := h.s.usableLocked(ctx, sessionPrefix+req.GetSessionId())
		if err != nil {
			return nil, err
		}
		m, user, id := l.messages[req.GetMsgId()], h.s.userLocked(ctx), h.s.idOr(req.GetClientMsgId())
		if err := closable(l, m, user, id); err != nil {
			return nil, err
		}
		content := m.GetContent()
		if t := l.textOf(req.GetMsgId()); t.text != "" && m.GetStatus() == parleyv1.MessageStatus_MESSAGE_STATUS_OPEN {
			content = t.text
		}
		seq, duplicate, err := h.s.changeLocked(l, m, user, id, entry{
			kind: "closed", status: parleyv1.MessageStatus_MESSAGE_STATUS_CANCELLED, content: content,
		})
		if err != nil {
			return nil, err
		}
		return &parleyv1.CancelSessionMessageResponse{
			Message: proto.CloneOf(m), Seq: seq, MsgTime: timestamppb.New(l.entries[seq-1].at), Duplicate: duplicate, Epoch: l.epoch,
			ClientMsgId: id,
		}, nil
	})
}

// closable returns an error unless a user can close m with this client_msg_id.
func closable(l *log, m *parleyv1.ChannelMessage, user, id string) error {
	repeated := l.byClient[user+" "+id] > 0
	switch {
	case m == nil:
		return errNoMessage()
	case m.GetStatus() == parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED && !repeated:
		return Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_MESSAGE_RECALLED)
	case m.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_OPEN && !repeated:
		return Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_MESSAGE_CLOSED)
	}
	return nil
}

// deltas returns what a stream at this place lacks of the texts of open messages.
func (l *log) deltas(p *place) []*parleyv1.ChannelEvent {
	var events []*parleyv1.ChannelEvent
	for id, t := range l.texts {
		m := l.messages[id]
		if m == nil || m.GetStatus() != parleyv1.MessageStatus_MESSAGE_STATUS_OPEN || m.GetSeq() > p.after {
			delete(p.texts, id)
			continue
		}
		shown, from := p.texts[id], 0
		if shown.attempt == t.attempt {
			from = len(shown.text)
		}
		if from == len(t.text) {
			continue
		}
		if p.texts == nil {
			p.texts = map[string]openText{}
		}
		p.texts[id] = *t
		events = append(events, &parleyv1.ChannelEvent{ChannelId: l.id, Event: &parleyv1.ChannelEvent_Delta{
			Delta: &parleyv1.MessageDelta{MsgId: id, Offset: int64(from), Text: t.text[from:]},
		}})
	}
	slices.SortFunc(events, func(a, b *parleyv1.ChannelEvent) int {
		return strings.Compare(a.GetDelta().GetMsgId(), b.GetDelta().GetMsgId())
	})
	return events
}

// LoseTexts makes the server forget the texts that were streamed of open messages, as after the
// loss of the node that had them.
func (s *Server) LoseTexts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.channels {
		for _, t := range l.texts {
			t.text = ""
		}
	}
}
