package message

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"testing"
	"time"
)

func eventSeeds(f *testing.F) [][]byte {
	f.Helper()
	m := Message{
		MsgID: "m", ChannelID: "room", Seq: 1, Count: 1, FromID: "auth0|42", MsgType: "text", Content: "\u2028\x01é",
		Metadata: map[string]string{"k": "v"}, ClientMsgID: "c", MsgTime: time.UnixMilli(1_700_000_000_123).UTC(), ChangedSeq: 1,
	}
	var seeds [][]byte
	for kind := KindSend; kind <= KindAccess; kind++ {
		m.Status = kind.After()
		if kind == KindSend {
			m.Status = StatusOpen
		}
		for _, v := range []any{
			Event{Kind: kind, Epoch: "e", Seq: 2, Count: 1, Time: m.MsgTime, Message: m, Traceparent: "00-a-b-01"},
			Cached{Epoch: "e", Message: m},
		} {
			data, err := json.Marshal(v)
			if err != nil {
				f.Fatal(err)
			}
			seeds = append(seeds, data, data[:len(data)/2], bytes.Replace(data, []byte("2023"), []byte("20230"), 1))
		}
	}
	return append(seeds, []byte(`{"event_type":"fly"}`), []byte(`{"seq":1e99}`), []byte(`null`), []byte(`[]`), []byte(`{"metadata":{"a":null}}`))
}

// An event that can be decoded is encoded so that it decodes to the same event.
func FuzzEvent(f *testing.F) {
	for _, seed := range eventSeeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) { roundTrip[Event](t, data) })
}

var plainEpoch = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// A cached value that can be decoded is encoded so that it decodes to the same value. It begins
// with CachedHead and ends with its changed_seq, as the scripts of the cache expect.
func FuzzCached(f *testing.F) {
	for _, seed := range eventSeeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, out := roundTrip[Cached](t, data)
		if out == nil || !plainEpoch.MatchString(c.Epoch) {
			return
		}
		head, tail := fmt.Sprint(CachedHead(c.Epoch), c.Message.Seq, ","), fmt.Sprintf(`"changed_seq":%d}`, c.Message.ChangedSeq)
		if !bytes.HasPrefix(out, []byte(head)) || !bytes.HasSuffix(out, []byte(tail)) {
			t.Fatalf("%s does not begin with %s and end with %s", out, head, tail)
		}
	})
}

// roundTrip decodes data, encodes the result, and does both again. It fails the test unless both
// encodings are equal. It returns nil bytes for data that cannot be decoded.
func roundTrip[T any](t *testing.T, data []byte) (T, []byte) {
	t.Helper()
	var first, second T
	if json.Unmarshal(data, &first) != nil {
		return first, nil
	}
	one, err := json.Marshal(first)
	if err != nil {
		t.Fatalf("%s is read as %+v, which can't be written: %v", data, first, err)
	}
	if err := json.Unmarshal(one, &second); err != nil {
		t.Fatalf("%s is written as %s, which can't be read: %v", data, one, err)
	}
	two, err := json.Marshal(second)
	if err != nil || !bytes.Equal(one, two) {
		t.Fatalf("%s is written as %s, then as %s: %v", data, one, two, err)
	}
	return first, one
}
