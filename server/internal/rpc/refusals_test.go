package rpc

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
	"github.com/parleyhq/parley/gen/go/parley/v1/parleyv1connect"
)

// refused is the error of a call as a client reads it. detail is nil if the error has none.
type refused struct {
	// code is the name of connect's code, or gRPC's number of it.
	code, message string
	detail        *parleyv1.ErrorDetail
}

// readRefused decodes the error of a unary call, or of a stream that has sent nothing before it.
func readRefused(t *testing.T, resp *http.Response, body string) refused {
	t.Helper()
	trailer := resp.Trailer
	if trailer.Get("Grpc-Status") == "" {
		trailer = resp.Header
	}
	if trailer.Get("Grpc-Status") != "" {
		return readGRPCRefused(t, trailer)
	}
	type wire struct {
		Code, Message string
		Details       []struct{ Type, Value string }
		Error         *wire
	}
	var e wire
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/connect+") {
		body = body[5:] // the frame's prefix
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		t.Errorf("%s: %v", body, err)
	}
	if e.Error != nil {
		e = *e.Error
	}
	out := refused{code: e.Code, message: e.Message}
	for _, d := range e.Details {
		if d.Type == "parley.v1.ErrorDetail" {
			out.detail = readDetail(t, unbase64(t, d.Value))
		}
	}
	return out
}

func readGRPCRefused(t *testing.T, trailer http.Header) refused {
	t.Helper()
	message, err := url.PathUnescape(trailer.Get("Grpc-Message"))
	if err != nil {
		t.Error(err)
	}
	out := refused{code: trailer.Get("Grpc-Status"), message: message}
	var s status.Status
	if err := proto.Unmarshal(unbase64(t, trailer.Get("Grpc-Status-Details-Bin")), &s); err != nil {
		t.Error(err)
	}
	for _, d := range s.GetDetails() {
		if strings.HasSuffix(d.GetTypeUrl(), "/parley.v1.ErrorDetail") {
			out.detail = readDetail(t, d.GetValue())
		}
	}
	return out
}

func readDetail(t *testing.T, data []byte) *parleyv1.ErrorDetail {
	t.Helper()
	detail := &parleyv1.ErrorDetail{}
	if err := proto.Unmarshal(data, detail); err != nil {
		t.Error(err)
	}
	return detail
}

func unbase64(t *testing.T, text string) []byte {
	t.Helper()
	data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		t.Error(err)
	}
	return data
}

// insides matches text that no error may contain: terms of Go, of its libraries and of this code.
var insides = regexp.MustCompile(`strconv|unmarshal|parleyv1|goroutine|\bproto:|\bhttp:|\bEOF\b|gzip:|flate|i/o|json:|base64:|envelope|%!|configured max|promised`)

