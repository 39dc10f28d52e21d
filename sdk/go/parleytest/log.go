package parleytest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// log is one channel with its entries, messages and members. It is guarded by the server's lock.
type log struct {
	id      string
	epoch   string
	entries []entry
	// oldest is the seq of the first entry that can be read.
	oldest int64
	// skip maps an entry's seq to the number of times that streams will still leave it out, like a
	// broken server.
	skip map[int64]int
	// cover maps the last seq of a range of entries to the first one. Streams send one event for the
	// range.
	cover    map[int64]int64
	messages map[string]*parleyv1.ChannelMessage
	// texts holds the texts of open messages, by id.
	texts map[string]*openText
	// byClient maps a user and a client_msg_id to the seq of the entry that they stored.
	byClient map[string]int64
	count    int64

	// made is true once the channel exists, created by a first send or by CreateChannel. created is
	// the request of CreateChannel, or nil.
	made bool
	// deleted is true once DeleteChannel has deleted the channel, until CreateChannel creates it
	// again.
	deleted     bool
	created     *parleyv1.CreateChannelRequest
	membersOnly bool
	createdBy   string
	createTime  time.Time
	members     map[string]*member
	title       string // of a session
	// retention is nil for the server's default. settingsRev counts its changes.
	retention   *parleyv1.ChannelRetention
	settingsRev int
}

// entry is one entry of the log: a send, edit, recall or close of a message.
type entry struct {
	msgID string
	kind  string
	// status is the message's status after the entry.
	status parleyv1.MessageStatus
	// content is the message's content after the entry. digest is compared to tell a repeated call
	// from another one with the same client_msg_id.
	content, digest string
	at              time.Time
}

func (l *log) head() int64 { return int64(len(l.entries)) }

// oldestSeq returns the seq of the oldest entry that can be read, or head+1 if there is none.
func (l *log) oldestSeq() int64 { return min(l.oldest, l.head()+1) }

// expired returns the number of messages that can no longer be read.
func (l *log) expired() int64 {
	var n int64
	for _, e := range l.entries[:l.oldestSeq()-1] {
		if e.kind == "sent" {
			n++
		}
	}
	return n
}

func (s *shared) logLocked(id string) *log {
	l := s.channels[id]
	if l == nil {
		l = &log{
			id: id, epoch: "epoch-1", oldest: 1, skip: make(map[int64]int), cover: make(map[int64]int64),
			messages: make(map[string]*parleyv1.ChannelMessage), byClient: make(map[string]int64), members: make(map[string]*member),
		}
		s.channels[id] = l
	}
	return l
}

// appendLocked appends an entry, or returns the entry that the user stored with the same
// client_msg_id by the same call. An empty id never matches.
func (s *shared) appendLocked(l *log, user, clientMsgID string, e entry) (seq int64, duplicate bool, err error) {
	key := user + " " + clientMsgID
	if known, ok := l.byClient[key]; ok && clientMsgID != "" {
		first := l.entries[known-1]
		if first.kind != e.kind || first.digest != e.digest || e.kind != "sent" && first.msgID != e.msgID {
			return 0, false, errorAt(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_CLIENT_MSG_ID_REUSED, "client_msg_id", 0)
		}
		return known, true, nil
	}
	e.at = time.Now()
	l.entries = append(l.entries, e)
	l.byClient[key] = l.head()
	s.wakeLocked()
	return l.head(), false, nil
}

// sendAsLocked checks the rules of a send that the proto cannot express, and appends a message of
// the caller or, if from_id is set, of that user.
func (s *shared) sendAsLocked(ctx context.Context, req *parleyv1.SendMessageRequest, open bool) (*parleyv1.SendMessageResponse, error) {
	user := s.userLocked(ctx)
	if req.GetFromId() != "" && req.GetFromId() != user && !s.canLocked(ctx, "send_as") {
		return nil, Error(connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_SENDER_MISMATCH)
	}
	if strings.HasPrefix(req.GetMsgType(), "parley.") {
		return nil, invalidField("msg_type", 0)
	}
	if _, ok := reservedKey(req.GetMetadata(), "parley-"); ok {
		return nil, invalidField("metadata", 0)
	}
	if _, err := s.usableLocked(ctx, req.GetChannelId()); err != nil {
		return nil, err
	}
	return s.sendLocked(user, req, open)
}

