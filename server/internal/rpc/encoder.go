package rpc

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fanout"
	"github.com/parleyhq/parley/server/internal/message"
)

// Encoder encodes the events of channels for the hub, which sends them in frames. Each result is a
// piece: one `events` field of an EventBatch, with its tag. Pieces may be concatenated to the
// fields of one batch. Encoder has no state.
type Encoder struct{}

var _ fanout.Encoder = Encoder{}

const (
	// batchField is the number of SubscribeResponse.events.
	batchField protowire.Number = 2
	// eventsField is the number of EventBatch.events.
	eventsField protowire.Number = 1
)

// Event implements fanout.Encoder.
func (Encoder) Event(e *message.Event) []byte {
	ev := &parleyv1.ChannelEvent{ChannelId: e.Message.ChannelID, FromSeq: e.From(), Seq: e.Seq}
	if e.Passed {
		return piece(ev)
	}
	m := messageToWire(&e.Message)
	switch e.Kind {
	case message.KindSend:
		ev.Event = &parleyv1.ChannelEvent_Sent{Sent: m}
	case message.KindEdit:
		ev.Event = &parleyv1.ChannelEvent_Edited{Edited: m}
	case message.KindRecall:
		ev.Event = &parleyv1.ChannelEvent_Recalled{Recalled: m}
	case message.KindComplete, message.KindCancel, message.KindFail:
		ev.Event = &parleyv1.ChannelEvent_Closed{Closed: m}
	case message.KindExpired, message.KindAccess: // are Passed
	}
	return piece(ev)
}

// State implements fanout.Encoder.
func (Encoder) State(channelID string, seq int64, s message.State, recovered bool) []byte {
	return piece(&parleyv1.ChannelEvent{ChannelId: channelID, Seq: seq, Event: &parleyv1.ChannelEvent_State{
		State: &parleyv1.ChannelState{
			Epoch: s.Epoch, OldestSeq: s.Oldest, HeadSeq: s.Head, Count: s.Count, ExpiredCount: s.Expired,
			Recovered: recovered,
		},
	}})
}

var gapReasons = map[fanout.GapReason]parleyv1.GapReason{
	fanout.GapEpochChanged: parleyv1.GapReason_GAP_REASON_EPOCH_CHANGED,
	fanout.GapHistoryGone:  parleyv1.GapReason_GAP_REASON_HISTORY_GONE,
	fanout.GapAheadOfLog:   parleyv1.GapReason_GAP_REASON_AHEAD_OF_LOG,
}

// Gap implements fanout.Encoder.
func (Encoder) Gap(channelID string, from, to int64, epoch string, reason fanout.GapReason) []byte {
	return piece(&parleyv1.ChannelEvent{ChannelId: channelID, Seq: to, Event: &parleyv1.ChannelEvent_Gap{
		Gap: &parleyv1.ChannelGap{AfterSeq: from, ToSeq: to, Epoch: epoch, Reason: gapReasons[reason]},
	}})
}

var lostReasons = map[fanout.LostReason]parleyv1.LostReason{
	fanout.LostNotMember:  parleyv1.LostReason_LOST_REASON_NOT_MEMBER,
	fanout.LostDeleted:    parleyv1.LostReason_LOST_REASON_DELETED,
	fanout.LostCapability: parleyv1.LostReason_LOST_REASON_CAPABILITY_MISSING,
}

// Lost implements fanout.Encoder.
func (Encoder) Lost(channelID string, reason fanout.LostReason) []byte {
	return piece(&parleyv1.ChannelEvent{ChannelId: channelID, Event: &parleyv1.ChannelEvent_Lost{
		Lost: &parleyv1.ChannelLost{Reason: lostReasons[reason]},
	}})
}

// Delta implements fanout.Encoder.
func (Encoder) Delta(channelID, msgID string, offset int, text string) []byte {
	return piece(&parleyv1.ChannelEvent{ChannelId: channelID, Event: &parleyv1.ChannelEvent_Delta{
		Delta: &parleyv1.MessageDelta{MsgId: msgID, Offset: int64(offset), Text: text},
	}})
}

// Typing implements fanout.Encoder.
func (Encoder) Typing(channelID, userID string) []byte {
	return piece(&parleyv1.ChannelEvent{ChannelId: channelID, Event: &parleyv1.ChannelEvent_Typing{
		Typing: &parleyv1.Typing{UserId: userID},
	}})
}

// piece returns an encoded `events` field of an EventBatch: tag, length, value. It returns nil,
// which leaves the event out, if ev can't be encoded. Only invalid UTF-8 can cause that, and the
// stores hold none.
func piece(ev *parleyv1.ChannelEvent) []byte {
	size := proto.Size(ev)
	out := make([]byte, 0, protowire.SizeTag(eventsField)+protowire.SizeBytes(size))
	out = protowire.AppendTag(out, eventsField, protowire.BytesType)
	out = protowire.AppendVarint(out, uint64(size)) //nolint:gosec // a size is no less than 0
	out, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(out, ev)
	if err != nil {
		return nil
	}
	return out
}

// batchHeader returns the bytes of a SubscribeResponse before the pieces of its EventBatch: the tag
// of the batch and its length.
func batchHeader(pieces [][]byte) []byte {
	size := 0
	for _, p := range pieces {
		size += len(p)
	}
	out := make([]byte, 0, protowire.SizeTag(batchField)+protowire.SizeVarint(uint64(size)))
	out = protowire.AppendTag(out, batchField, protowire.BytesType)
	return protowire.AppendVarint(out, uint64(size))
}

// heartbeatFrame is the frame that is sent when a stream has had no other for the heartbeat
// interval.
var heartbeatFrame = &frame{head: encoded(&parleyv1.SubscribeResponse{
	Frame: &parleyv1.SubscribeResponse_Heartbeat{Heartbeat: &parleyv1.Heartbeat{}},
})}

// infoFrame returns the first frame of a Subscribe stream, which contains the stream's id.
func infoFrame(id string, cfg *Config) *frame {
	return &frame{head: encoded(&parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Info{Info: streamInfo(id, cfg)}})}
}

// streamInfo returns the content of the first frame of a Subscribe or Consume stream.
func streamInfo(id string, cfg *Config) *parleyv1.StreamInfo {
	return &parleyv1.StreamInfo{StreamId: id, HeartbeatInterval: durationpb.New(cfg.HeartbeatInterval)}
}

func reconnectFrame(within time.Duration) *frame {
	return &frame{head: encoded(&parleyv1.SubscribeResponse{
		Frame: &parleyv1.SubscribeResponse_Reconnect{Reconnect: &parleyv1.Reconnect{Within: durationpb.New(within)}},
	})}
}

func encoded(m *parleyv1.SubscribeResponse) []byte {
	data, err := proto.Marshal(m)
	if err != nil {
		return nil // see piece
	}
	return data
}

// frameOf converts a frame of the hub to an encoded frame for the codecs.
func frameOf(f *fanout.Frame) *frame {
	switch {
	case f.Heartbeat:
		return heartbeatFrame
	case f.Reconnect > 0:
		return reconnectFrame(f.Reconnect)
	default:
		return &frame{head: batchHeader(f.Pieces), pieces: f.Pieces}
	}
}
