package parleytest

import (
	"fmt"
	"maps"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// log is one channel. It is guarded by the server's lock.
type log struct {
	id      string
	epoch   string
	entries []entry
	// oldest is the first entry that is still held.
	oldest int64
	// skip holds entries that streams pass over, as a broken server would.
	skip     map[int64]int
	messages map[string]*parleyv1.Message
	byClient map[string]int64
	count    int64

	// made is true once the channel exists, by a first send or by CreateChannel.
	made        bool
	membersOnly bool
	createdBy   string
	createTime  time.Time
	members     map[string]*member
}

// entry is what one place of the log says: which message, and what was done to it.
type entry struct {
	msgID string
	kind  string
}

func (l *log) head() int64 { return int64(len(l.entries)) }

func (s *shared) logLocked(id string) *log {
	l := s.channels[id]
	if l == nil {
		l = &log{
			id: id, epoch: "epoch-1", oldest: 1, skip: make(map[int64]int), messages: make(map[string]*parleyv1.Message),
			byClient: make(map[string]int64), members: make(map[string]*member),
		}
		s.channels[id] = l
	}
	return l
}

// appendLocked adds an entry, or finds the one that the same id made.
func (s *shared) appendLocked(l *log, key, kind string, target *parleyv1.Message) (seq int64, duplicate bool) {
	if seq, ok := l.byClient[key]; ok {
		return seq, true
	}
	l.entries = append(l.entries, entry{msgID: target.GetMsgId(), kind: kind})
	seq = l.head()
	l.byClient[key] = seq
	target.ChangedSeq = seq
	s.wakeLocked()
	return seq, false
}

func (s *shared) sendLocked(user string, req *parleyv1.SendMessageRequest) (*parleyv1.SendMessageResponse, error) {
	l := s.logLocked(req.GetChannelId())
	if !l.admits(user) {
		return nil, notMember()
	}
	if req.GetContent() == "" {
		return nil, ErrorDetail(connect.CodeInvalidArgument, &parleyv1.ErrorDetail{
			Reason: parleyv1.ErrorReason_ERROR_REASON_INVALID_FIELD, Field: "content", Limit: 1,
		})
	}
	from := req.GetFromId()
	if from == "" {
		from = user
	}
	msgType := req.GetMsgType()
	if msgType == "" {
		msgType = "text"
	}
	s.minted++
	m := &parleyv1.Message{
		MsgId: fmt.Sprintf("msg-%d", s.minted), ChannelId: l.id, FromId: from, MsgType: msgType, Content: req.GetContent(),
		Metadata: maps.Clone(req.GetMetadata()), ClientMsgId: req.GetClientMsgId(), MsgTime: timestamppb.New(time.Now()),
		Status: parleyv1.MessageStatus_MESSAGE_STATUS_SENT,
	}
	seq, duplicate := s.appendLocked(l, from+" "+req.GetClientMsgId(), "sent", m)
	if duplicate {
		first := l.messages[l.entries[seq-1].msgID]
		if first.GetContent() != req.GetContent() {
			return nil, Error(connect.CodeAlreadyExists, parleyv1.ErrorReason_ERROR_REASON_CLIENT_MSG_ID_REUSED)
		}
		m = first
	} else {
		l.count++
		m.Seq, m.Count = seq, l.count
		l.messages[m.GetMsgId()] = m
		l.make("", false)
		l.read(from, seq, !l.membersOnly)
	}
	return &parleyv1.SendMessageResponse{
		MsgId: m.GetMsgId(), Seq: seq, Count: m.GetCount(), MsgTime: m.GetMsgTime(), ClientMsgId: m.GetClientMsgId(),
		Epoch: l.epoch, Duplicate: duplicate,
	}, nil
}

// eventLocked is what streams tell of a place of the log: the message as it is now.
func (l *log) eventLocked(seq int64) *parleyv1.ChannelEvent {
	e := l.entries[seq-1]
	m := proto.CloneOf(l.messages[e.msgID])
	ev := &parleyv1.ChannelEvent{ChannelId: l.id, Seq: seq}
	switch e.kind {
	case "edited":
		ev.Event = &parleyv1.ChannelEvent_Edited{Edited: m}
	case "recalled":
		ev.Event = &parleyv1.ChannelEvent_Recalled{Recalled: m}
	default:
		ev.Event = &parleyv1.ChannelEvent_Sent{Sent: m}
	}
	return ev
}

// Post appends a message as another client would, and gives its seq.
func (s *Server) Post(channelID, from, content string) int64 {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.minted++
	res, err := s.sendLocked(from, &parleyv1.SendMessageRequest{
		ChannelId: channelID, Content: content, FromId: from, ClientMsgId: fmt.Sprintf("posted-%d", s.minted),
	})
	if err != nil {
		s.tb.Fatalf("post: %v", err)
	}
	return res.GetSeq()
}

// Contents gives the contents of a channel's messages, in order.
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

// Messages gives copies of a channel's messages, in order.
func (s *Server) Messages(channelID string) []*parleyv1.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.logLocked(channelID)
	var messages []*parleyv1.Message
	for _, e := range l.entries {
		if e.kind == "sent" {
			messages = append(messages, proto.CloneOf(l.messages[e.msgID]))
		}
	}
	return messages
}

// Trim makes the log forget what is before oldest, so that a subscriber from earlier gets a gap.
func (s *Server) Trim(channelID string, oldest int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logLocked(channelID).oldest = oldest
}

// Restore cuts the log off after head and gives it another epoch, as restoring an old backup does.
func (s *Server) Restore(channelID, epoch string, head int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.logLocked(channelID)
	l.entries, l.epoch = l.entries[:head], epoch
}

// Skip makes streams pass over an entry the next n times, as a broken server would.
func (s *Server) Skip(channelID string, seq int64, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logLocked(channelID).skip[seq] = n
}
