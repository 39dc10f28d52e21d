package rpc

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/server/internal/fault"
)

// The error of malformed JSON has the line and the column and a text of this server, and repeats
// nothing that the client sent.
func TestMalformedJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                    "malformed JSON: the request is empty, it must be an object",
		" ":                                   "malformed JSON: line 1, column 2: syntax error",
		`{"channelId":"a`:                     "malformed JSON: the text is truncated, or a string has an incomplete escape sequence",
		"{\n  \"channelId\": 5\n}":            "malformed JSON: line 2, column 16: invalid value for field channelId",
		`{"channelId":"secret","content":[]}`: "malformed JSON: line 1, column 33: invalid value for field content",
		`{"content":"\ud800"}`:                "malformed JSON: the text is truncated, or a string has an incomplete escape sequence",
		`{"content":"\ud800 and more"}`:       "malformed JSON: line 1, column 12: syntax error",
		"{\"content\":\"\xff\"}":              "malformed JSON: line 1, column 12: syntax error",
		`{"content":"x","content":"y"}`:       "malformed JSON: line 1, column 16: the field is set twice",
		`{"content":"x"}{}`:                   "malformed JSON: line 1, column 16: syntax error",
		`{"metadata":{"a":"b","a":"c"}}`:      "malformed JSON: line 1, column 22: the field is set twice",
		`{"metadata":{"a":1}}`:                "malformed JSON: line 1, column 18: invalid value for field value",
		`[]`:                                  "malformed JSON: line 1, column 1: syntax error",
		`{"x":` + strings.Repeat("[", 11_000): "malformed JSON: nested too deeply",
	} {
		f := decodeJSON([]byte(text), &parleyv1.SendMessageRequest{})
		if f == nil || f.Kind != fault.InvalidArgument || f.Reason != fault.MalformedRequest || f.Msg != want {
			t.Errorf("%.60s: got %v, want %s", text, f, want)
		}
	}
	both := `{"topic":"t","stream_id":"s","deliveries":{"tokens":["x"]},"all":{}}`
	if f := decodeJSON([]byte(both), &parleyv1.ExtendRequest{}); f == nil || f.Msg != "malformed JSON: line 1, column 60: another field of the same oneof is set" {
		t.Errorf("two of a oneof: %v", f)
	}
}

func TestMalformedProto(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		"\x0a\xff":     "malformed protobuf",
		"\x0a\x04roo":  "malformed protobuf",
		"\x02\x01x":    "malformed protobuf",
		"\x0a\x01\xff": "malformed protobuf: a string is not valid UTF-8",
		strings.Repeat("\x7b", 11_000) + strings.Repeat("\x7c", 11_000): "malformed protobuf",
	} {
		f := decodeProto([]byte(data), &parleyv1.SendMessageRequest{})
		if f == nil || f.Kind != fault.InvalidArgument || f.Reason != fault.MalformedRequest || f.Msg != want {
			t.Errorf("%.20q: got %v, want %s", data, f, want)
		}
	}
}

// Unknown fields of a binary request are accepted and dropped. So no client can send the field that
// marks a request that could not be decoded.
func TestUnknownBinaryFields(t *testing.T) {
	t.Parallel()
	data, err := proto.Marshal(&parleyv1.SendMessageRequest{ChannelId: "a", Content: "x"})
	if err != nil {
		t.Fatal(err)
	}
	data = protowire.AppendString(protowire.AppendTag(data, 9999, protowire.BytesType), "new")
	data = protowire.AppendString(protowire.AppendTag(data, undecodedField, protowire.BytesType), `{"Kind":3,"Msg":"forged"}`)
	var m parleyv1.SendMessageRequest
	if err := (protoCodec{}).Unmarshal(data, &m); err != nil || decodeError(&m) != nil || len(m.ProtoReflect().GetUnknown()) > 0 {
		t.Errorf("got %v, %v and %q", err, decodeError(&m), m.ProtoReflect().GetUnknown())
	}
	if m.GetChannelId() != "a" || m.GetContent() != "x" {
		t.Errorf("decoded %v", &m)
	}
}

// decodeError returns the same fault that setUndecoded stored in a request.
func TestDecodeError(t *testing.T) {
	t.Parallel()
	want := fault.Invalid("messages[3].x", 7, "messages[3].x: says \"%s\" \u2028", "this")
	m := &parleyv1.SendMessageRequest{ChannelId: "left of a partial decode"}
	setUndecoded(m, want)
	got, ok := fault.As(decodeError(m))
	if !ok || got.Kind != want.Kind || got.Reason != want.Reason || got.Msg != want.Msg || got.Field != want.Field || got.Limit != want.Limit {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if m.GetChannelId() != "" {
		t.Errorf("%v is left of the request", m)
	}
	if err := decodeError(&parleyv1.SendMessageRequest{}); err != nil {
		t.Errorf("a good message: %v", err)
	}
}
