package rpc

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/parleyhq/parley/server/internal/fault"
)

// defaultElements bounds the fields and values of one request, at all depths. Within the limit on
// bytes a request can have a million empty items, whose decoding takes a hundred times as long as
// that of the same bytes of text. Every request within the limits of the schema is below, unless
// its method has a bound of its own.
const defaultElements = 50_000

// tooManyElements returns the TOO_LARGE fault of a request with more fields and values than most.
func tooManyElements(most int) *fault.Error {
	f := fault.New(fault.ResourceExhausted, fault.TooLarge, "the request has more than %d fields and values", most)
	f.Limit = int64(most)
	return f
}

// checkProtoElements returns a TOO_LARGE fault if an encoded message has more fields than the
// number most, at all depths. Malformed data is left to the decoder.
func checkProtoElements(data []byte, md protoreflect.MessageDescriptor, most int) *fault.Error {
	if len(data) < 2*most { // a field has at least two bytes
		return nil
	}
	if left := most; !countFields(data, md.Fields(), &left) {
		return tooManyElements(most)
	}
	return nil
}

// countFields subtracts the number of data's fields, at all depths, from left. It reports whether
// left stayed at 0 or above, and true for malformed data.
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

// checkJSONElements returns a TOO_LARGE fault for a JSON text with more than defaultElements
// objects, lists and members. It counts the characters that begin or separate them, outside of
// strings. JSON has less than half of the elements of the same request in binary, and decoding it
// takes as long, so defaultElements is enough for the requests of all methods.
func checkJSONElements(data []byte) *fault.Error {
	if len(data) <= defaultElements {
		return nil
	}
	n, inText := 0, false
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '\\': // outside of a string it is malformed, which the decoder reports
			i++
		case '"':
			inText = !inText
		case '{', '[', ',':
			if inText {
				continue
			}
			if n++; n > defaultElements {
				return tooManyElements(defaultElements)
			}
		}
	}
	return nil
}