func (s *shared) sendLocked(user string, req *parleyv1.SendMessageRequest, open bool) (*parleyv1.SendMessageResponse, error) {
	l := s.logLocked(req.GetChannelId())
	from := req.GetFromId()
	if from == "" {
		from = user
	}
	msgType := req.GetMsgType()
	if msgType == "" {
		msgType = "text"
	}
	s.minted++
	id, clientMsgID := fmt.Sprintf("msg-%d", s.minted), req.GetClientMsgId()
	if clientMsgID == "" {
		clientMsgID = "client-" + id
	}
	status := parleyv1.MessageStatus_MESSAGE_STATUS_SENT
	if open {
		status = parleyv1.MessageStatus_MESSAGE_STATUS_OPEN
	}
	seq, duplicate, err := s.appendLocked(l, from, clientMsgID, entry{
		msgID: id, kind: "sent", status: status, content: req.GetContent(),
		digest: fmt.Sprintf("%q %q %q %t", msgType, req.GetContent(), req.GetMetadata(), open),
	})
	if err != nil {
		return nil, err
	}
	e := l.entries[seq-1]
	m := l.messages[e.msgID]
	if !duplicate {
		l.count++
		m = &parleyv1.ChannelMessage{
			MsgId: id, ChannelId: l.id, Seq: seq, Count: l.count, FromId: from, MsgType: msgType, Content: req.GetContent(),
			Metadata: maps.Clone(req.GetMetadata()), ClientMsgId: clientMsgID, MsgTime: timestamppb.New(e.at),
			Status: status, ChangedSeq: seq,
		}
		l.messages[id] = m
		l.create("", false)
		l.read(from, seq, !l.membersOnly)
	}
	return &parleyv1.SendMessageResponse{
		MsgId: m.GetMsgId(), Seq: seq, Count: m.GetCount(), MsgTime: m.GetMsgTime(), ClientMsgId: m.GetClientMsgId(),
		Epoch: l.epoch, Duplicate: duplicate,
	}, nil
}

// idOr returns clientMsgID, or a new id if it is empty.
func (s *shared) idOr(clientMsgID string) string {
	if clientMsgID == "" {
		s.minted++
		return fmt.Sprintf("client-%d", s.minted)
	}
	return clientMsgID
}

// editLocked appends an edit by the user, who must be the sender, and returns the edited message.
func (s *shared) editLocked(user string, req *parleyv1.EditMessageRequest) (*parleyv1.EditMessageResponse, error) {
	l := s.logLocked(req.GetChannelId())
	m := l.messages[req.GetMsgId()]
	clientMsgID := s.idOr(req.GetClientMsgId())
	switch {
	case m == nil:
		return nil, errNoMessage()
	case m.GetFromId() != user:
		return nil, Error(connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_NOT_SENDER)
	case m.GetStatus() == parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED && l.byClient[user+" "+clientMsgID] == 0:
		return nil, Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_MESSAGE_RECALLED)
	case m.GetStatus() == parleyv1.MessageStatus_MESSAGE_STATUS_OPEN:
		return nil, Error(connect.CodeFailedPrecondition, parleyv1.ErrorReason_ERROR_REASON_MESSAGE_OPEN)
	}
	seq, duplicate, err := s.changeLocked(l, m, user, clientMsgID, entry{
		kind: "edited", status: parleyv1.MessageStatus_MESSAGE_STATUS_EDITED, content: req.GetContent(),
	})
	if err != nil {
		return nil, err
	}
	return &parleyv1.EditMessageResponse{
		Message: proto.CloneOf(m), Seq: seq, MsgTime: timestamppb.New(l.entries[seq-1].at), Duplicate: duplicate, Epoch: l.epoch,
		ClientMsgId: clientMsgID,
	}, nil
}

// changeLocked appends an edit or a close of the message, or finds an earlier one, and changes the
// message.
func (s *shared) changeLocked(l *log, m *parleyv1.ChannelMessage, user, clientMsgID string, e entry) (seq int64, duplicate bool, err error) {
	e.msgID, e.digest = m.GetMsgId(), e.status.String()
	if e.status != parleyv1.MessageStatus_MESSAGE_STATUS_CANCELLED { // whose text a repeat can't know
		e.digest += " " + e.content
	}
	seq, duplicate, err = s.appendLocked(l, user, clientMsgID, e)
	if err == nil && !duplicate {
		m.Content, m.Status, m.ChangedSeq = e.content, e.status, seq
	}
	return seq, duplicate, err
}

