package server_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// Hostile input in the paths, headers, encodings and bodies of single requests.
//
// No request has a Struct, an Any or a Timestamp. Invalid numbers and deep nesting are therefore
// tested in unknown fields and number fields. Bad Timestamps and panics are tested in
// rpc/intercept.

// header returns an HTTP header with the given keys and values in turn.
func header(kv ...string) http.Header {
	h := make(http.Header)
	for i := 0; i < len(kv); i += 2 {
		h.Add(kv[i], kv[i+1])
	}
	return h
}

// good returns a message that would be accepted.
func good() *parleyv1.SendMessageRequest {
	return &parleyv1.SendMessageRequest{ChannelId: "room", Content: "this must not be stored"}
}

// zeros returns size zeros, compressed with gzip. Concatenated results form one gzip stream.
func zeros(size int) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(make([]byte, size)) // never fails: it writes to memory
	_ = w.Close()
	return out.Bytes()
}

// flip returns data with one bit changed, in the byte at index at. A negative at counts from the
// end.
func flip(data []byte, at int) []byte {
	out := bytes.Clone(data)
	if at < 0 {
		at += len(out)
	}
	out[at] ^= 1
	return out
}

type bombSet struct{ small, large []byte }

// bombs returns a body of 63 KiB that expands to 64 MiB, and one of 3.8 MiB that expands to 3.9
// GiB.
var bombs = sync.OnceValue(func() bombSet {
	small := zeros(64 << 20)
	return bombSet{small, bytes.Repeat(small, 61)}
})

// compressed declares gzip in the headers of every dialect.
var compressed = header("Content-Encoding", "gzip", "Connect-Content-Encoding", "gzip", "Grpc-Encoding", "gzip")

// gzipped returns a line's body that declares data to be compressed. It does not compress data.
func gzipped(procedure string, data []byte) func(*dialect, []byte) []byte {
	return func(d *dialect, _ []byte) []byte {
		if d.framed(procedure) {
			return prefixed(1, len(data), data)
		}
		return data
	}
}

// whole returns a line's body that is data in every dialect. It ignores the payload.
func whole(data []byte) func(*dialect, []byte) []byte {
	return func(*dialect, []byte) []byte { return data }
}

const (
	framedOnly = "grpc grpc-web"
	oneStatus  = 200 // of gRPC and of streams, which carry their code elsewhere
)

// getLines returns GET requests for calls of MessageService that change something.
func getLines() []line {
	var lines []line
	for _, procedure := range []string{
		sendMessages, editMessage, recall, updating, createChannel, addMembers, removeMembers, markRead, sendTyping,
	} {
		lines = append(lines, line{
			name: "GET on " + procedure, method: http.MethodGet, procedure: procedure, message: &parleyv1.SendTypingRequest{ChannelId: "room"},
			want: want{http: http.StatusMethodNotAllowed, library: true},
		})
	}
	return lines
}

