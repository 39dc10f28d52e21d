package server_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// Hostile transport input for the two queue services, where it differs from
// hostile_transport_test.go: decoding, frames, compression and GET of their calls. Headers and
// connections belong to no call in particular.

// queuePathLines returns requests for unknown procedures, with other HTTP methods, and for
// bidirectional streams over HTTP/1.1.
func queuePathLines() []line {
	servicePath := func(procedure string) string { return strings.TrimSuffix(pathOf(procedure), procedure) }
	unknown := want{code: "unimplemented", reason: "UNIMPLEMENTED", http: http.StatusNotFound}
	none := want{http: http.StatusMethodNotAllowed, library: true}
	lines := []line{
		{name: "unknown procedure of queues", path: servicePath(produce) + "DropTables", message: good(), open: true, want: unknown},
		{name: "unknown procedure of operators", path: servicePath(createTopic) + "DropTables", message: good(), open: true, want: unknown},
		{name: "a procedure of another service", path: servicePath(produce) + createTopic, message: good(), open: true, want: unknown},
		{name: "a call that there is not", path: servicePath(createTopic) + "DeleteAuditEntries", message: good(), open: true, want: unknown},
		{name: "both ways over HTTP/1.1", path: pathOf(streamingConsume), message: queueCalls[streamingConsume]("jobs", "g"), only: "connect-json connect-proto grpc-web", want: want{http: http.StatusHTTPVersionNotSupported, library: true}},
	}
	for procedure, request := range allQueueCalls() {
		opts, _ := methods()[procedure].Options().(*descriptorpb.MethodOptions)
		if opts.GetIdempotencyLevel() != descriptorpb.MethodOptions_NO_SIDE_EFFECTS && procedure != streamingConsume {
			lines = append(lines, line{name: "GET on " + procedure, method: http.MethodGet, procedure: procedure, message: request("jobs", "g"), want: none})
		}
	}
	get := func(message string) string {
		return pathOf("GetTopic") + "?connect=v1&base64=1&encoding=proto&message=" + url.QueryEscape(message)
	}
	return append(lines,
		line{name: "GET with a message that is no base64", method: http.MethodGet, path: get("%%%"), message: good(), only: "connect-proto", want: want{code: "invalid_argument", reason: "MALFORMED_REQUEST", field: "message"}},
		line{name: "GET of a bad name", method: http.MethodGet, path: pathOf("GetTopic") + "?connect=v1&encoding=json&message=" + url.QueryEscape(`{"topic":"{x}"}`), message: good(), only: "connect-proto", want: invalid("topic")},
	)
}