// Every error of a call has the right code, a detail with the request's id, and a text that this
// server wrote, on every protocol. That holds for errors of connect and of decoders too.
func TestEveryRefusalHasADetail(t *testing.T) {
	t.Parallel()
	b := setup(t, func(s *settings) { s.cfg.SendReadBytes = 4 << 10 })
	b.messages.send = sendOK
	const (
		send      = parleyv1connect.MessageServiceSendMessageProcedure
		list      = parleyv1connect.MessageServiceListMessagesProcedure
		subscribe = parleyv1connect.MessageServiceSubscribeProcedure
		malformed = "MALFORMED_REQUEST"
	)
	large := strings.Repeat("x", 9<<10)
	frame := func(text string) string {
		return "\x00\x00\x00" + string([]byte{byte(len(text) >> 8), byte(len(text))}) + text
	}
	const broken = "the request's body is incomplete, or not encoded as its header says"
	const oneMessage = "the request must be exactly one message"
	const frames = "the request's frames are malformed"
	const noCompression = "the compression of the request is not supported"
	for name, tt := range map[string]struct {
		method, path, contentType, body string
		more                            []string
		status                          int
		code                            string // a name, or gRPC's number
		reason, says                    string // says is the beginning of the text
	}{
		"truncated JSON":         {contentType: "application/json", body: `{"channelId":"a`, status: 400, code: "invalid_argument", reason: malformed, says: "malformed JSON: the text is truncated"},
		"number for a string":    {contentType: "application/json", body: `{"channelId":5}`, status: 400, code: "invalid_argument", reason: malformed, says: "malformed JSON: line 1, column 14: invalid value for field channelId"},
		"unknown field":          {contentType: "application/json", body: `{"channelId":"a","content":"hi","isAdmin":true}`, status: 400, code: "invalid_argument", reason: malformed, says: "isAdmin: unknown field"},
		"JSON over gRPC":         {contentType: "application/grpc+json", body: frame(`{"channelId":5}`), status: 200, code: "3", reason: malformed, says: "malformed JSON: line 1, column 14: invalid value for field channelId"},
		"JSON over gRPC-Web":     {contentType: "application/grpc-web+json", body: frame(`{"channelId":5}`), status: 200, code: "3", reason: malformed, says: "malformed JSON: line 1, column 14: invalid value for field channelId"},
		"JSON of a stream":       {path: subscribe, contentType: "application/connect+json", body: frame(`{"channels":5}`), status: 200, code: "invalid_argument", reason: malformed, says: "malformed JSON: line 1, column 13: syntax error"},
		"truncated varint":       {contentType: "application/proto", body: "\x0a\xff", status: 400, code: "invalid_argument", reason: malformed, says: "malformed protobuf"},
		"protobuf over gRPC":     {contentType: "application/grpc", body: frame("\x0a\xff"), status: 200, code: "3", reason: malformed, says: "malformed protobuf"},
		"protobuf over gRPC-Web": {contentType: "application/grpc-web+proto", body: frame("\x0a\xff"), status: 200, code: "3", reason: malformed, says: "malformed protobuf"},
		"protobuf of a stream":   {path: subscribe, contentType: "application/grpc", body: frame("\x0a\xff"), status: 200, code: "3", reason: malformed, says: "malformed protobuf"},
		"too many fields":        {path: parleyv1connect.MessageServiceSendMessagesProcedure, contentType: "application/proto", body: strings.Repeat("\x0a\x00", defaultElements+1), status: 429, code: "resource_exhausted", reason: "TOO_LARGE", says: "the request has more than 50000 fields and values"},

		"too large":              {contentType: "application/json", body: large, status: 429, code: "resource_exhausted", reason: "TOO_LARGE", says: "the request is larger than 4096 bytes"},
		"too large over gRPC":    {contentType: "application/grpc", body: frame(large), status: 200, code: "8", reason: "TOO_LARGE", says: "the request is larger than 4096 bytes"},
		"frame of 4 GiB":         {contentType: "application/grpc-web", body: "\x00\xff\xff\xff\xffabc", status: 200, code: "8", reason: "TOO_LARGE", says: "the request is larger than 4096 bytes"},
		"stream's frame":         {path: subscribe, contentType: "application/connect+proto", body: "\x00\xff\xff\xff\xffabc", status: 200, code: "resource_exhausted", reason: "TOO_LARGE", says: "the request is larger than 2097152 bytes"},
		"frame of 4 GiB, health": {path: healthCheckProcedure, contentType: "application/grpc", body: "\x00\xff\xff\xff\xffabc", status: 200, code: "8", reason: "TOO_LARGE", says: "the request is larger than 65536 bytes"},

		"not gzip":                {contentType: "application/proto", body: "x", more: []string{"Content-Encoding", "gzip"}, status: 400, code: "invalid_argument", reason: malformed, says: broken},
		"not gzip over gRPC":      {contentType: "application/grpc", body: "\x01\x00\x00\x00\x01x", more: []string{"Grpc-Encoding", "gzip"}, status: 200, code: "3", reason: malformed, says: broken},
		"not gzip of a stream":    {path: subscribe, contentType: "application/connect+proto", body: "\x01\x00\x00\x00\x01x", more: []string{"Connect-Content-Encoding", "gzip"}, status: 200, code: "invalid_argument", reason: malformed, says: broken},
		"lzma":                    {contentType: "application/proto", body: "x", more: []string{"Content-Encoding", "lzma"}, status: 501, code: "unimplemented", reason: "UNIMPLEMENTED", says: noCompression},
		"lzma over gRPC":          {contentType: "application/grpc", body: frame(""), more: []string{"Grpc-Encoding", "lzma"}, status: 200, code: "12", reason: "UNIMPLEMENTED", says: noCompression},
		"lzma over gRPC-Web":      {contentType: "application/grpc-web", body: frame(""), more: []string{"Grpc-Encoding", "lzma"}, status: 200, code: "12", reason: "UNIMPLEMENTED", says: noCompression},
		"lzma of a stream":        {path: subscribe, contentType: "application/connect+json", body: frame("{}"), more: []string{"Connect-Content-Encoding", "lzma"}, status: 200, code: "unimplemented", reason: "UNIMPLEMENTED", says: noCompression},
		"lzma to watch health":    {path: healthWatchProcedure, contentType: "application/connect+json", body: frame("{}"), more: []string{"Connect-Content-Encoding", "lzma"}, status: 200, code: "unimplemented", reason: "UNIMPLEMENTED", says: noCompression},
		"frame shorter than told": {contentType: "application/grpc", body: "\x00\x00\x00\x00\x09abc", status: 200, code: "13", reason: malformed, says: frames},
		"half a prefix":           {contentType: "application/grpc-web+proto", body: "\x00\x00", status: 200, code: "13", reason: malformed, says: frames},
		"odd flags":               {contentType: "application/grpc", body: "\x7e\x00\x00\x00\x00", status: 200, code: "13", reason: malformed, says: frames},
		"compressed, by nothing":  {contentType: "application/grpc", body: "\x01\x00\x00\x00\x01x", status: 200, code: "13", reason: malformed, says: frames},
		"cut frame of a stream":   {path: subscribe, contentType: "application/connect+json", body: "\x00\x00\x00\x00\x09abc", status: 200, code: "internal", reason: malformed, says: frames},
		"no message":              {contentType: "application/grpc", status: 200, code: "12", reason: "UNIMPLEMENTED", says: oneMessage},
		"two messages":            {contentType: "application/grpc-web", body: frame("") + frame(""), status: 200, code: "12", reason: "UNIMPLEMENTED", says: oneMessage},
		"no message, of a stream": {path: subscribe, contentType: "application/connect+json", status: 200, code: "unimplemented", reason: "UNIMPLEMENTED", says: oneMessage},

		"timeout":             {contentType: "application/json", body: "{}", more: []string{"Connect-Timeout-Ms", "-1"}, status: 400, code: "invalid_argument", reason: malformed, says: "header Connect-Timeout-Ms: must be 1 to 10 digits"},
		"timeout of a stream": {path: subscribe, contentType: "application/connect+json", body: frame("{}"), more: []string{"Connect-Timeout-Ms", strings.Repeat("9", 5000)}, status: 200, code: "invalid_argument", reason: malformed, says: "header Connect-Timeout-Ms: must be 1 to 10 digits"},
		"timeout of gRPC":     {contentType: "application/grpc", body: frame(""), more: []string{"Grpc-Timeout", "zz"}, status: 200, code: "3", reason: malformed, says: "header Grpc-Timeout: must be 1 to 8 digits and a unit"},
		"timeout of gRPC-Web": {contentType: "application/grpc-web", body: frame(""), more: []string{"Grpc-Timeout", "123456789S"}, status: 200, code: "3", reason: malformed, says: "header Grpc-Timeout: must be 1 to 8 digits and a unit"},
		"version":             {contentType: "application/json", body: "{}", more: []string{"Connect-Protocol-Version", "9"}, status: 400, code: "invalid_argument", reason: malformed, says: "header Connect-Protocol-Version: must be 1"},
		"version of a stream": {path: subscribe, contentType: "application/connect+json", body: frame("{}"), more: []string{"Connect-Protocol-Version", "9"}, status: 200, code: "invalid_argument", reason: malformed, says: "header Connect-Protocol-Version: must be 1"},

		"GET, version":     {method: http.MethodGet, path: list + "?connect=v2&encoding=json&message={}", status: 400, code: "invalid_argument", reason: malformed, says: `query parameter connect: must be "v1"`},
		"GET, no message":  {method: http.MethodGet, path: list + "?connect=v1&encoding=json", status: 400, code: "invalid_argument", reason: malformed, says: "query parameter message: is missing"},
		"GET, no base64":   {method: http.MethodGet, path: list + "?connect=v1&encoding=proto&base64=1&message=%25", status: 400, code: "invalid_argument", reason: malformed, says: "query parameter message: is not URL-safe base64"},
		"GET, lzma":        {method: http.MethodGet, path: list + "?connect=v1&encoding=proto&base64=1&message=QQ&compression=lzma", status: 501, code: "unimplemented", reason: "UNIMPLEMENTED", says: noCompression},
		"GET, not gzip":    {method: http.MethodGet, path: list + "?connect=v1&encoding=proto&base64=1&message=QQ&compression=gzip", status: 400, code: "invalid_argument", reason: malformed, says: broken},
		"GET, bad message": {method: http.MethodGet, path: list + "?connect=v1&encoding=json&message=%7B", status: 400, code: "invalid_argument", reason: malformed, says: "malformed JSON: the text is truncated"},

		// Responses that exist only in HTTP have no detail. Other such responses are 431, for a header
		// too large (TestHeaderLimit), and 505, for a bidirectional stream over HTTP/1.1
		// (TestHostileTransport).
		"GET on a mutating call": {method: http.MethodGet, contentType: "application/json", status: 405},
		"PUT":                    {method: http.MethodPut, contentType: "application/json", status: 405},
		"odd content type":       {contentType: "text/html", body: "x", status: 415},
		"GET, odd encoding":      {method: http.MethodGet, path: list + "?connect=v1&encoding=yaml&message={}", status: 415},
	} {
		if tt.method == "" {
			tt.method = http.MethodPost
		}
		if tt.path == "" {
			tt.path = send
		}
		header := b.headers(tt.contentType, tt.more...)
		maps.DeleteFunc(header, func(_ string, v []string) bool { return v[0] == "" })
		resp, body := b.raw(b.h2, tt.method, tt.path, header, strings.NewReader(tt.body))
		if resp.StatusCode != tt.status {
			t.Errorf("%s: %d, want %d (%s)", name, resp.StatusCode, tt.status, body)
			continue
		}
		if line := b.logged.oneLine(t); line["request_id"] != resp.Header.Get("X-Request-Id") || line["level"] == "ERROR" ||
			line["subject"] != "ada" && !strings.HasPrefix(tt.path, "/grpc.health") {
			t.Errorf("%s: logged %v", name, line)
		}
		if tt.code == "" {
			if body != "" {
				t.Errorf("%s: the body is %q", name, body)
			}
			continue
		}
		got := readRefused(t, resp, body)
		if got.code != tt.code || !strings.HasPrefix(got.message, tt.says) || insides.MatchString(got.message) {
			t.Errorf("%s: %s %q, want %s %q", name, got.code, got.message, tt.code, tt.says)
		}
		if got.detail.GetReason().String() != reasonPrefix+tt.reason || got.detail.GetRetryable() ||
			got.detail.GetRequestId() != resp.Header.Get("X-Request-Id") || (got.detail.GetLimit() > 0) != (tt.reason == "TOO_LARGE") {
			t.Errorf("%s: the detail is %v", name, got.detail)
		}
	}
}

