package rpc

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/parleyhq/parley/server/internal/fault"
)

// maxEchoed bounds how many bytes of a name that the client chose are repeated in an error.
const maxEchoed = 64

// checkNames returns a fault for the first name in a JSON request that this server does not know,
// with its path. It checks the names of enum values, which a decoder that ignores unknown fields
// replaces with the default. With strict it also checks the names of fields, which that decoder
// skips. data must be a request that the decoder has accepted.
func checkNames(data []byte, md protoreflect.MessageDescriptor, strict bool) *fault.Error {
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		return malformed("malformed JSON")
	}
	return nameChecker{strict}.object("", object, md)
}

// nameChecker checks the names in a decoded JSON text. strict refuses unknown fields too.
type nameChecker struct{ strict bool }

// object checks the members of a message's object, sorted by name. path is the message's path with
// a trailing dot; empty for the request.
func (c nameChecker) object(path string, object map[string]any, md protoreflect.MessageDescriptor) *fault.Error {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		fd := md.Fields().ByJSONName(name)
		if fd == nil {
			fd = md.Fields().ByTextName(name)
		}
		switch {
		case fd != nil:
			if err := c.field(path+string(fd.Name()), object[name], fd); err != nil {
				return err
			}
		case c.strict:
			f := malformed("%s: unknown field", path+echoed(name))
			f.Field = path + echoed(name)
			return f
		}
	}
	return nil
}

// field checks the value of a field, or each value of a list or map.
func (c nameChecker) field(path string, value any, fd protoreflect.FieldDescriptor) *fault.Error {
	switch values := value.(type) {
	case []any:
		for i, v := range values {
			if err := c.value(fmt.Sprintf("%s[%d]", path, i), v, fd); err != nil {
				return err
			}
		}
		return nil
	case map[string]any:
		if !fd.IsMap() {
			break
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if err := c.value(fmt.Sprintf("%s[%q]", path, echoed(key)), values[key], fd.MapValue()); err != nil {
				return err
			}
		}
		return nil
	}
	return c.value(path, value, fd)
}

func (c nameChecker) value(path string, value any, fd protoreflect.FieldDescriptor) *fault.Error {
	switch v := value.(type) {
	case string:
		if enum := fd.Enum(); enum != nil && enum.Values().ByName(protoreflect.Name(v)) == nil {
			return fault.Invalid(path, 0, "%s: %s has no value %q", path, enum.Name(), echoed(v))
		}
	case map[string]any:
		// Messages of google.protobuf that have a JSON form of their own, such as Struct and Any,
		// are not objects of their fields.
		if md := fd.Message(); md != nil && md.ParentFile().Package() != "google.protobuf" {
			return c.object(path+".", v, md)
		}
	}
	return nil
}

// echoed returns name. If it has more than maxEchoed bytes, it is cut there and "…" is appended.
func echoed(name string) string {
	if len(name) <= maxEchoed {
		return name
	}
	return strings.ToValidUTF8(name[:maxEchoed], "") + "…"
}