// recallLocked appends a recall, or finds the first one, and returns the tombstone. A moderator can
// recall messages of all senders.
func (s *shared) recallLocked(user string, moderator bool, req *parleyv1.RecallMessageRequest) (*parleyv1.RecallMessageResponse, error) {
	l := s.logLocked(req.GetChannelId())
	m := l.messages[req.GetMsgId()]
	switch {
	case m == nil:
		return nil, errNoMessage()
	case m.GetFromId() != user && !moderator:
		return nil, Error(connect.CodePermissionDenied, parleyv1.ErrorReason_ERROR_REASON_NOT_SENDER)
	}
	clientMsgID := req.GetClientMsgId()
	seq, duplicate := m.GetChangedSeq(), m.GetStatus() == parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED
	if !duplicate {
		clientMsgID = s.idOr(clientMsgID)
		var err error
		if seq, _, err = s.appendLocked(l, user, clientMsgID, entry{
			msgID: m.GetMsgId(), kind: "recalled", status: parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED,
		}); err != nil {
			return nil, err
		}
		m.Content, m.Metadata, m.Status, m.ChangedSeq = "", nil, parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED, seq
	}
	return &parleyv1.RecallMessageResponse{
		Message: proto.CloneOf(m), Seq: seq, MsgTime: timestamppb.New(l.entries[seq-1].at), Duplicate: duplicate, Epoch: l.epoch,
		ClientMsgId: clientMsgID,
	}, nil
}

// eventLocked returns the event of an entry, with the message in its current state.
func (l *log) eventLocked(seq int64) *parleyv1.ChannelEvent {
	e := l.entries[seq-1]
	m := proto.CloneOf(l.messages[e.msgID])
	ev := &parleyv1.ChannelEvent{ChannelId: l.id, Seq: seq, FromSeq: seq}
	if first := l.cover[seq]; first > 0 {
		ev.FromSeq = first
	}
	switch e.kind {
	case "edited":
		ev.Event = &parleyv1.ChannelEvent_Edited{Edited: m}
	case "closed":
		ev.Event = &parleyv1.ChannelEvent_Closed{Closed: m}
	case "recalled":
		ev.Event = &parleyv1.ChannelEvent_Recalled{Recalled: m}
	default:
		ev.Event = &parleyv1.ChannelEvent_Sent{Sent: m}
	}
	return ev
}

// Post appends a message of the user from, as another client would, and returns its seq. It fails
// the test if from may not use the channel.
func (s *Server) Post(channelID, from, content string) int64 {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.minted++
	if !s.logLocked(channelID).admits(from) {
		s.tb.Fatalf("post: %s is not a member of %s", from, channelID)
	}
	res, err := s.sendLocked(from, &parleyv1.SendMessageRequest{
		ChannelId: channelID, Content: content, FromId: from, ClientMsgId: fmt.Sprintf("posted-%d", s.minted),
	}, false)
	if err != nil {
		s.tb.Fatalf("post: %v", err)
	}
	return res.GetSeq()
}

// Contents returns the current contents of all messages of a channel, in order. That of a recalled
// message is "".
func (s *Server) Contents(channelID string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.logLocked(channelID)
	var contents []string
	for _, e := range l.entries {
		if e.kind == "sent" {
			contents = append(contents, l.messages[e.msgID].GetContent())
		}
	}
	return contents
}

// Messages returns copies of all messages of a channel in their current state, in order.
func (s *Server) Messages(channelID string) []*parleyv1.ChannelMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.logLocked(channelID)
	var messages []*parleyv1.ChannelMessage
	for _, e := range l.entries {
		if e.kind == "sent" {
			messages = append(messages, proto.CloneOf(l.messages[e.msgID]))
		}
	}
	return messages
}

// Trim makes the entries with a seq below oldest unreadable, so that a subscriber from an earlier
// position gets a gap.
func (s *Server) Trim(channelID string, oldest int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logLocked(channelID).oldest = oldest
}

// Restore removes the entries with a seq above head and changes the log's epoch, like the restore
// of an old backup.
func (s *Server) Restore(channelID, epoch string, head int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.logLocked(channelID)
	for _, e := range l.entries[head:] {
		if e.kind == "sent" {
			delete(l.messages, e.msgID)
			l.count--
		}
	}
	l.entries, l.epoch = l.entries[:head], epoch
	maps.DeleteFunc(l.byClient, func(_ string, seq int64) bool { return seq > head })
	for i, e := range l.entries {
		m := l.messages[e.msgID]
		m.Content, m.ChangedSeq, m.Status = e.content, int64(i)+1, e.status
	}
}

// Skip makes Subscribe streams leave out the entry with this seq the next n times that it is due,
// like a broken server.
func (s *Server) Skip(channelID string, seq int64, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logLocked(channelID).skip[seq] = n
}

// Cover makes Subscribe streams send one event for the entries from..to, both inclusive: that of
// the entry to.
func (s *Server) Cover(channelID string, from, to int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.logLocked(channelID)
	for seq := from; seq < to; seq++ {
		l.skip[seq] = forever
	}
	l.cover[to] = from
}

// forever is the skip count of entries that are never sent.
const forever = 1 << 30