// queueBodyLines returns requests with bodies that cannot be decoded or are too large.
func queueBodyLines() []line {
	broken, large := refused("invalid_argument"), refused("resource_exhausted")
	streamed := want{code: "invalid_argument", reason: "MALFORMED_REQUEST"}
	elements := want{code: "resource_exhausted", reason: "TOO_LARGE", limit: 120_100}
	deepGroup := strings.Repeat("\x7b", 11_000) + strings.Repeat("\x7c", 11_000)
	const jobs = "\x0a\x04jobs"
	// One message with 900 kB of headers that have no name or value.
	headers := jobs + "\x12\xa0\xf7\x36" + strings.Repeat("\x1a\x00", 450_000)
	return []line{
		{name: "truncated", procedure: produce, json: `{"topic":"jobs","messages":[{`, binary: jobs + "\x12\x09\x0a", want: broken},
		{name: "truncated topic", procedure: createTopic, json: `{"topic":{"name":"new"`, binary: "\x0a\x09\x0a\x03new", want: broken},
		{name: "truncated, of a stream", procedure: consume, json: `{"topics":`, binary: "\x0a\x04jo", want: streamed},
		{name: "truncated, both ways", procedure: streamingConsume, binary: "\x12\x04\x0a", want: streamed},
		{name: "a number for a topic", procedure: produce, json: `{"topic":5}`, want: broken},
		{name: "a word for a batch", procedure: produce, json: `{"topic":"jobs","messages":"all"}`, want: broken},
		{name: "a query for a token", procedure: ack, json: `{"sessionId":"s","tokens":[{"$gt":""}]}`, want: broken},
		{name: "text that is no base64 for a payload", procedure: produce, json: `{"topic":"jobs","messages":[{"payload":"%%%"}]}`, want: broken},
		{name: "a word for concurrency", procedure: consume, json: `{"topics":["jobs"],"group":"g","consumer":"c","concurrency":"all"}`, want: streamed},
		{name: "a list for a partitioner", procedure: createTopic, json: `{"topic":{"name":"new","partitioner":[1]}}`, want: broken},
		{name: "a partitioner that there is not", procedure: createTopic, json: `{"topic":{"name":"new","partitioner":"HASH"}}`, want: invalid("topic.partitioner")},
		{name: "a state that there is not", procedure: listJobs, json: `{"topic":"jobs","group":"g","state":"OLDEST"}`, want: invalid("state")},
		{name: "truncated varint", procedure: produce, binary: "\x0a\xff", want: broken},
		{name: "length of 2^63", procedure: createTopic, binary: "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", want: broken},
		{name: "lone surrogate", procedure: produce, json: `{"topic":"jobs","messages":[{"key":"\ud800"}]}`, binary: jobs + "\x12\x05\x0a\x03\xed\xa0\x80", want: broken},
		{name: "a header that is no UTF-8", procedure: produce, json: "{\"topic\":\"jobs\",\"messages\":[{\"headers\":{\"a\":\"\xff\"}}]}", binary: jobs + "\x12\x08\x1a\x06\x0a\x01a\x12\x01\xff", want: broken},
		{name: "a reason that is no UTF-8", procedure: nack, binary: "\x0a\x01s\x12\x03\x12\x01\xff", want: broken},
		{name: "nested 11,000 deep", procedure: createTopic, json: `{"x":` + strings.Repeat("[", 11_000) + strings.Repeat("]", 11_000) + `}`, binary: deepGroup, want: broken},
		{name: "nested 11,000 deep, of a stream", procedure: consume, json: `{"x":` + strings.Repeat("[", 11_000) + strings.Repeat("]", 11_000) + `}`, binary: deepGroup, want: streamed},
		{name: "NaN", procedure: updateSession, json: `{"sessionId":"s","concurrency":NaN}`, want: broken},
		{name: "half a message", procedure: updateSession, json: `{"sessionId":"s","concurrency":1.5}`, want: broken},
		{name: "2^63 bytes", procedure: updateSession, json: `{"sessionId":"s","maxInFlightBytes":"9223372036854775808"}`, want: broken},
		{name: "2^31 messages", procedure: receive, json: `{"topic":"jobs","group":"g","maxMessages":2147483648}`, want: broken},
		{name: "larger than is read", procedure: createTopic, message: &parleyv1.CreateTopicRequest{Topic: &parleyv1.Topic{Name: strings.Repeat("x", 70<<10)}}, want: refused("resource_exhausted")},
		{name: "larger than a batch may be", procedure: produce, message: &parleyv1.ProduceRequest{Topic: strings.Repeat("x", 2<<20)}, want: refused("resource_exhausted")},
		{name: "larger than a stream's request may be", procedure: consume, message: &parleyv1.ConsumeRequest{Topics: []string{strings.Repeat("x", 2<<20)}}, want: want{code: "resource_exhausted", reason: "TOO_LARGE"}},
		{name: "a million messages of nothing", procedure: produce, binary: jobs + strings.Repeat("\x12\x00", 1_000_000), json: `{"topic":"jobs","messages":[{}` + strings.Repeat(",{}", 600_000) + "]}", want: large},
		{name: "100,000 messages of nothing", procedure: produce, binary: jobs + strings.Repeat("\x12\x00", 100_000), json: `{"topic":"jobs","messages":[{}` + strings.Repeat(",{}", 24_000) + "]}", want: over("messages", 1000)},
		{name: "a million ids of nothing", procedure: cancelMessages, binary: jobs + strings.Repeat("\x12\x00", 1_000_000), want: large},
		{name: "a million topics of nothing", procedure: consume, binary: strings.Repeat("\x0a\x00", 1_000_000), want: elements},
		{name: "a million tokens of nothing", procedure: ack, binary: strings.Repeat("\x12\x00", 1_000_000), want: large},
		{name: "49,000 items of nothing", procedure: nack, binary: "\x0a\x01s" + strings.Repeat("\x12\x00", 49_000), want: over("items", 1000)},
		{name: "a million headers of nothing", procedure: produce, binary: headers, want: large},
		{name: "a million items of nothing, both ways", procedure: streamingConsume, binary: "\x22\x80\x89\x7a" + strings.Repeat("\x0a\x00", 1_000_000), want: elements},
	}
}

