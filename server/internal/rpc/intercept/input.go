package intercept

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/parleyhq/parley/server/internal/fault"
)

// CheckInput returns an error for a message that can be decoded but not used: with a NUL in a
// string, at which databases and shells cut it, or with a time or duration out of range. The error
// is an INVALID_FIELD fault that names the field.
func CheckInput(m proto.Message) error {
	if err := checkMessage(m.ProtoReflect(), ""); err != nil {
		return err // a nil *fault.Error must not become a non-nil error
	}
	return nil
}

func checkMessage(m protoreflect.Message, path string) (found *fault.Error) {
	if !validTime(m) {
		return fault.Invalid(path, 0, "%s: is out of range", path)
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		at := string(fd.Name())
		if path != "" {
			at = path + "." + at
		}
		switch {
		case fd.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				name := fmt.Sprintf("%s[%q]", at, k.String())
				if found = checkValue(fd.MapKey(), k.Value(), name); found == nil {
					found = checkValue(fd.MapValue(), v, name)
				}
				return found == nil
			})
		case fd.IsList():
			list := v.List()
			for i := 0; i < list.Len() && found == nil; i++ {
				if needsCheck(fd) {
					found = checkValue(fd, list.Get(i), at+"["+strconv.Itoa(i)+"]")
				}
			}
		default:
			found = checkValue(fd, v, at)
		}
		return found == nil
	})
	return found
}

func needsCheck(fd protoreflect.FieldDescriptor) bool {
	return fd.Kind() == protoreflect.StringKind || fd.Message() != nil
}

func checkValue(fd protoreflect.FieldDescriptor, v protoreflect.Value, path string) *fault.Error {
	switch fd.Kind() {
	case protoreflect.StringKind:
		if strings.IndexByte(v.String(), 0) >= 0 {
			return fault.Invalid(path, 0, "%s: must not contain a NUL character", path)
		}
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return checkMessage(v.Message(), path)
	default:
	}
	return nil
}

func validTime(m protoreflect.Message) bool {
	switch t := m.Interface().(type) {
	case *timestamppb.Timestamp:
		return t.IsValid()
	case *durationpb.Duration:
		return t.IsValid()
	default:
		return true
	}
}
