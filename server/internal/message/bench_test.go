package message

import (
	"strings"
	"testing"
	"time"
)

// BenchmarkEvent encodes and decodes an event, which happens to every message twice between store
// and subscriber.
func BenchmarkEvent(b *testing.B) {
	at := time.UnixMilli(1_700_000_000_123).UTC()
	event := Event{Kind: KindSend, Epoch: "0123456789abcdef", Seq: 123_456, Count: 123_456, Time: at, Message: Message{
		MsgID: "01890a5d-ac96-774b-bcce-000000000001", ChannelID: "room", Seq: 123_456, Count: 123_456, FromID: "auth0|42",
		MsgType: "text", Content: strings.Repeat("x", 128), ClientMsgID: "01890a5d-ac96-774b-bcce-000000000002", MsgTime: at,
		ChangedSeq: 123_456,
	}}
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := event.MarshalJSON(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		data, err := event.MarshalJSON()
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			var e Event
			if err := e.UnmarshalJSON(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
