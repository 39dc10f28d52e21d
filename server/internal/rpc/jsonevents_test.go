package rpc

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fanout"
	"github.com/parleyhq/parley/server/internal/message"
)

// The hub joins the events of a replay, and a state and its gap, into one encoded piece. As JSON
// they are separate events again.
func TestJSONOfConcatenatedPieces(t *testing.T) {
	t.Parallel()
	e := Encoder{}
	piece := e.State("room", 3, message.State{Epoch: "e", Head: 9}, false)
	piece = append(piece, e.Gap("room", 3, 9, "e", fanout.GapEpochChanged)...)
	piece = append(piece, e.Event(&message.Event{Seq: 10, Message: message.Message{ChannelID: "room", Seq: 10, Content: "x", MsgTime: someTime}})...)
	last := e.Event(&message.Event{Seq: 11, Message: message.Message{ChannelID: "room", Seq: 11, MsgTime: someTime}})
	f := frameOf(&fanout.Frame{Pieces: [][]byte{piece, last}})
	codec := jsonCodec{"json", newJSONEvents()}
	text, err := codec.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := protoCodec{}.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var fromJSON, fromProto parleyv1.SubscribeResponse
	if err := protojson.Unmarshal(text, &fromJSON); err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(data, &fromProto); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&fromProto, &fromJSON, protocmp.Transform()); diff != "" || len(fromJSON.GetEvents().GetEvents()) != 4 {
		t.Errorf("%d events: %s", len(fromJSON.GetEvents().GetEvents()), diff)
	}
	if n := len(codec.events.byAddr); n != 1 {
		t.Errorf("%d pieces are kept: one stream's replay must not take the place of what is shared", n)
	}
}
