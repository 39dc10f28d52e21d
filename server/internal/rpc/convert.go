package rpc

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fanout"
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

func positionsFromWire(ps []*parleyv1.ChannelPosition) []fanout.Position {
	out := make([]fanout.Position, len(ps))
	for i, p := range ps {
		out[i] = fanout.Position{ChannelID: p.GetChannelId(), After: p.AfterSeq, Epoch: p.GetEpoch()}
	}
	return out
}
