package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// frame is a SubscribeResponse that is encoded already, in pieces to be concatenated. The codecs here take it wherever
// connect asks them for a message, so that an event's bytes are made once, whatever the number of its readers.
type frame struct{ pieces [][]byte }

func (f *frame) size() int {
	n := 0
	for _, p := range f.pieces {
		n += len(p)
	}
	return n
}

func (f *frame) appendTo(dst []byte) []byte {
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

// Unmarshal implements connect.Codec. Its errors name no types of the server's, for they reach the client.
func (protoCodec) Unmarshal(data []byte, m any) error {
	p, ok := m.(proto.Message)
	if !ok {
		return errNoMessage(m)
	}
	if err := checkProtoElements(data, p.ProtoReflect().Descriptor(), elementsFor(m)); err != nil {
		return err
	}
	return proto.Unmarshal(data, p)
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

// Unmarshal implements connect.Codec. Fields that this server does not know are passed over, so that newer clients can
// call it; an enum's value that it does not know is refused, as in binary. Its errors name no types of the server's, for they
// reach the client.
func (jsonCodec) Unmarshal(data []byte, m any) error {
	p, ok := m.(proto.Message)
	if !ok {
		return errNoMessage(m)
	}
	if len(data) == 0 {
		return errors.New("zero-length payload is not a valid JSON object")
	}
	if err := checkJSONElements(data); err != nil {
		return err
	}
	if protojson.Unmarshal(data, p) == nil {
		return nil
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, p); err != nil {
		return err
	}
	return checkEnumNames(data, p.ProtoReflect().Descriptor())
}

func errNoMessage(m any) error { return fmt.Errorf("%T is no message", m) }
