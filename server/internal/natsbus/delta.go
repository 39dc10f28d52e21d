package natsbus

import (
	"fmt"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/message"
)

// pendingDeltas and pendingDeltaBytes bound the deltas that are queued for a subscription's
// callback. Those beyond are dropped.
const (
	pendingDeltas     = 1 << 14
	pendingDeltaBytes = 4 << 20
)

// PublishDelta sends a piece of an open message's text to subscribers of the session's channel, at
// most once, without waiting for delivery. While NATS is away it returns an error and nothing is
// sent later.
func (b *Bus) PublishDelta(channelID string, d *message.Delta) error {
	subject, err := deltaSubject(channelID)
	if err != nil {
		return fmt.Errorf("publish delta: %w", err)
	}
	data, err := proto.Marshal(&clusterv1.SessionDelta{
		MsgId: d.MsgID, Seq: d.Seq, Attempt: d.Attempt, Offset: int64(d.Offset), Text: d.Text,
	})
	if err != nil {
		return fmt.Errorf("encode delta: %w", err)
	}
	if err := b.nc.Publish(subject, data); err != nil {
		return fmt.Errorf("publish to %s: %w", subject, err)
	}
	return nil
}

// SubscribeDeltas calls fn with each delta that is published to the channel from now on, one at a
// time, until cancel is called. fn may still be running, for the last time, when cancel returns. It
// should not block: deltas beyond the bounds of its queue are dropped.
func (b *Bus) SubscribeDeltas(channelID string, fn func(message.Delta)) (cancel func(), err error) {
	subject, err := deltaSubject(channelID)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return b.listen(subject, pendingDeltas, pendingDeltaBytes, func(msg *nats.Msg) {
		var w clusterv1.SessionDelta
		if err := proto.Unmarshal(msg.Data, &w); err != nil {
			b.log.Error("delta dropped: decode failed", "subject", msg.Subject, "error", err)
			return
		}
		fn(message.Delta{MsgID: w.GetMsgId(), Seq: w.GetSeq(), Attempt: w.GetAttempt(), Offset: int(w.GetOffset()), Text: w.GetText()})
	})
}
