package remote

import (
	"fmt"
	"time"

	clusterv1 "github.com/parleyhq/parley/internal/gen/parley/cluster/v1"
	"github.com/parleyhq/parley/server/internal/cluster"
	"github.com/parleyhq/parley/server/internal/message"
)

func draftToWire(d *message.Draft) *clusterv1.Draft {
	return &clusterv1.Draft{
		Kind: int32(d.Kind), ChannelId: d.ChannelID, MsgId: d.MsgID, FromId: d.FromID, MsgType: d.MsgType,
		Content: d.Content, Metadata: d.Metadata, ClientMsgId: d.ClientMsgID, AnySender: d.AnySender,
		Traceparent: d.Traceparent, Rev: d.Rev, Open: d.Open, TargetType: d.TargetType,
	}
}

// draftKinds holds the kinds of drafts by their numbers.
var draftKinds = func() map[int32]message.Kind {
	kinds := make(map[int32]message.Kind)
	for _, k := range []message.Kind{
		message.KindSend, message.KindEdit, message.KindRecall, message.KindComplete, message.KindCancel, message.KindFail, message.KindAccess,
	} {
		kinds[int32(k)] = k
	}
	return kinds
}()

// draftFromWire decodes a draft encoded by draftToWire. ok is false if this version does not know
// its kind.
func draftFromWire(w *clusterv1.Draft) (d message.Draft, ok bool) {
	kind, ok := draftKinds[w.GetKind()]
	if !ok {
		return d, false
	}
	return message.Draft{
		Kind: kind, ChannelID: w.GetChannelId(), MsgID: w.GetMsgId(), FromID: w.GetFromId(), MsgType: w.GetMsgType(),
		Content: w.GetContent(), Metadata: w.GetMetadata(), ClientMsgID: w.GetClientMsgId(), AnySender: w.GetAnySender(),
		Traceparent: w.GetTraceparent(), Rev: w.GetRev(), Open: w.GetOpen(), TargetType: w.GetTargetType(),
	}, true
}

func draftsFromWire(ws []*clusterv1.Draft) ([]message.Draft, error) {
	drafts := make([]message.Draft, len(ws))
	for i, w := range ws {
		var ok bool
		if drafts[i], ok = draftFromWire(w); !ok {
			return nil, fmt.Errorf("decode drafts: kind %d is unknown", w.GetKind())
		}
	}
	return drafts, nil
}

func outcomeToWire(o *message.Outcome) *clusterv1.Outcome {
	w := &clusterv1.Outcome{
		MsgId: o.MsgID, ClientMsgId: o.ClientMsgID, Seq: o.Seq, Count: o.Count, Duplicate: o.Duplicate,
		Fault: cluster.FaultToWire(o.Err), StaleRev: o.StaleRev,
	}
	if !o.MsgTime.IsZero() {
		ms := o.MsgTime.UnixMilli()
		w.MsgTimeMs = &ms
	}
	return w
}

// outcomeFromWire decodes an outcome encoded by outcomeToWire. channelID is the channel of the
// draft; the encoded outcome lacks it.
func outcomeFromWire(w *clusterv1.Outcome, channelID string) message.Outcome {
	o := message.Outcome{
		ChannelID: channelID, MsgID: w.GetMsgId(), ClientMsgID: w.GetClientMsgId(), Seq: w.GetSeq(), Count: w.GetCount(),
		Duplicate: w.GetDuplicate(), StaleRev: w.GetStaleRev(), Err: cluster.FaultFromWire(w.GetFault()),
	}
	if w.MsgTimeMs != nil {
		o.MsgTime = time.UnixMilli(w.GetMsgTimeMs()).UTC()
	}
	return o
}