// queueFrameLines returns requests with bad frames or bad compression.
func queueFrameLines() []line {
	b := bombs()
	inside := want{code: "internal", reason: "MALFORMED_REQUEST", http: oneStatus}
	large := want{code: "resource_exhausted", reason: "TOO_LARGE"}
	one := want{code: "unimplemented", reason: "UNIMPLEMENTED"}
	garbage := []byte("this is not gzip")
	two := func(_ *dialect, payload []byte) []byte {
		return append(prefixed(0, len(payload), payload), prefixed(0, len(payload), payload)...)
	}
	flagged := func(_ *dialect, payload []byte) []byte { return prefixed(1, len(payload), payload) }
	lines := []line{
		{name: "two messages", procedure: produce, body: two, message: queueCalls[produce]("jobs", "g"), only: framedOnly, want: refused("unimplemented")},
		{name: "two messages, of a stream", procedure: consume, body: two, message: queueCalls[consume]("jobs", "g"), want: one},
		{name: "no message", procedure: createTopic, body: whole(nil), message: good(), only: framedOnly, want: refused("unimplemented")},
		{name: "no message, of a stream", procedure: consume, body: whole(nil), message: good(), want: one},
		{name: "no message, both ways", procedure: streamingConsume, body: whole(nil), message: good(), want: want{code: "invalid_argument", reason: "MALFORMED_REQUEST"}},
		{name: "bomb to a batch", procedure: produce, header: compressed, body: gzipped(produce, b.small), message: good(), want: refused("resource_exhausted")},
		{name: "bomb of 1.9 MiB to a batch", procedure: produce, header: compressed, body: gzipped(produce, b.large[:len(b.large)/2]), message: good(), want: refused("resource_exhausted")},
	}
	for procedure, request := range map[string]proto.Message{
		produce: queueCalls[produce]("jobs", "g"), createTopic: adminCalls[createTopic]("new", ""), consume: queueCalls[consume]("jobs", "g"), streamingConsume: queueCalls[streamingConsume]("jobs", "g"),
	} {
		add := func(name, only string, unary, stream want, body func(*dialect, []byte) []byte, h http.Header) {
			w := unary
			if streams(procedure) {
				w, only = stream, ""
			}
			lines = append(lines, line{name: name + " to " + procedure, procedure: procedure, message: request, only: only, body: body, header: h, want: w})
		}
		add("frame of 4 GiB", framedOnly, refused("resource_exhausted"), large, whole(prefixed(0, 0xffffffff, []byte("abc"))), nil)
		add("frame shorter than promised", framedOnly, refused("internal"), inside, whole(prefixed(0, 9, []byte("abc"))), nil)
		add("half a prefix", framedOnly, refused("internal"), inside, whole([]byte("\x00\x00\x00")), nil)
		add("compressed without an encoding", framedOnly, refused("internal"), inside, flagged, nil)
		add("not gzip", "", refused("invalid_argument"), want{code: "invalid_argument", reason: "MALFORMED_REQUEST"}, gzipped(procedure, garbage), compressed)
		add("bomb of 63 KiB to 64 MiB", "", refused("resource_exhausted"), large, gzipped(procedure, b.small), compressed)
	}
	return lines
}

func TestHostileQueueTransport(t *testing.T) { //nolint:paralleltest // it measures processor time, which all tests share
	g := attack(t, nil)
	g.workshop()
	g.run(queuePathLines())
	g.run(queueBodyLines())
	g.run(queueFrameLines())
}