func callLines() []line {
	const health, reflection = "/grpc.health.v1.Health/Check", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
	unknown := want{code: "unimplemented", reason: "UNIMPLEMENTED", http: http.StatusNotFound}
	return []line{
		{name: "unknown procedure", path: "/parley.v1.MessageService/DropTables", message: good(), open: true, want: unknown},
		{name: "unknown service", path: "/parley.v1.Nothing/Get", message: good(), open: true, want: unknown},
		{name: "no procedure", path: "/parley.v1.MessageService/", message: good(), open: true, want: unknown},
		{name: "GET on a mutating call", method: http.MethodGet, message: good(), want: want{http: http.StatusMethodNotAllowed, library: true}},
		{name: "PUT", method: http.MethodPut, message: good(), want: want{http: http.StatusMethodNotAllowed, library: true}},
		{name: "content type text/html", header: header("Content-Type", "text/html"), message: good(), want: want{http: http.StatusUnsupportedMediaType, library: true}},
		{name: "bidi over HTTP/1.1", path: reflection, message: good(), only: "connect-json connect-proto grpc-web", open: true, want: want{http: http.StatusHTTPVersionNotSupported, library: true}},

		{name: "timeout of letters", header: header("Connect-Timeout-Ms", "abc"), message: good(), only: "connect-json connect-proto", want: refused("invalid_argument")},
		{name: "timeout below zero", header: header("Connect-Timeout-Ms", "-1"), message: good(), only: "connect-json connect-proto", want: refused("invalid_argument")},
		{name: "timeout of 11 digits", header: header("Connect-Timeout-Ms", "12345678901"), message: good(), only: "connect-json connect-proto", want: refused("invalid_argument")},
		{name: "timeout zz", header: header("Grpc-Timeout", "zz"), message: good(), only: framedOnly, want: refused("invalid_argument")},
		{name: "timeout -1S", header: header("Grpc-Timeout", "-1S"), message: good(), only: framedOnly, want: refused("invalid_argument")},
		{name: "timeout of 9 digits", header: header("Grpc-Timeout", "123456789S"), message: good(), only: framedOnly, want: refused("invalid_argument")},
		{name: "protocol version 9", header: header("Connect-Protocol-Version", "9"), message: good(), only: "connect-json connect-proto", want: refused("invalid_argument")},
		{name: "protocol version 9 of a stream", procedure: subscribing, header: header("Connect-Protocol-Version", "9"), message: &parleyv1.SubscribeRequest{}, only: "connect-json connect-proto", want: refused("invalid_argument")},

		{name: "frame of 4 GiB to health", path: health, body: whole(prefixed(0, 0xffffffff, nil)), only: framedOnly, message: good(), open: true, want: refused("resource_exhausted")},
		{name: "bomb to health", path: health, header: compressed, message: good(), body: gzipped(sendMessage, bombs().small), open: true, want: refused("resource_exhausted")},
		{name: "not decodable by health", path: health, json: `{"service":5}`, binary: "\x0a\xff", open: true, want: refused("invalid_argument")},
		{name: "frame of 4 GiB to reflection", path: reflection, body: whole(prefixed(0, 0xffffffff, nil)), only: "grpc", message: good(), open: true, want: refused("resource_exhausted")},
	}
}

func bodyLines() []line {
	deepGroup := strings.Repeat("\x7b", 11_000) + strings.Repeat("\x7c", 11_000)
	tooLarge := &parleyv1.SendMessageRequest{ChannelId: "room", Content: strings.Repeat("x", 600<<10)}
	streamed := refused("invalid_argument")
	return []line{
		{name: "a field that nobody knows", json: `{"channel_id":"room","content":"x","isAdmin":true}`, want: unknownField("isAdmin")},
		{name: "another's field", json: `{"channel_id":"room","content":"x","seq":"99"}`, want: unknownField("seq")},
		{name: "the field of a prototype", json: `{"channel_id":"room","content":"x","__proto__":{"from_id":"root"}}`, want: unknownField("__proto__")},
		{name: "a name in another case", json: `{"channel_id":"room","content":"x","fromID":"root"}`, want: unknownField("fromID")},
		{name: "a field in a batch", procedure: sendMessages, json: `{"messages":[{"channel_id":"room","content":"x"},{"channel_id":"room","content":"x","admin":1}]}`, want: unknownField("messages[1].admin")},
		{name: "a misspelled list", procedure: removeMembers, json: `{"channel_id":"room","user_ids":["tester"],"userID":[]}`, want: unknownField("userID")},
		{name: "a name of escapes", json: `{"channel_id":"room","content":"x","\u001b[31m\u2028":1}`, want: unknownField("\x1b[31m\u2028")},
		{name: "truncated", json: `{"channel_id":"room","content":"x`, binary: "\x0a\x04roo", want: refused("invalid_argument")},
		{name: "truncated, of a stream", procedure: subscribing, json: `{"channels":[`, binary: "\x0a\x04roo", want: streamed},
		{name: "number for a string", json: `{"channel_id":5,"content":"x"}`, want: refused("invalid_argument")},
		{name: "number for a string, in binary", binary: "\x08\x05\x12\x01x", want: invalid("channel_id")},
		{name: "nothing at all", json: " ", want: refused("invalid_argument")},
		{name: "an empty message", binary: "\x12\x00", want: invalid("channel_id")},
		{name: "two objects", json: `{"channel_id":"room","content":"x"}{}`, want: refused("invalid_argument")},
		{name: "one name twice", json: `{"channel_id":"room","content":"x","content":"y"}`, want: refused("invalid_argument")},
		{name: "both of a field's names", json: `{"channel_id":"room","channelId":"room","content":"x"}`, want: refused("invalid_argument")},
		{name: "truncated varint", json: `{"channel_id"`, binary: "\x0a\xff", want: refused("invalid_argument")},
		{name: "varint of 11 bytes", binary: "\x0a" + strings.Repeat("\xff", 11), want: refused("invalid_argument")},
		{name: "length of 2^63", binary: "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", want: refused("invalid_argument")},
		{name: "field number 0", binary: "\x02\x01x", want: refused("invalid_argument")},
		{name: "lone surrogate", json: `{"channel_id":"room","content":"\ud800"}`, binary: "\x0a\x04room\x12\x03\xed\xa0\x80", want: refused("invalid_argument")},
		{name: "bytes that are no UTF-8", json: "{\"channel_id\":\"room\",\"content\":\"\xff\"}", binary: "\x0a\x04room\x12\x01\xff", want: refused("invalid_argument")},
		{name: "nested 11,000 deep", json: `{"x":` + strings.Repeat("[", 11_000) + strings.Repeat("]", 11_000) + `}`, binary: deepGroup, want: refused("invalid_argument")},
		{name: "nested 11,000 deep, of a stream", procedure: subscribing, json: `{"x":` + strings.Repeat(`{"x":`, 11_000) + "1" + strings.Repeat("}", 11_001), binary: deepGroup, want: streamed},
		{name: "NaN", procedure: listMessages, json: `{"channel_id":"room","after_seq":NaN}`, want: refused("invalid_argument")},
		{name: "NaN as text", procedure: listMessages, json: `{"channel_id":"room","after_seq":"NaN"}`, want: refused("invalid_argument")},
		{name: "infinite", procedure: listMessages, json: `{"channel_id":"room","after_seq":1e400}`, want: refused("invalid_argument")},
		{name: "half a seq", procedure: listMessages, json: `{"channel_id":"room","after_seq":1.5}`, want: refused("invalid_argument")},
		{name: "seq of 2^63", procedure: listMessages, json: `{"channel_id":"room","after_seq":"9223372036854775808"}`, want: refused("invalid_argument")},
		{name: "larger than is read", message: tooLarge, want: refused("resource_exhausted")},
	}
}

