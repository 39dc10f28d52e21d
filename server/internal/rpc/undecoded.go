package rpc

import (
	"encoding/json"
	"regexp"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/parleyhq/parley/server/internal/fault"
)

// undecodedField is the number of an unknown field that this server adds to a request that it could
// not decode. The field holds the fault.
//
// connect refuses a unary request that its codec can't decode before it calls any interceptor, and
// without a detail. So the codecs here decode such a request to an empty message with this field,
// and an interceptor converts it to the error. No client can send the field: binary requests are
// decoded without their unknown fields, and JSON has none.
const undecodedField protowire.Number = 1<<29 - 1

// undecodedFault is the content of undecodedField: a fault, as JSON.
type undecodedFault struct {
	Kind   fault.Kind   `json:"kind"`
	Reason fault.Reason `json:"reason"`
	Msg    string       `json:"msg"`
	Field  string       `json:"field"`
	Limit  int64        `json:"limit"`
}

// setUndecoded resets m and stores the fault in its undecodedField.
func setUndecoded(m proto.Message, why *fault.Error) {
	data, err := json.Marshal(undecodedFault{why.Kind, why.Reason, why.Msg, why.Field, why.Limit})
	if err != nil {
		data = []byte("{}") // strings and numbers never fail
	}
	proto.Reset(m)
	m.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, undecodedField, protowire.BytesType), data))
}

// decodeError returns why a request could not be decoded; nil if it was decoded.
func decodeError(request any) error {
	m, ok := request.(proto.Message)
	if !ok {
		return nil
	}
	raw := m.ProtoReflect().GetUnknown()
	number, _, n := protowire.ConsumeTag(raw)
	if number != undecodedField {
		return nil
	}
	data, _ := protowire.ConsumeBytes(raw[n:])
	var why undecodedFault
	if err := json.Unmarshal(data, &why); err != nil {
		return err
	}
	return &fault.Error{Kind: why.Kind, Reason: why.Reason, Msg: why.Msg, Field: why.Field, Limit: why.Limit}
}

func malformed(format string, args ...any) *fault.Error {
	return fault.New(fault.InvalidArgument, fault.MalformedRequest, format, args...)
}

// malformedProto returns the fault for a binary request that failed with the decoder's err.
func malformedProto(err error) *fault.Error {
	switch text := err.Error(); {
	case strings.Contains(text, "UTF-8"):
		return malformed("malformed protobuf: a string is not valid UTF-8")
	case strings.Contains(text, "recursion"):
		return malformed("malformed protobuf: nested too deeply")
	default:
		return malformed("malformed protobuf")
	}
}

var (
	// jsonPosition and jsonField match the parts of the JSON decoder's error that clients get: the
	// position and the field. The rest may repeat what the client sent, at any length.
	jsonPosition = regexp.MustCompile(`\(line (\d+):(\d+)\)`)
	jsonField    = regexp.MustCompile(`invalid value for \w+ field (\w+):`)
)

// jsonProblems maps parts of the JSON decoder's error to the text for the client. The first entry
// whose part occurs in the error applies; the last one always matches.
var jsonProblems = []struct{ part, says string }{
	{"unexpected EOF", "the text is truncated, or a string has an incomplete escape sequence"},
	{"recursion", "nested too deeply"},
	{"syntax error", "syntax error"},
	{"duplicate ", "the field is set twice"},
	{"is already set", "another field of the same oneof is set"},
	{"unknown field", "unknown field"},
	{"", "invalid value"},
}

// malformedJSON returns the fault for a JSON request that failed with the decoder's err.
func malformedJSON(err error) *fault.Error {
	text, at, field := err.Error(), "", ""
	if m := jsonPosition.FindStringSubmatch(text); m != nil {
		at = "line " + m[1] + ", column " + m[2] + ": "
	}
	i := 0
	if m := jsonField.FindStringSubmatch(text); m != nil {
		field = " for field " + m[1]
		i = len(jsonProblems) - 1 // the rest of the text is the client's, and may match another problem
	}
	for !strings.Contains(text, jsonProblems[i].part) {
		i++
	}
	return malformed("malformed JSON: %s%s%s", at, jsonProblems[i].says, field)
}
