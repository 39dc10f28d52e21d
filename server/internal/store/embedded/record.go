package embedded

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/message"
)

func encode(e *message.Entry) ([]byte, error) {
	value, err := proto.Marshal(&clusterv1.Entry{
		ChannelId: e.ChannelID, Seq: e.Seq, Count: e.Count, Kind: int32(e.Kind), MsgId: e.MsgID, TargetSeq: e.TargetSeq,
		FromId: e.FromID, MsgType: e.MsgType, Content: e.Content, Metadata: e.Metadata, ClientMsgId: e.ClientMsgID,
		Digest: e.Digest, MsgTimeMs: e.MsgTime.UnixMilli(), Status: int32(e.Status), ChangedSeq: e.ChangedSeq,
		Traceparent: e.Traceparent, Pending: e.Pending, Bytes: e.Bytes, Rev: e.Rev,
	})
	if err != nil {
		return nil, fmt.Errorf("encode entry %d of %s: %w", e.Seq, e.ChannelID, err)
	}
	return value, nil
}

func decode(value []byte) (message.Entry, error) {
	var r clusterv1.Entry
	if err := proto.Unmarshal(value, &r); err != nil {
		return message.Entry{}, fmt.Errorf("decode entry: %w", err)
	}
	return message.Entry{
		Message: message.Message{
			MsgID: r.GetMsgId(), ChannelID: r.GetChannelId(), Seq: r.GetSeq(), Count: r.GetCount(), FromID: r.GetFromId(),
			MsgType: r.GetMsgType(), Content: r.GetContent(), Metadata: r.GetMetadata(), ClientMsgID: r.GetClientMsgId(),
			MsgTime: time.UnixMilli(r.GetMsgTimeMs()).UTC(), Status: message.Status(r.GetStatus()), //nolint:gosec // written from an int8
			ChangedSeq: r.GetChangedSeq(), Rev: r.GetRev(),
		},
		Kind:        message.Kind(r.GetKind()), //nolint:gosec // written from an int8
		TargetSeq:   r.GetTargetSeq(),
		Digest:      r.GetDigest(),
		Traceparent: r.GetTraceparent(),
		Pending:     r.GetPending(),
		Bytes:       r.GetBytes(),
	}, nil
}
