package rpc

import (
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// The largest requests within the schema's limits are below the bound on fields and values,
// regardless of the characters in their strings.
func TestElementLimit(t *testing.T) {
	t.Parallel()
	item := &parleyv1.SendMessageRequest{
		ChannelId: "a", Content: strings.Repeat(`{,[\"`, 600), ClientMsgId: "c", MsgType: "t", FromId: "f", Metadata: map[string]string{},
	}
	for i := range 16 {
		item.Metadata["k"+strconv.Itoa(i)] = `,\",`
	}
	batch, many, users := &parleyv1.SendMessagesRequest{}, &parleyv1.SubscribeRequest{}, &parleyv1.AddMembersRequest{}
	for range mostUsers {
		users.Members = append(users.Members, &parleyv1.ChannelMember{
			UserId: strings.Repeat(`[`, 128), Role: parleyv1.MemberRole_MEMBER_ROLE_MEMBER,
		})
	}
	for range 500 {
		batch.Messages = append(batch.Messages, item)
		many.Channels = append(many.Channels, &parleyv1.ChannelPosition{ChannelId: "a", AfterSeq: proto.Int64(1), Epoch: "e"})
	}
	for _, m := range append([]proto.Message{batch, many, users}, largestOfQueues()...) {
		data, text := marshal(t, m)
		if err := checkProtoElements(data, m.ProtoReflect().Descriptor(), elementsOf(m)); err != nil {
			t.Errorf("%T: %v", m, err)
		}
		if err := checkJSONElements(text); err != nil {
			t.Errorf("%T as JSON: %v", m, err)
		}
	}
	// Fields within items and unknown fields are counted too.
	for name, data := range map[string]string{
		"empty items": strings.Repeat("\x0a\x00", defaultElements+1), "unknown fields": strings.Repeat("\x78\x00", defaultElements+1),
		"entries of one item": "\x0a\xc0\xa9\x07" + strings.Repeat("\x2a\x00", 60_000),
	} {
		if err := checkProtoElements([]byte(data), batch.ProtoReflect().Descriptor(), elementsOf(batch)); err == nil {
			t.Errorf("%s: pass", name)
		}
	}
	for name, text := range map[string]string{
		"objects": `{"a":[` + strings.Repeat("{},", defaultElements), "numbers": `[` + strings.Repeat("0,", defaultElements), "depth": strings.Repeat("[", defaultElements+1),
	} {
		if err := checkJSONElements([]byte(text)); err == nil {
			t.Errorf("%s: pass", name)
		}
	}
}

func elementsOf(m proto.Message) int {
	return api.forRequest(m.ProtoReflect().Descriptor().FullName()).maxElements
}

// mostUsers and mostItems are the schema's maximum of users in a request, and of items in a request
// about queues.
const mostUsers, mostItems = 500, 1000

// largestOfQueues returns requests about queues with as many items as the schema allows, each with
// all its fields.
func largestOfQueues() []proto.Message {
	headers := make(map[string]string)
	for i := range 32 {
		headers["h"+strconv.Itoa(i)] = "{"
	}
	second := &durationpb.Duration{Seconds: 1, Nanos: 1}
	m := &parleyv1.QueueMessage{
		Key: "k", Payload: []byte("p"), Headers: headers, IdempotencyKey: "i", MaxAttempts: proto.Int32(1), Timeout: second, Ttl: second,
		Due:    &parleyv1.QueueMessage_Delay{Delay: second},
		Unique: &parleyv1.Unique{Key: "u", OnConflict: parleyv1.Unique_ON_CONFLICT_KEEP, WhileRunning: true, AtMost: second},
	}
	produce := &parleyv1.ProduceRequest{Topic: "t"}
	nack := &parleyv1.NackRequest{SessionId: "s"}
	ack := &parleyv1.AckRequest{SessionId: "s", Tokens: make([]string, mostItems)}
	replay := &parleyv1.ReplayDeadLettersRequest{Topic: "t", Selection: &parleyv1.DeadLetterSelection{
		Selection: &parleyv1.DeadLetterSelection_Ids{Ids: &parleyv1.DeadLetterIds{DeadLetterIds: make([]string, mostItems)}},
	}}
	for range mostItems {
		produce.Messages = append(produce.Messages, m)
		nack.Items = append(nack.Items, &parleyv1.NackItem{
			Token: "t", Reason: ",", Code: "c",
			Outcome: &parleyv1.NackItem_Retry{Retry: &parleyv1.NackRetry{Delay: second}},
		})
	}
	return []proto.Message{
		produce, nack, ack, replay,
		&parleyv1.StreamingConsumeRequest{Request: &parleyv1.StreamingConsumeRequest_Nack{Nack: nack}},
	}
}

func marshal(t *testing.T, m proto.Message) (data, text []byte) {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if text, err = protojson.Marshal(m); err != nil {
		t.Fatal(err)
	}
	return data, text
}