func frameLines() []line {
	promise := whole(prefixed(0, 0xffffffff, []byte("abc")))
	short := whole(prefixed(0, 9, []byte("abc")))
	cut := whole([]byte("\x00\x00\x00"))
	two := func(_ *dialect, payload []byte) []byte {
		return append(prefixed(0, len(payload), payload), prefixed(0, len(payload), payload)...)
	}
	flagged := func(flags byte) func(*dialect, []byte) []byte {
		return func(_ *dialect, payload []byte) []byte { return prefixed(flags, len(payload), payload) }
	}
	inside := want{code: "internal", reason: "MALFORMED_REQUEST", http: oneStatus}
	large, one := refused("resource_exhausted"), refused("unimplemented")
	none := &parleyv1.SubscribeRequest{}
	return []line{
		{name: "frame of 4 GiB", body: promise, message: good(), only: framedOnly, want: refused("resource_exhausted")},
		{name: "frame of 4 GiB of a stream", procedure: subscribing, body: promise, message: none, want: large},
		{name: "frame shorter than promised", body: short, message: good(), only: framedOnly, want: refused("internal")},
		{name: "frame shorter than promised, of a stream", procedure: subscribing, body: short, message: none, want: inside},
		{name: "half a prefix", body: cut, message: good(), only: framedOnly, want: refused("internal")},
		{name: "half a prefix, of a stream", procedure: subscribing, body: cut, message: none, want: inside},
		{name: "compressed without an encoding", body: flagged(1), message: good(), only: framedOnly, want: refused("internal")},
		{name: "compressed without an encoding, of a stream", procedure: subscribing, body: flagged(1), message: liveOnly("room"), want: inside},
		{name: "flags of nothing known", body: flagged(0x7e), message: good(), only: framedOnly, want: refused("internal")},
		{name: "an end before the message", procedure: subscribing, body: flagged(2), message: liveOnly("room"), want: inside, only: "connect-json grpc grpc-web", by: map[string]want{"connect-json": one}},
		{name: "trailers before the message", procedure: subscribing, body: flagged(0x80), message: liveOnly("room"), want: inside, by: map[string]want{"grpc-web": one}},
		{name: "no message", body: whole(nil), message: good(), only: framedOnly, want: refused("unimplemented")},
		{name: "no message, of a stream", procedure: subscribing, body: whole(nil), message: none, want: one},
		{name: "two messages", body: two, message: good(), only: framedOnly, want: refused("unimplemented")},
		{name: "two messages, of a stream", procedure: subscribing, body: two, message: none, want: one},
	}
}

// liveOnly returns a request for a channel's live events.
func liveOnly(channel string) *parleyv1.SubscribeRequest {
	return &parleyv1.SubscribeRequest{Channels: []*parleyv1.ChannelPosition{live(channel)}}
}

