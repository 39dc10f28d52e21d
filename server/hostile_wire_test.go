package server_test

import (
	"bytes"
	"encoding/base64"
	wire "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// dialect is one combination of protocol and encoding in which a server can be called, such as gRPC
// with JSON. Tests build the bytes by hand, without a client.
type dialect struct {
	name string
	// unary and stream are the content types of unary calls and streams.
	unary, stream string
	json, h2      bool
	// unframed marks Connect's unary form: the body is the message.
	unframed bool
}

// dialects lists the four dialects in which every line is sent, then two for lines with a JSON
// payload.
var dialects = []dialect{
	{name: "connect-json", unary: "application/json", stream: "application/connect+json", json: true, unframed: true},
	{name: "connect-proto", unary: "application/proto", stream: "application/connect+proto", unframed: true},
	{name: "grpc", unary: "application/grpc+proto", stream: "application/grpc+proto", h2: true},
	{name: "grpc-web", unary: "application/grpc-web+proto", stream: "application/grpc-web+proto"},
	{name: "grpc-json", unary: "application/grpc+json", stream: "application/grpc+json", json: true, h2: true},
	{name: "grpc-web-json", unary: "application/grpc-web+json", stream: "application/grpc-web+json", json: true},
}

const (
	sendMessage  = "SendMessage"
	sendMessages = "SendMessages"
	listMessages = "ListMessages"
	getMessage   = "GetMessage"
	editMessage  = "EditMessage"
	recall       = "RecallMessage"
	subscribing  = "Subscribe"
	updating     = "UpdateSubscription"

	createChannel = "CreateChannel"
	addMembers    = "AddMembers"
	removeMembers = "RemoveMembers"
	listMembers   = "ListMembers"
	listChannels  = "ListChannels"
	markRead      = "MarkRead"
	sendTyping    = "SendTyping"
)

// framed reports whether messages have a prefix of five bytes.
func (d *dialect) framed(procedure string) bool { return !d.unframed || streams(procedure) }

// streams reports whether the server answers a call of the procedure with a stream.
func streams(procedure string) bool {
	return procedure == subscribing || procedure == connectPresence || procedure == consume || procedure == streamingConsume
}

func (d *dialect) contentType(procedure string) string {
	if streams(procedure) {
		return d.stream
	}
	return d.unary
}

// encode returns a message as this dialect's payload.
func (d *dialect) encode(t *testing.T, m proto.Message) []byte {
	t.Helper()
	marshal := proto.Marshal
	if d.json {
		marshal = protojson.Marshal
	}
	data, err := marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// prefixed puts a frame prefix before a payload. The length need not be correct.
func prefixed(flags byte, length int, payload []byte) []byte {
	return append(wire.BigEndian.AppendUint32([]byte{flags}, uint32(length)), payload...)
}

// body returns the whole body of a call with this payload, with a frame prefix if the dialect has
// one.
func (d *dialect) body(procedure string, payload []byte) []byte {
	if d.framed(procedure) {
		return prefixed(0, len(payload), payload)
	}
	return payload
}

// answer is the outcome of a call in any dialect.
type answer struct {
	http int
	// code is the code's name as Connect spells it, such as not_found: "ok" for a successful call,
	// empty if the answer is an HTTP status only.
	code, message string
	// detail is nil if the answer has none.
	detail *parleyv1.ErrorDetail
	// retry is google.rpc.RetryInfo, or nil if the answer has none.
	retry *errdetails.RetryInfo
	// requestID is from the response header.
	requestID string
	// payloads are the received messages.
	payloads [][]byte
	// raw is everything that a client can read of the answer, except the date.
	raw string
}

// wireError is Connect's JSON form of an error.
type wireError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Details []struct {
		Type  string `json:"type"`
		Value string `json:"value"`
	} `json:"details"`
}

// readAnswer reads a response to its end and parses it.
func readAnswer(d *dialect, resp *http.Response) (*answer, error) {
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	a := &answer{http: resp.StatusCode, requestID: resp.Header.Get("X-Request-Id")}
	header := resp.Header.Clone()
	header.Del("Date")
	a.raw = fmt.Sprintln(resp.StatusCode, header, string(data), resp.Trailer)
	contentType := resp.Header.Get("Content-Type")
	switch {
	case strings.HasPrefix(contentType, "application/grpc"):
		return a, a.readGRPC(resp, data)
	case strings.HasPrefix(contentType, "application/connect+"):
		return a, a.readConnectStream(data)
	case resp.StatusCode == http.StatusOK && contentType == d.unary:
		a.code, a.payloads = "ok", [][]byte{data}
		return a, nil
	case contentType == "application/json":
		var e wireError
		if err := json.Unmarshal(data, &e); err != nil {
			return nil, fmt.Errorf("error %q: %w", data, err)
		}
		return a, a.fail(&e)
	default:
		return a, nil // 404, 405, 415, 431, 505 without a body of ours
	}
}

// frames parses a body of frames and calls each for every frame, in order.
func frames(data []byte, each func(flags byte, payload []byte) error) error {
	for len(data) > 0 {
		if len(data) < 5 || len(data)-5 < int(wire.BigEndian.Uint32(data[1:5])) {
			return fmt.Errorf("a frame is cut: %q", data)
		}
		n := 5 + int(wire.BigEndian.Uint32(data[1:5]))
		if err := each(data[0], data[5:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func (a *answer) readConnectStream(data []byte) error {
	ended := false
	err := frames(data, func(flags byte, payload []byte) error {
		if flags&2 == 0 {
			a.payloads = append(a.payloads, payload)
			return nil
		}
		var end struct {
			Error *wireError `json:"error"`
		}
		if err := json.Unmarshal(payload, &end); err != nil {
			return err
		}
		ended, a.code = true, "ok"
		if end.Error != nil {
			return a.fail(end.Error)
		}
		return nil
	})
	if err == nil && !ended {
		err = errors.New("the stream has no end")
	}
	return err
}

func (a *answer) readGRPC(resp *http.Response, data []byte) error {
	trailer := resp.Trailer
	if trailer.Get("Grpc-Status") == "" {
		trailer = resp.Header // the answer is a trailer only
	}
	err := frames(data, func(flags byte, payload []byte) error {
		if flags&0x80 == 0 {
			a.payloads = append(a.payloads, payload)
			return nil
		}
		trailer = make(http.Header)
		for line := range strings.SplitSeq(strings.TrimSpace(string(payload)), "\r\n") {
			key, value, _ := strings.Cut(line, ":")
			trailer.Set(key, strings.TrimSpace(value))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return a.status(trailer)
}

func (a *answer) status(trailer http.Header) error {
	number, err := strconv.ParseUint(trailer.Get("Grpc-Status"), 10, 32)
	if err != nil {
		return fmt.Errorf("grpc-status: %w", err)
	}
	if number == 0 {
		a.code = "ok"
		return nil
	}
	a.code = connect.Code(number).String()
	bin := strings.TrimRight(trailer.Get("Grpc-Status-Details-Bin"), "=")
	data, err := base64.RawStdEncoding.DecodeString(bin)
	if err != nil {
		return fmt.Errorf("grpc-status-details-bin: %w", err)
	}
	var s status.Status
	if err := proto.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("grpc-status-details-bin: %w", err)
	}
	a.message = s.GetMessage()
	if bin == "" { // answers of the connect library have no details
		a.message, err = url.PathUnescape(trailer.Get("Grpc-Message"))
		return err
	}
	if uint64(s.GetCode()) != number {
		return fmt.Errorf("grpc-status is %d, and %d in the details", number, s.GetCode())
	}
	for _, d := range s.GetDetails() {
		if err := a.addDetail(d.GetTypeUrl()[strings.LastIndexByte(d.GetTypeUrl(), '/')+1:], d.GetValue()); err != nil {
			return err
		}
	}
	return nil
}

func (a *answer) fail(e *wireError) error {
	a.code, a.message = e.Code, e.Message
	for _, d := range e.Details {
		value, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(d.Value, "="))
		if err != nil {
			return fmt.Errorf("detail %s: %w", d.Type, err)
		}
		if err := a.addDetail(d.Type, value); err != nil {
			return err
		}
	}
	return nil
}

func (a *answer) addDetail(name string, value []byte) error {
	switch name {
	case "parley.v1.ErrorDetail":
		a.detail = new(parleyv1.ErrorDetail)
		return proto.Unmarshal(value, a.detail)
	case "google.rpc.RetryInfo":
		a.retry = new(errdetails.RetryInfo)
		return proto.Unmarshal(value, a.retry)
	default:
		return nil
	}
}

// decode reads the first received message.
func (a *answer) decode(t *testing.T, d *dialect, m proto.Message) {
	t.Helper()
	if a.code != "ok" || len(a.payloads) == 0 {
		t.Fatalf("%s: the answer is %s, %q", d.name, a.code, a.message)
	}
	unmarshal := proto.Unmarshal
	if d.json {
		unmarshal = protojson.Unmarshal
	}
	if err := unmarshal(bytes.Clone(a.payloads[0]), m); err != nil {
		t.Fatal(err)
	}
}
