package rpc

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// checkEnumNames finds the name of an enum's value that this server does not know, and names the field. The decoder that passes
// over unknown fields takes such a name for the default, which is not what was asked for.
func checkEnumNames(data []byte, md protoreflect.MessageDescriptor) error {
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		return fmt.Errorf("read the names of enums: %w", err)
	}
	return checkObject("", object, md)
}

// checkObject goes through the members of a message's object, in the order of their names; path is that of the message, with a
// dot at its end.
func checkObject(path string, object map[string]any, md protoreflect.MessageDescriptor) error {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		fd := md.Fields().ByJSONName(name)
		if fd == nil {
			fd = md.Fields().ByTextName(name)
		}
		if fd == nil {
			continue
		}
		if err := checkField(path+string(fd.Name()), object[name], fd); err != nil {
			return err
		}
	}
	return nil
}

// checkField looks at each value that a field has.
func checkField(path string, value any, fd protoreflect.FieldDescriptor) error {
	switch values := value.(type) {
	case []any:
		for i, v := range values {
			if err := checkValue(fmt.Sprintf("%s[%d]", path, i), v, fd); err != nil {
				return err
			}
		}
		return nil
	case map[string]any:
		if !fd.IsMap() {
			break
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if err := checkValue(fmt.Sprintf("%s[%q]", path, key), values[key], fd.MapValue()); err != nil {
				return err
			}
		}
		return nil
	}
	return checkValue(path, value, fd)
}

func checkValue(path string, value any, fd protoreflect.FieldDescriptor) error {
	switch v := value.(type) {
	case string:
		if enum := fd.Enum(); enum != nil && enum.Values().ByName(protoreflect.Name(v)) == nil {
			return fmt.Errorf("%s: %s has no value %q", path, enum.Name(), v)
		}
	case map[string]any:
		// What google.protobuf has of its own, as Struct and Any, is no object of its fields.
		if md := fd.Message(); md != nil && md.ParentFile().Package() != "google.protobuf" {
			return checkObject(path+".", v, md)
		}
	}
	return nil
}
