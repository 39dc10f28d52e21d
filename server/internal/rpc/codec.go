package rpc

import (
	"bytes"
	"encoding/json"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/parleyhq/parley/server/internal/fault"
)

// frame is an encoded SubscribeResponse: head followed by all pieces. The codecs here accept it in
// place of a message, so that an event is encoded once for all its readers.
type frame struct {
	// head is a whole response if pieces is empty, and otherwise the bytes before the pieces of a
	// batch of events.
	head   []byte
	pieces [][]byte
}

func (f *frame) size() int {
	n := len(f.head)
	for _, p := range f.pieces {
		n += len(p)
	}
	return n
}

func (f *frame) appendTo(dst []byte) []byte {
	dst = append(dst, f.head...)
	for _, p := range f.pieces {
		dst = append(dst, p...)
	}
	return dst
}

// preEncoded is a message that is encoded without reflection. The codecs here accept it.
type preEncoded interface {
	size() int
	// appendTo appends the binary encoding.
	appendTo(dst []byte) []byte
	// message returns the message itself, for JSON.
	message() (proto.Message, error)
}

// protoCodec is the binary codec for messages and frames. It replaces connect's codec of that name,
// also for the status messages that connect itself sends.
type protoCodec struct{}

var _ connect.Codec = protoCodec{}

// Name implements connect.Codec.
func (protoCodec) Name() string { return "proto" }

// Marshal implements connect.Codec.
func (c protoCodec) Marshal(m any) ([]byte, error) {
	if f, ok := m.(*frame); ok {
		return f.appendTo(make([]byte, 0, f.size())), nil
	}
	return c.MarshalAppend(nil, m)
}

// MarshalAppend appends the encoding of m to dst. connect calls it, if it exists, to save a copy.
func (protoCodec) MarshalAppend(dst []byte, m any) ([]byte, error) {
	switch m := m.(type) {
	case *frame:
		return m.appendTo(dst), nil
	case preEncoded:
		return m.appendTo(dst), nil
	case proto.Message:
		return proto.MarshalOptions{}.MarshalAppend(dst, m)
	default:
		return nil, errNotMessage(m)
	}
}

// MarshalStable returns a deterministic encoding. connect calls it, if it exists, to build GET
// requests.
func (protoCodec) MarshalStable(m any) ([]byte, error) {
	p, ok := m.(proto.Message)
	if !ok {
		return nil, errNotMessage(m)
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(p)
}

// IsBinary reports true. connect calls it together with MarshalStable.
func (protoCodec) IsBinary() bool { return true }

// Unmarshal implements connect.Codec. It returns no error for a request that can't be decoded, see
// undecodedField. It drops unknown fields, so that newer clients can call this server.
func (protoCodec) Unmarshal(data []byte, m any) error {
	p, ok := m.(proto.Message)
	if !ok {
		return errNotMessage(m)
	}
	if f := decodeProto(data, p); f != nil {
		setUndecoded(p, f)
	}
	return nil
}

func decodeProto(data []byte, m proto.Message) *fault.Error {
	md := m.ProtoReflect().Descriptor()
	if f := checkProtoElements(data, md, api.forRequest(md.FullName()).maxElements); f != nil {
		return f
	}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, m); err != nil {
		return malformedProto(err)
	}
	return nil
}

// jsonCodec is the JSON codec for messages and frames. It replaces connect's codec of that name.
// events caches the JSON of events, which all names of the codec share.
type jsonCodec struct {
	name   string
	events *jsonEvents
}

var _ connect.Codec = jsonCodec{}

// jsonCodecs returns the options that add the JSON codec under both names that connect looks up.
func jsonCodecs() []connect.HandlerOption {
	events := newJSONEvents()
	return []connect.HandlerOption{
		connect.WithCodec(jsonCodec{"json", events}), connect.WithCodec(jsonCodec{"json; charset=utf-8", events}),
	}
}

// Name implements connect.Codec.
func (c jsonCodec) Name() string { return c.name }

// Marshal implements connect.Codec.
func (c jsonCodec) Marshal(m any) ([]byte, error) { return c.MarshalAppend(nil, m) }

// MarshalAppend appends the encoding of m to dst. connect calls it, if it exists, to save a copy.
func (c jsonCodec) MarshalAppend(dst []byte, m any) ([]byte, error) {
	switch m := m.(type) {
	case *frame:
		return c.events.appendFrame(dst, m)
	case preEncoded:
		decoded, err := m.message()
		if err != nil {
			return nil, err
		}
		return protojson.MarshalOptions{}.MarshalAppend(dst, decoded)
	case proto.Message:
		return protojson.MarshalOptions{}.MarshalAppend(dst, m)
	default:
		return nil, errNotMessage(m)
	}
}

// MarshalStable returns an encoding without white space. connect calls it, if it exists, to build
// GET requests.
func (c jsonCodec) MarshalStable(m any) ([]byte, error) {
	data, err := c.Marshal(m)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Compact(&out, data); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// IsBinary reports false. connect calls it together with MarshalStable.
func (jsonCodec) IsBinary() bool { return false }

// Unmarshal implements connect.Codec. It returns no error for a request that can't be decoded, see
// undecodedField.
func (jsonCodec) Unmarshal(data []byte, m any) error {
	p, ok := m.(proto.Message)
	if !ok {
		return errNotMessage(m)
	}
	if f := decodeJSON(data, p); f != nil {
		setUndecoded(p, f)
	}
	return nil
}

// decodeJSON decodes a JSON request to m. A request that changes something must not have fields
// that this server does not know: the caller would think that they took effect. Reads may have
// unknown fields, so that newer clients can call this server. Unknown names of enum values are
// refused in both.
func decodeJSON(data []byte, m proto.Message) *fault.Error {
	if len(data) == 0 {
		return malformed("malformed JSON: the request is empty, it must be an object")
	}
	if f := checkJSONElements(data); f != nil {
		return f
	}
	md := m.ProtoReflect().Descriptor()
	data = camelMasks(data, md.FullName())
	unknown := protojson.Unmarshal(data, m)
	if unknown == nil {
		return nil
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, m); err != nil {
		return malformedJSON(err)
	}
	strict := api.forRequest(md.FullName()).strict()
	if f := checkNames(data, md, strict); f != nil {
		return f
	}
	if strict {
		return malformedJSON(unknown)
	}
	return nil
}

func errNotMessage(m any) error { return fmt.Errorf("%T is not a protobuf message", m) }
