package produce

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// The body of a message must be fields of a delivery, as clients decode it.
func TestABodyIsADelivery(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1000)
	for _, m := range []Message{
		{},
		{Key: "k", Payload: []byte("hello"), Headers: map[string]string{"a": "1", "traceparent": "00-1", "empty": ""}},
		{Payload: bytes.Repeat([]byte{0xff}, 256<<10), Headers: map[string]string{long: long, "b": strings.Repeat("y", 20000)}},
	} {
		body, _ := m.encode(nil)
		v1, next := &parleyv1.Delivery{}, &parleyv1.Delivery{}
		for _, d := range []proto.Message{v1, next} {
			if err := proto.Unmarshal(body, d); err != nil {
				t.Fatal(err)
			}
			if len(d.ProtoReflect().GetUnknown()) > 0 {
				t.Errorf("%T has unknown fields", d)
			}
		}
		if !proto.Equal(v1, &parleyv1.Delivery{Key: m.Key, Payload: m.Payload, Headers: m.Headers}) ||
			!proto.Equal(next, &parleyv1.Delivery{Key: m.Key, Payload: m.Payload, Headers: m.Headers}) {
			t.Errorf("a body of %d bytes decodes as another message", len(body))
		}
	}
}

// A repeat has a trace of its own, which must not make it another message.
func TestTraceHeadersAreNoContent(t *testing.T) {
	t.Parallel()
	plain := Message{Key: "k", Payload: []byte("p"), Headers: map[string]string{"a": "1"}}
	body, n := plain.encode(nil)
	traced, m := plain.encode(map[string]string{"traceparent": "00-1", "tracestate": "s"})
	if n != m || n != len(body) || !bytes.Equal(body[:n], traced[:m]) {
		t.Errorf("content of %d of %d bytes, and of %d of %d", n, len(body), m, len(traced))
	}
	d := &parleyv1.Delivery{}
	if err := proto.Unmarshal(traced, d); err != nil || d.GetHeaders()["traceparent"] != "00-1" || d.GetHeaders()["tracestate"] != "s" || len(d.GetHeaders()) != 3 {
		t.Errorf("headers %v, %v", d.GetHeaders(), err)
	}
	own := Message{Headers: map[string]string{"traceparent": "00-own"}}
	body, _ = own.encode(map[string]string{"traceparent": "00-1", "tracestate": "s"})
	d.Reset()
	if err := proto.Unmarshal(body, d); err != nil || d.GetHeaders()["traceparent"] != "00-own" || len(d.GetHeaders()) != 1 {
		t.Errorf("headers %v, %v", d.GetHeaders(), err)
	}
}
