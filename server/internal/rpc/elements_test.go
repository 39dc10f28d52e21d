package rpc

import (
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// The largest requests that keep the schema's limits have far fewer elements than are allowed, whatever their text holds.
func TestElements(t *testing.T) {
	t.Parallel()
	item := &parleyv1.SendMessageRequest{
		ChannelId: "a", Content: strings.Repeat(`{,[\"`, 600), ClientMsgId: "c", MsgType: "t", FromId: "f", Metadata: map[string]string{},
	}
	for i := range maxMetadataPairs {
		item.Metadata["k"+strconv.Itoa(i)] = `,\",`
	}
	batch, many, users := &parleyv1.SendMessagesRequest{}, &parleyv1.SubscribeRequest{}, &parleyv1.AddMembersRequest{}
	for range maxUserIDs {
		users.UserIds = append(users.UserIds, strings.Repeat(`[`, 128))
	}
	for range maxBatchItems {
		batch.Messages = append(batch.Messages, item)
		many.Channels = append(many.Channels, &parleyv1.ChannelPosition{ChannelId: "a", AfterSeq: proto.Int64(1), Epoch: "e"})
	}
	for _, m := range []proto.Message{batch, many, users} {
		data, text := marshal(t, m)
		if err := checkProtoElements(data, m.ProtoReflect().Descriptor()); err != nil {
			t.Errorf("%T: %v", m, err)
		}
		if err := checkJSONElements(text); err != nil {
			t.Errorf("%T as JSON: %v", m, err)
		}
	}
	// Within items and among what is not known they count too.
	for name, data := range map[string]string{
		"empty items": strings.Repeat("\x0a\x00", maxElements+1), "unknown fields": strings.Repeat("\x78\x00", maxElements+1),
		"entries of one item": "\x0a\xc0\xa9\x07" + strings.Repeat("\x2a\x00", 60_000),
	} {
		if err := checkProtoElements([]byte(data), batch.ProtoReflect().Descriptor()); err == nil {
			t.Errorf("%s: pass", name)
		}
	}
	for name, text := range map[string]string{
		"objects": `{"a":[` + strings.Repeat("{},", maxElements), "numbers": `[` + strings.Repeat("0,", maxElements), "depth": strings.Repeat("[", maxElements+1),
	} {
		if err := checkJSONElements([]byte(text)); err == nil {
			t.Errorf("%s: pass", name)
		}
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
