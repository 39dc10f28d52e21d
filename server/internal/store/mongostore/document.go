package mongostore

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/parleyhq/parley/server/internal/message"
)

// document is the stored form of an entry.
type document struct {
	// ID is the message id for a send, so that a message is found by it, and a new id for any
	// other entry.
	ID          string            `bson:"_id"`
	MsgID       string            `bson:"msg_id"`
	Seq         int64             `bson:"seq"`
	ChannelID   string            `bson:"channel_id"`
	Content     string            `bson:"content"`
	FromID      string            `bson:"from_id"`
	MsgType     string            `bson:"msg_type"`
	MsgTime     time.Time         `bson:"msg_time"`
	Status      message.Status    `bson:"status"`
	Count       int64             `bson:"count"`
	Kind        message.Kind      `bson:"kind"`
	TargetSeq   int64             `bson:"target_seq,omitempty"`
	Pending     bool              `bson:"pending,omitempty"`
	Metadata    map[string]string `bson:"metadata,omitempty"`
	ClientMsgID string            `bson:"client_msg_id"`
	Digest      []byte            `bson:"digest,omitempty"`
	ChangedSeq  int64             `bson:"changed_seq"`
	Traceparent string            `bson:"traceparent,omitempty"`
	Bytes       int64             `bson:"bytes,omitempty"`
	Rev         int64             `bson:"rev,omitempty"`
	// TS is written as Timestamp(0,0), which mongod replaces by its own time. It ascends within a
	// channel, regardless of the nodes' clocks, and is never later than the entry's place in the
	// oplog.
	TS bson.Timestamp `bson:"ts"`
}

func documentOf(e *message.Entry) document {
	id := e.MsgID
	if e.Kind != message.KindSend {
		id = bson.NewObjectID().Hex()
	}
	return document{
		ID: id, MsgID: e.MsgID, Seq: e.Seq, ChannelID: e.ChannelID, Content: e.Content, FromID: e.FromID,
		MsgType: e.MsgType, MsgTime: e.MsgTime, Status: e.Status, Count: e.Count, Kind: e.Kind, TargetSeq: e.TargetSeq,
		Metadata: e.Metadata, ClientMsgID: e.ClientMsgID, Digest: e.Digest, ChangedSeq: e.ChangedSeq,
		Traceparent: e.Traceparent, Pending: e.Kind.Changes(), Bytes: e.Bytes, Rev: e.Rev,
	}
}

func (d *document) entry() message.Entry {
	e := message.Entry{
		Message: message.Message{
			MsgID: d.MsgID, ChannelID: d.ChannelID, Seq: d.Seq, Count: d.Count, FromID: d.FromID, MsgType: d.MsgType,
			Content: d.Content, ClientMsgID: d.ClientMsgID, MsgTime: d.MsgTime.UTC(), Status: d.Status,
			ChangedSeq: d.ChangedSeq, Rev: d.Rev,
		},
		Kind: d.Kind, TargetSeq: d.TargetSeq, Pending: d.Pending, Traceparent: d.Traceparent, Bytes: d.Bytes,
	}
	if len(d.Metadata) > 0 {
		e.Metadata = d.Metadata
	}
	if len(d.Digest) > 0 {
		e.Digest = d.Digest
	}
	return e
}
