package rpc

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fanout"
	"github.com/parleyhq/parley/server/internal/fault"
	"github.com/parleyhq/parley/server/internal/message"
)

var someTime = time.UnixMilli(1_700_000_000_123).UTC()

func someEvent(kind message.Kind, channel string, seq int64) *message.Event {
	return &message.Event{
		Kind: kind, Epoch: "e1", Seq: seq, Count: seq, Time: someTime,
		Message: message.Message{
			MsgID: fmt.Sprintf("m%d", seq), ChannelID: channel, Seq: seq, Count: seq, FromID: "ada", MsgType: "text",
			Content: "häl\"lo\u2028", Metadata: map[string]string{"k": "v"}, ClientMsgID: "c", MsgTime: someTime, ChangedSeq: seq,
		},
	}
}

func wireMessage(channel string, seq int64) *parleyv1.ChannelMessage {
	return &parleyv1.ChannelMessage{
		MsgId: fmt.Sprintf("m%d", seq), ChannelId: channel, Seq: seq, Count: seq, FromId: "ada", MsgType: "text",
		Content: "häl\"lo\u2028", Metadata: map[string]string{"k": "v"}, ClientMsgId: "c", MsgTime: timestamppb.New(someTime),
		Status: parleyv1.MessageStatus_MESSAGE_STATUS_SENT, ChangedSeq: seq,
	}
}

// frames returns frames that a hub may produce, by name, each with the response that a client must
// decode.
func frames() map[string]struct {
	frame *frame
	want  *parleyv1.SubscribeResponse
} {
	var enc Encoder
	edit, recall := someEvent(message.KindEdit, "a", 9), someEvent(message.KindRecall, "a", 10)
	edit.Message.Seq, edit.Message.Status = 3, message.StatusEdited
	recall.Message = message.Message{MsgID: "m3", ChannelID: "a", Seq: 3, Status: message.StatusRecalled, MsgTime: someTime, ChangedSeq: 10}
	edited := wireMessage("a", 9)
	edited.Seq, edited.Status = 3, parleyv1.MessageStatus_MESSAGE_STATUS_EDITED
	type row = struct {
		frame *frame
		want  *parleyv1.SubscribeResponse
	}
	cfg := testConfig()
	return map[string]row{
		"events": {
			frameOf(&fanout.Frame{Pieces: [][]byte{
				enc.State("a", 2, message.State{Epoch: "e1", Oldest: 3, Head: 10, Count: 8, Expired: 2}, true),
				enc.Event(someEvent(message.KindSend, "a", 3)), enc.Event(edit), enc.Event(recall),
				enc.Gap("b", 4, 8, "e2", fanout.GapHistoryGone), enc.Typing("a", `auth0|"7`), enc.Lost("b", fanout.LostNotMember),
			}}),
			&parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Events{Events: &parleyv1.EventBatch{Events: []*parleyv1.ChannelEvent{
				{ChannelId: "a", Seq: 2, Event: &parleyv1.ChannelEvent_State{State: &parleyv1.ChannelState{
					Epoch: "e1", OldestSeq: 3, HeadSeq: 10, Count: 8, ExpiredCount: 2, Recovered: true,
				}}},
				{ChannelId: "a", Seq: 3, FromSeq: 3, Event: &parleyv1.ChannelEvent_Sent{Sent: wireMessage("a", 3)}},
				{ChannelId: "a", Seq: 9, FromSeq: 9, Event: &parleyv1.ChannelEvent_Edited{Edited: edited}},
				{ChannelId: "a", Seq: 10, FromSeq: 10, Event: &parleyv1.ChannelEvent_Recalled{Recalled: &parleyv1.ChannelMessage{
					MsgId: "m3", ChannelId: "a", Seq: 3, Status: parleyv1.MessageStatus_MESSAGE_STATUS_RECALLED,
					MsgTime: timestamppb.New(someTime), ChangedSeq: 10,
				}}},
				{ChannelId: "b", Seq: 8, Event: &parleyv1.ChannelEvent_Gap{Gap: &parleyv1.ChannelGap{
					AfterSeq: 4, ToSeq: 8, Epoch: "e2", Reason: parleyv1.GapReason_GAP_REASON_HISTORY_GONE,
				}}},
				{ChannelId: "a", Event: &parleyv1.ChannelEvent_Typing{Typing: &parleyv1.Typing{UserId: `auth0|"7`}}},
				{ChannelId: "b", Event: &parleyv1.ChannelEvent_Lost{Lost: &parleyv1.ChannelLost{
					Reason: parleyv1.LostReason_LOST_REASON_NOT_MEMBER,
				}}},
			}}}},
		},
		"info": {
			infoFrame("s1", &cfg),
			&parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Info{Info: &parleyv1.StreamInfo{
				StreamId: "s1", HeartbeatInterval: durationpb.New(15 * time.Second),
			}}},
		},
		"heartbeat": {
			frameOf(&fanout.Frame{Heartbeat: true}),
			&parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Heartbeat{Heartbeat: &parleyv1.Heartbeat{}}},
		},
		"reconnect": {
			frameOf(&fanout.Frame{Reconnect: time.Second}),
			&parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Reconnect{
				Reconnect: &parleyv1.Reconnect{Within: durationpb.New(time.Second)},
			}},
		},
		"nothing": {
			frameOf(&fanout.Frame{}),
			&parleyv1.SubscribeResponse{Frame: &parleyv1.SubscribeResponse_Events{Events: &parleyv1.EventBatch{}}},
		},
	}
}

