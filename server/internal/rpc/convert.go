package rpc

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/channel"
	"github.com/parleyhq/parley/server/internal/fanout"
	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
)

var statuses = map[message.Status]parleyv1.MessageStatus{
	message.StatusSent:     parleyv1.MessageStatus_MESSAGE_STATUS_SENT,
	message.StatusEdited:   parleyv1.MessageStatus_MESSAGE_STATUS_EDITED,
	message.StatusRecalled: parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED,
}

func messageToWire(m *message.Message) *parleyv1.Message {
	return &parleyv1.Message{
		MsgId: m.MsgID, ChannelId: m.ChannelID, Seq: m.Seq, Count: m.Count, FromId: m.FromID, MsgType: m.MsgType,
		Content: m.Content, Metadata: m.Metadata, ClientMsgId: m.ClientMsgID, MsgTime: timestamppb.New(m.MsgTime),
		Status: statuses[m.Status], ChangedSeq: m.ChangedSeq,
	}
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

// positionsFromWire exempts who holds `manage` from being a member.
func positionsFromWire(p *ident.Principal, ats []*parleyv1.ChannelPosition) []fanout.Position {
	out := make([]fanout.Position, len(ats))
	for i, at := range ats {
		out[i] = fanout.Position{
			ChannelID: at.GetChannelId(), After: at.AfterSeq, Epoch: at.GetEpoch(),
			Exempt: p.Can(ident.Manage, at.GetChannelId()),
		}
	}
	return out
}

func channelToWire(r *channel.Row) *parleyv1.Channel {
	return &parleyv1.Channel{
		ChannelId: r.ChannelID, MembersOnly: r.MembersOnly, CreatedBy: r.CreatedBy,
		CreateTime: timestamppb.New(r.CreatedAt), HeadSeq: r.Head, Count: r.Count,
	}
}

func memberToWire(m *channel.Member) *parleyv1.Member {
	return &parleyv1.Member{UserId: m.UserID, JoinTime: timestamppb.New(m.JoinedAt), ReadSeq: m.Seq}
}

func mineToWire(m *channel.Mine) *parleyv1.MyChannel {
	out := &parleyv1.MyChannel{Channel: channelToWire(&m.Row), ReadSeq: m.Read.Seq, Unread: m.Unread}
	if m.LastMessage != nil {
		out.LastMessage = messageToWire(m.LastMessage)
	}
	return out
}