// Calls that only read accept JSON with unknown fields, for newer clients. Calls that change
// something refuse them.
func TestUnknownJSONFields(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.messages.list = listNothing
	resp, body := b.raw(b.h1, http.MethodPost, parleyv1connect.MessageServiceListMessagesProcedure, b.headers("application/json"),
		strings.NewReader(`{"channelId":"a","isAdmin":true,"x":{"y":[1]}}`))
	if resp.StatusCode != http.StatusOK {
		t.Errorf("a read: %d %s", resp.StatusCode, body)
	}
	b.messages.send = sendOK
	resp, body = b.raw(b.h1, http.MethodPost, parleyv1connect.MessageServiceSendMessageProcedure, b.headers("application/json"),
		strings.NewReader(`{"channelId":"a","content":"x","metadata":{"isAdmin":"true"},"isAdmin":true}`))
	got := readRefused(t, resp, body)
	if got.code != "invalid_argument" || got.detail.GetField() != "isAdmin" ||
		got.detail.GetReason() != parleyv1.ErrorReason_ERROR_REASON_MALFORMED_REQUEST {
		t.Errorf("a change: %+v", got)
	}
}

// The response to a GET forbids caches to store it.
func TestGETResponsesAreNotCached(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.messages.list = listNothing
	const list = parleyv1connect.MessageServiceListMessagesProcedure + "?connect=v1&encoding=json&message="
	good := http.Header{"Authorization": {"Bearer " + b.token}}
	for name, tt := range map[string]struct {
		path   string
		header http.Header
		status int
	}{
		"a good one":           {list + "%7B%22channelId%22%3A%22a%22%7D", good, 200},
		"a rule of the schema": {list + "{}", good, 400},
		"bad JSON":             {list + "x", good, 400},
		"without a token":      {list + "{}", http.Header{}, 401},
		"no message":           {strings.TrimSuffix(list, "&message="), good, 400},
		"an odd encoding":      {strings.Replace(list, "json", "yaml", 1), good, 415},
		"a change":             {parleyv1connect.MessageServiceSendMessageProcedure, good, 405},
		"an unknown procedure": {"/parley.v1.MessageService/Nothing", good, 404},
	} {
		resp, body := b.raw(b.h1, http.MethodGet, tt.path, tt.header, http.NoBody)
		if got := resp.Header.Values("Cache-Control"); resp.StatusCode != tt.status || len(got) != 1 || got[0] != "no-store" {
			t.Errorf("%s: %d with %q, want %d (%s)", name, resp.StatusCode, got, tt.status, body)
		}
	}
	resp, _ := b.raw(b.h1, http.MethodPost, parleyv1connect.MessageServiceListMessagesProcedure, b.headers("application/json"), strings.NewReader("{}"))
	if got := resp.Header.Get("Cache-Control"); got != "" {
		t.Errorf("an answer to a POST has %q", got)
	}
}