func TestFramesInBothCodecs(t *testing.T) {
	t.Parallel()
	js := jsonCodec{"json", newJSONEvents()}
	for name, row := range frames() {
		for range 2 { // the second time from the cache
			for _, marshal := range []func() ([]byte, error){
				func() ([]byte, error) { return protoCodec{}.Marshal(row.frame) },
				func() ([]byte, error) { return protoCodec{}.MarshalAppend([]byte{}, row.frame) },
			} {
				data, err := marshal()
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				var got parleyv1.SubscribeResponse
				if err := proto.Unmarshal(data, &got); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if diff := cmp.Diff(row.want, &got, protocmp.Transform()); diff != "" {
					t.Errorf("%s as proto:\n%s", name, diff)
				}
			}
			data, err := js.MarshalAppend([]byte("before"), row.frame)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			text, ok := strings.CutPrefix(string(data), "before")
			if !ok {
				t.Errorf("%s: %s does not append", name, data)
			}
			var got parleyv1.SubscribeResponse
			if err := protojson.Unmarshal([]byte(text), &got); err != nil {
				t.Fatalf("%s: %v in %s", name, err, text)
			}
			if diff := cmp.Diff(row.want, &got, protocmp.Transform()); diff != "" {
				t.Errorf("%s as JSON:\n%s", name, diff)
			}
		}
	}
}

// The result of Marshal shares no memory with the frame, because connect puts it into a pool and
// overwrites it.
func TestFrameBytesAreCopied(t *testing.T) {
	t.Parallel()
	f := frameOf(&fanout.Frame{Pieces: [][]byte{Encoder{}.Event(someEvent(message.KindSend, "a", 1))}})
	head, before := string(f.head), string(f.pieces[0])
	for _, marshal := range []func() ([]byte, error){
		func() ([]byte, error) { return protoCodec{}.Marshal(f) },
		func() ([]byte, error) { return protoCodec{}.MarshalAppend(nil, f) },
	} {
		data, err := marshal()
		if err != nil {
			t.Fatal(err)
		}
		clear(data)
		if string(f.pieces[0]) != before || string(f.head) != head {
			t.Fatal("a part of the frame was handed out")
		}
	}
}

func TestJSONOncePerEvent(t *testing.T) {
	t.Parallel()
	j := newJSONEvents()
	p := Encoder{}.Event(someEvent(message.KindSend, "a", 1))
	var wg sync.WaitGroup
	results := make([]*byte, 50)
	for i := range results {
		wg.Go(func() {
			data, err := j.event(p)
			if err != nil {
				t.Error(err)
				return
			}
			results[i] = &data[0]
		})
	}
	wg.Wait()
	for _, r := range results {
		if r != results[0] {
			t.Fatal("one event was made into JSON more than once")
		}
	}
	// The cache of JSON is bounded in bytes and in number.
	big := someEvent(message.KindSend, "a", 2)
	big.Message.Content = strings.Repeat("x", 60_000)
	for range 300 {
		if _, err := j.event(Encoder{}.Event(big)); err != nil {
			t.Fatal(err)
		}
	}
	if j.bytes > maxJSONBytes || len(j.order) != len(j.byAddr) || len(j.order) > 150 {
		t.Errorf("keeps %d bytes of %d and %d events", j.bytes, len(j.order), len(j.byAddr))
	}
	for range 2 * maxJSONEvents {
		if _, err := j.event(Encoder{}.Event(someEvent(message.KindSend, "a", 3))); err != nil {
			t.Fatal(err)
		}
	}
	if len(j.order) > maxJSONEvents {
		t.Errorf("keeps %d events", len(j.order))
	}
	sum := 0
	for _, e := range j.byAddr {
		sum += e.size
	}
	if sum != j.bytes {
		t.Errorf("counts %d bytes of %d", j.bytes, sum)
	}
}

func TestMessagesInBothCodecs(t *testing.T) {
	t.Parallel()
	m := wireMessage("a", 1)
	for _, c := range []interface {
		Marshal(any) ([]byte, error)
		Unmarshal([]byte, any) error
		MarshalStable(any) ([]byte, error)
	}{protoCodec{}, jsonCodec{"json", newJSONEvents()}} {
		for _, marshal := range []func(any) ([]byte, error){c.Marshal, c.MarshalStable} {
			data, err := marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			var got parleyv1.ChannelMessage
			if err := c.Unmarshal(data, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(m, &got, protocmp.Transform()); diff != "" {
				t.Errorf("%T: %s", c, diff)
			}
		}
		if _, err := c.Marshal("no message"); err == nil {
			t.Errorf("%T marshals a string", c)
		}
		var bad parleyv1.ChannelMessage
		err := c.Unmarshal([]byte("\xff{"), &bad)
		if f, ok := fault.As(decodeError(&bad)); err != nil || !ok || f.Reason != fault.MalformedRequest {
			t.Errorf("%T: bad input gives %v, %v", c, err, f)
		}
	}
	if err := (jsonCodec{"json", newJSONEvents()}).Unmarshal([]byte(`{"isAdmin":true,"seq":"5"}`), m); err != nil || m.GetSeq() != 5 {
		t.Errorf("unknown field: %v", err)
	}
}
