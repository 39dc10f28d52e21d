package rpc

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/fanout"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

var statuses = map[message.Status]parleyv1.MessageStatus{
	message.StatusSent:      parleyv1.MessageStatus_MESSAGE_STATUS_SENT,
	message.StatusEdited:    parleyv1.MessageStatus_MESSAGE_STATUS_EDITED,
	message.StatusRecalled:  parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED,
	message.StatusComplete:  parleyv1.MessageStatus_MESSAGE_STATUS_SENT,
	message.StatusOpen:      parleyv1.MessageStatus_MESSAGE_STATUS_OPEN,
	message.StatusCancelled: parleyv1.MessageStatus_MESSAGE_STATUS_CANCELLED,
	message.StatusFailed:    parleyv1.MessageStatus_MESSAGE_STATUS_FAILED,
}

func messageToWire(m *message.Message) *parleyv1.ChannelMessage {
	return messagesToWire([]message.Message{*m})[0]
}

// messagesToWire converts the messages of a page. It makes two allocations in total instead of two
// per message.
func messagesToWire(messages []message.Message) []*parleyv1.ChannelMessage {
	type wire struct {
		message parleyv1.ChannelMessage
		time    timestamppb.Timestamp
	}
	memory := make([]wire, len(messages))
	out := make([]*parleyv1.ChannelMessage, len(messages))
	for i := range messages {
		m, w := &messages[i], &memory[i]
		w.time.Seconds, w.time.Nanos = m.MsgTime.Unix(), int32(m.MsgTime.Nanosecond()) //nolint:gosec // below 1e9
		out[i] = &w.message
		out[i].MsgId, out[i].ChannelId, out[i].Seq, out[i].Count = m.MsgID, m.ChannelID, m.Seq, m.Count
		out[i].FromId, out[i].MsgType, out[i].Content, out[i].Metadata = m.FromID, m.MsgType, m.Content, m.Metadata
		out[i].ClientMsgId, out[i].MsgTime, out[i].Status = m.ClientMsgID, &w.time, statuses[m.Status]
		out[i].ChangedSeq = m.ChangedSeq
	}
	return out
}

func sentToWire(r *message.Receipt) *parleyv1.SendMessageResponse {
	return &parleyv1.SendMessageResponse{
		MsgId: r.MsgID, Seq: r.Seq, Count: r.Count, MsgTime: timestamppb.New(r.MsgTime), ClientMsgId: r.ClientMsgID,
		Epoch: r.Epoch, Duplicate: r.Duplicate,
	}
}

func sendFromWire(r *parleyv1.SendMessageRequest, traceparent string) message.SendRequest {
	return message.SendRequest{
		ChannelID: r.GetChannelId(), Content: r.GetContent(), ClientMsgID: r.GetClientMsgId(), MsgType: r.GetMsgType(),
		Metadata: r.GetMetadata(), FromID: r.GetFromId(), Traceparent: traceparent,
	}
}

// positionsFromWire converts positions. It exempts p from membership in channels where p has the
// action `manage`. Channels that p may subscribe to only as a member require membership.
func positionsFromWire(p *ident.Principal, ats []*parleyv1.ChannelPosition) []fanout.Position {
	out := make([]fanout.Position, len(ats))
	for i, at := range ats {
		out[i] = fanout.NewPosition(p, at.GetChannelId(), at.AfterSeq, at.GetEpoch())
	}
	return out
}

func (s *messageService) channelToWire(r *channel.Row) *parleyv1.ChannelInfo {
	return &parleyv1.ChannelInfo{
		ChannelId: r.ChannelID, MembersOnly: r.MembersOnly, CreatedBy: r.CreatedBy,
		CreateTime: timestamppb.New(r.CreatedAt), HeadSeq: r.Head, Count: r.Count,
		OldestSeq: r.First(), ExpiredCount: r.Expired,
		Epoch: s.deps.Epoch, Etag: r.Etag(), Retention: retentionToWire(r.Retention),
	}
}

// retentionFromWire converts a policy; nil means the server's default.
func retentionFromWire(r *parleyv1.ChannelRetention) *channel.Retention {
	if r == nil {
		return nil
	}
	return &channel.Retention{
		MaxAge: r.GetMaxAge().AsDuration().Truncate(time.Millisecond), MaxMessages: r.GetMaxMessages(), MaxBytes: r.GetMaxBytes(),
	}
}

func retentionToWire(r *channel.Retention) *parleyv1.ChannelRetention {
	if r == nil {
		return nil
	}
	out := &parleyv1.ChannelRetention{MaxMessages: r.MaxMessages, MaxBytes: r.MaxBytes}
	if r.MaxAge > 0 {
		out.MaxAge = durationpb.New(r.MaxAge)
	}
	return out
}

// userIDsOf returns the user ids of members, whose roles in a request can only be MEMBER.
func userIDsOf(members []*parleyv1.ChannelMember) []string {
	ids := make([]string, len(members))
	for i, m := range members {
		ids[i] = m.GetUserId()
	}
	return ids
}

// roleToWire has the roles as clients see them.
var roleToWire = map[channel.Role]parleyv1.MemberRole{
	channel.Follower:   parleyv1.MemberRole_MEMBER_ROLE_FOLLOWER,
	channel.RoleMember: parleyv1.MemberRole_MEMBER_ROLE_MEMBER,
	channel.Moderator:  parleyv1.MemberRole_MEMBER_ROLE_MODERATOR,
	channel.Owner:      parleyv1.MemberRole_MEMBER_ROLE_OWNER,
}

// roleFromWire has the roles that UpdateMember sets.
var roleFromWire = map[parleyv1.MemberRole]channel.Role{
	parleyv1.MemberRole_MEMBER_ROLE_MEMBER:    channel.RoleMember,
	parleyv1.MemberRole_MEMBER_ROLE_MODERATOR: channel.Moderator,
	parleyv1.MemberRole_MEMBER_ROLE_OWNER:     channel.Owner,
}

func memberToWire(m *channel.Member) *parleyv1.ChannelMember {
	return &parleyv1.ChannelMember{
		UserId: m.UserID, Role: roleToWire[m.Role], JoinTime: timestamppb.New(m.JoinedAt), ReadSeq: m.Seq,
	}
}

func (s *messageService) userChannelToWire(m *channel.UserChannel) *parleyv1.UserChannel {
	out := &parleyv1.UserChannel{Channel: s.channelToWire(&m.Row), ReadSeq: m.Read.Seq, Unread: m.Unread}
	if m.LastMessage != nil {
		out.LastMessage = messageToWire(m.LastMessage)
	}
	return out
}

// timeToWire converts a time. The zero time becomes nil.
func timeToWire(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
