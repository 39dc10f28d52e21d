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

// frame is a SubscribeResponse that is encoded already, in parts to be concatenated: head, then pieces. The codecs here take it
// wherever connect asks them for a message, so that an event's bytes are made once, whatever the number of its readers.
type frame struct {
	// head is a whole response, or what stands before the pieces of a batch of events.
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

// protoCodec is connect's own binary codec, for messages and frames. Connect uses it for its own messages too.
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

// MarshalAppend spares connect a copy; it looks for the method.
func (protoCodec) MarshalAppend(dst []byte, m any) ([]byte, error) {
	switch m := m.(type) {
	case *frame:
		return m.appendTo(dst), nil
	case proto.Message:
		return proto.MarshalOptions{}.MarshalAppend(dst, m)
	default:
		return nil, errNoMessage(m)
	}
}

// MarshalStable is what connect makes GET requests with; it looks for the method.
func (protoCodec) MarshalStable(m any) ([]byte, error) {
	p, ok := m.(proto.Message)
	if !ok {
		return nil, errNoMessage(m)
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(p)
}

// IsBinary goes with MarshalStable.
func (protoCodec) IsBinary() bool { return true }

// Unmarshal implements connect.Codec. A request that can't be decoded is no error here: see undecodedField. Fields that this
// server does not know are dropped, so that newer clients can call it.
func (protoCodec) Unmarshal(data []byte, m any) error {
	p, ok := m.(proto.Message)
	if !ok {
		return errNoMessage(m)
	}
	if f := decodeProto(data, p); f != nil {
		setUndecoded(p, f)
	}
	return nil
}

func decodeProto(data []byte, m proto.Message) *fault.Error {
	if f := checkProtoElements(data, m.ProtoReflect().Descriptor(), api.of(m.ProtoReflect().Descriptor().FullName()).maxElements); f != nil {
		return f
	}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, m); err != nil {
		return malformedProto(err)
	}
	return nil
}

// jsonCodec is connect's own JSON codec, for messages and frames.
type jsonCodec struct {
	name   string
	events *jsonEvents
}

var _ connect.Codec = jsonCodec{}

// jsonCodecs gives the codec under both names that connect asks for.
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

// MarshalAppend spares connect a copy; it looks for the method.
func (c jsonCodec) MarshalAppend(dst []byte, m any) ([]byte, error) {
	switch m := m.(type) {
	case *frame:
		return c.events.appendFrame(dst, m)
	case proto.Message:
		return protojson.MarshalOptions{}.MarshalAppend(dst, m)
	default:
		return nil, errNoMessage(m)
	}
}

// MarshalStable is what connect makes GET requests with; it looks for the method.
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

// IsBinary goes with MarshalStable.
func (jsonCodec) IsBinary() bool { return false }

// Unmarshal implements connect.Codec. A request that can't be decoded is no error here: see undecodedField.
func (jsonCodec) Unmarshal(data []byte, m any) error {
	p, ok := m.(proto.Message)
	if !ok {
		return errNoMessage(m)
	}
	if f := decodeJSON(data, p); f != nil {
		setUndecoded(p, f)
	}
	return nil
}

// decodeJSON decodes a JSON request. A request that changes something must not have fields that this server does not know: the
// caller would think that what they ask for is done. Reads may have them, so that newer clients can call it. The names of enum
// values must be known in both, as their numbers must in binary.
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
	strict := api.of(md.FullName()).strict()
	if f := checkNames(data, md, strict); f != nil {
		return f
	}
	if strict {
		return malformedJSON(unknown)
	}
	return nil
}

func errNoMessage(m any) error { return fmt.Errorf("%T is no message", m) }
