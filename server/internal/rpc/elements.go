package rpc

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxElements bounds the fields and values of one request, in all depths. The limits on bytes let a million empty items
// pass, whose decoding takes a hundred times as long as that of the same bytes of text. Every request that keeps the
// limits of the schema is far below.
const maxElements = 50_000

var errElements = fmt.Errorf("a request may have at most %d fields and values", maxElements)

// checkProtoElements counts the fields of an encoded message. What is no encoding the decoder will say.
func checkProtoElements(data []byte, md protoreflect.MessageDescriptor) error {
	if len(data) < 2*maxElements { // a field takes two bytes at least
		return nil
	}
	if left := maxElements; !countFields(data, md.Fields(), &left) {
		return errElements
	}
	return nil
}

// countFields takes the fields off what is left, and tells whether that sufficed.
func countFields(data []byte, known protoreflect.FieldDescriptors, left *int) bool {
	for len(data) > 0 {
		if *left--; *left < 0 {
			return false
		}
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return true
		}
		m := protowire.ConsumeFieldValue(number, kind, data[n:])
		if m < 0 {
			return true
		}
		if fd := known.ByNumber(number); kind == protowire.BytesType && fd != nil && fd.Message() != nil {
			value, _ := protowire.ConsumeBytes(data[n:])
			if !countFields(value, fd.Message().Fields(), left) {
				return false
			}
		}
		data = data[n+m:]
	}
	return true
}

// checkJSONElements counts the objects, lists and members of a JSON text by what stands before each.
func checkJSONElements(data []byte) error {
	if len(data) <= maxElements {
		return nil
	}
	n, inText := 0, false
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '\\': // outside of a text it is no JSON, which the decoder will say
			i++
		case '"':
			inText = !inText
		case '{', '[', ',':
			if inText {
				continue
			}
			if n++; n > maxElements {
				return errElements
			}
		}
	}
	return nil
}