func gzipLines() []line {
	b := bombs()
	garbage := []byte("this is not gzip")
	unknown := header("Content-Encoding", "lzma", "Connect-Content-Encoding", "lzma", "Grpc-Encoding", "lzma")
	half := b.small[:len(b.small)/2]
	large := refused("resource_exhausted")
	get := func(message string) string {
		return "/parley.v1.MessageService/ListMessages?connect=v1&base64=1&compression=gzip&encoding=proto&message=" + url.QueryEscape(message)
	}
	return []line{
		{name: "not gzip", header: compressed, body: gzipped(sendMessage, garbage), message: good(), want: refused("invalid_argument")},
		{name: "not gzip, of a stream", procedure: subscribing, header: compressed, body: gzipped(subscribing, garbage), message: good(), want: refused("invalid_argument")},
		{name: "gzip that ends early", header: compressed, body: gzipped(sendMessage, zeros(1000)[:20]), message: good(), want: refused("invalid_argument")},
		{name: "gzip with a wrong sum", header: compressed, body: gzipped(sendMessage, flip(zeros(1000), -5)), message: good(), want: refused("invalid_argument")},
		{name: "gzip that is damaged", header: compressed, body: gzipped(sendMessage, flip(zeros(1000), 12)), message: good(), want: refused("invalid_argument")},
		{name: "unknown compression", header: unknown, body: gzipped(sendMessage, garbage), message: good(), want: refused("unimplemented")},
		{name: "bomb of 63 KiB to 64 MiB", header: compressed, body: gzipped(sendMessage, b.small), message: good(), want: refused("resource_exhausted")},
		{name: "bomb to the largest limit", procedure: sendMessages, header: compressed, body: gzipped(sendMessages, b.small), message: good(), want: refused("resource_exhausted")},
		{name: "bomb to a stream", procedure: subscribing, header: compressed, body: gzipped(subscribing, b.small), message: good(), want: large},
		{name: "bomb that is cut", procedure: sendMessages, header: compressed, body: gzipped(sendMessages, half), message: good(), want: refused("resource_exhausted")},
		{name: "bomb of 3.8 MiB to 3.9 GiB", procedure: sendMessages, header: compressed, body: gzipped(sendMessages, b.large), message: good(), want: refused("resource_exhausted")},
		{name: "bomb of 1.9 MiB to 1.9 GiB", procedure: sendMessages, header: compressed, body: gzipped(sendMessages, b.large[:len(b.large)/2]), message: good(), want: refused("resource_exhausted")},
		{name: "GET with a message that is no base64", method: http.MethodGet, path: get("%%%"), message: good(), only: "connect-proto", want: want{code: "invalid_argument", reason: "MALFORMED_REQUEST", field: "message"}},
		{name: "GET with base64 that is cut", method: http.MethodGet, path: get("QQ="), message: good(), only: "connect-proto", want: want{code: "invalid_argument", reason: "MALFORMED_REQUEST", field: "message"}},
		{name: "GET without a message", method: http.MethodGet, path: "/parley.v1.MessageService/ListMessages?connect=v1&encoding=json", message: good(), only: "connect-proto", want: want{code: "invalid_argument", reason: "MALFORMED_REQUEST", field: "message"}},
		{name: "GET in an unknown encoding", method: http.MethodGet, path: "/parley.v1.MessageService/ListMessages?connect=v1&message={}&encoding=" + url.QueryEscape("x\r\nSet-Cookie: a"), message: good(), only: "connect-proto", want: want{http: http.StatusUnsupportedMediaType, library: true}},
		{name: "GET with a message that is no gzip", method: http.MethodGet, path: get(base64.RawURLEncoding.EncodeToString(garbage)), message: good(), only: "connect-proto", want: refused("invalid_argument")},
		{name: "GET with a bomb", method: http.MethodGet, path: get(base64.RawURLEncoding.EncodeToString(zeros(8 << 20))), message: good(), only: "connect-proto", want: refused("resource_exhausted")},
	}
}

// TestHostileTransport checks that requests with bad paths, headers, encodings or bodies get the
// right error and store nothing. It is not parallel: it measures each call's processor time.
func TestHostileTransport(t *testing.T) { //nolint:paralleltest // it measures processor time, which all tests share
	g := attack(t, nil)
	g.run(callLines())
	g.run(getLines())
	g.run(bodyLines())
	g.run(frameLines())
	g.run(gzipLines())
}
