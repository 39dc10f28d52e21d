package rpc

import (
	"bytes"
	"regexp"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// masks maps the name of each request with field masks to a pattern that matches such a field in
// JSON: its name, and its value in quotes. Inside another string the quotes are escaped, so the
// pattern does not match there.
var masks = func() map[protoreflect.FullName]*regexp.Regexp {
	out := make(map[protoreflect.FullName]*regexp.Regexp)
	for _, m := range api.all {
		var names []string
		request := m.descriptor.Input()
		fields := request.Fields()
		for i := range fields.Len() {
			if fd := fields.Get(i); fd.Message() != nil && fd.Message().FullName() == "google.protobuf.FieldMask" {
				names = append(names, regexp.QuoteMeta(string(fd.Name())), regexp.QuoteMeta(fd.JSONName()))
			}
		}
		if len(names) > 0 {
			out[request.FullName()] = regexp.MustCompile(`"(?:` + strings.Join(names, "|") + `)"\s*:\s*("[A-Za-z0-9_.,]*")`)
		}
	}
	return out
}()

// camelMasks returns a JSON request with the paths of its field masks in camel case, the only form
// that the decoder accepts. Clients may write them in snake case or camel case, like the names of
// fields. The length of the text and its lines do not change, so that positions in errors stay
// correct. data is not modified.
func camelMasks(data []byte, request protoreflect.FullName) []byte {
	pattern := masks[request]
	if pattern == nil {
		return data
	}
	var out []byte
	for _, at := range pattern.FindAllSubmatchIndex(data, -1) {
		value := data[at[2]:at[3]]
		if bytes.IndexByte(value, '_') < 0 {
			continue
		}
		if out == nil {
			out = bytes.Clone(data)
		}
		camel := camelPaths(value)
		n := at[2] + copy(out[at[2]:], camel)
		for ; n < at[3]; n++ {
			out[n] = ' '
		}
	}
	if out == nil {
		return data
	}
	return out
}

// camelPaths converts the paths of a field mask to camel case: it removes each underscore before a
// lower-case letter, and makes the letter upper case.
func camelPaths(paths []byte) []byte {
	out := make([]byte, 0, len(paths))
	for i := 0; i < len(paths); i++ {
		if paths[i] == '_' && i+1 < len(paths) && 'a' <= paths[i+1] && paths[i+1] <= 'z' {
			i++
			out = append(out, paths[i]-'a'+'A')
			continue
		}
		out = append(out, paths[i])
	}
	return out
}
