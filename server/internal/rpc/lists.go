package rpc

import (
	"slices"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/parleyhq/parley/server/internal/fault"
)

// maxMaskPaths bounds the paths of one field mask. The schema has no rule for them.
const maxMaskPaths = 16

// boundedList is a list or map in a message whose number of items the schema limits.
type boundedList struct {
	// path holds the fields that lead from the message to the list. All but the last are messages.
	path []protoreflect.FieldDescriptor
	// name is the path in errors, with dots.
	name string
	max  int
}

// rulesOf returns the schema's rules for a field of a message. They are empty if there is no such
// field or it has none.
func rulesOf(md protoreflect.MessageDescriptor, field protoreflect.Name) *validate.FieldRules {
	fd := md.Fields().ByName(field)
	if fd == nil {
		return nil
	}
	return fieldRules(fd)
}

func fieldRules(fd protoreflect.FieldDescriptor) *validate.FieldRules {
	rules, err := protovalidate.ResolveFieldRules(fd)
	if err != nil {
		return nil // the validator of NewHandler fails for the same reason
	}
	return rules
}

// maxItems returns the schema's limit on the items of a list or the pairs of a map; 0 if there is
// none.
func maxItems(fd protoreflect.FieldDescriptor) int {
	rules := fieldRules(fd)
	return int(max(rules.GetRepeated().GetMaxItems(), rules.GetMap().GetMaxPairs())) //nolint:gosec // the schema's are small
}

// boundedLists returns the lists and maps that the schema bounds in a message and in the messages
// of its singular fields, and the paths of field masks. Lists of numbers and enum values are left
// to the schema's rules: they are cheap.
//
// The lengths are checked before the rules are applied, because a request of two megabytes holds a
// million empty items, and validating those one by one takes seconds. Lists in the items are
// checked when the items are.
func boundedLists(md protoreflect.MessageDescriptor) []boundedList {
	return appendLists(nil, md, nil, "")
}

func appendLists(
	out []boundedList, md protoreflect.MessageDescriptor, path []protoreflect.FieldDescriptor, prefix string,
) []boundedList {
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		here, name := append(slices.Clone(path), fd), prefix+string(fd.Name())
		switch inner := fd.Message(); {
		case fd.IsMap(), fd.IsList() && (inner != nil || fd.Kind() == protoreflect.StringKind || fd.Kind() == protoreflect.BytesKind):
			if most := maxItems(fd); most > 0 {
				out = append(out, boundedList{here, name, most})
			}
		case fd.IsList(), inner == nil, slices.ContainsFunc(path, func(at protoreflect.FieldDescriptor) bool { return at.Message() == inner }):
		case inner.FullName() == "google.protobuf.FieldMask":
			out = append(out, boundedList{append(here, inner.Fields().ByName("paths")), name, maxMaskPaths})
		default:
			out = appendLists(out, inner, here, name+".")
		}
	}
	return out
}

// checkLists returns a fault if one of the lists has more items in m than the schema allows. It
// reads no item.
func checkLists(m proto.Message, lists []boundedList) error {
	for i := range lists {
		l := &lists[i]
		if n := l.len(m.ProtoReflect()); n > l.max {
			return fault.Invalid(l.name, int64(l.max), "%s: has %d items, at most %d are allowed", l.name, n, l.max)
		}
	}
	return nil
}

// len returns the number of items of the list, or of pairs of the map, in m.
func (l *boundedList) len(m protoreflect.Message) int {
	for _, fd := range l.path[:len(l.path)-1] {
		if !m.Has(fd) {
			return 0
		}
		m = m.Get(fd).Message()
	}
	fd := l.path[len(l.path)-1]
	switch {
	case !m.Has(fd):
		return 0
	case fd.IsMap():
		return m.Get(fd).Map().Len()
	default:
		return m.Get(fd).List().Len()
	}
}

// itemsOf returns the list of the request whose items the handler validates one by one, each with a
// result of its own; nil if there is none. found is also true if such a list is not in the request
// itself but in one of its messages.
func itemsOf(request protoreflect.MessageDescriptor) (own protoreflect.FieldDescriptor, found bool) { //nolint:ireturn // it is one
	for _, l := range boundedLists(request) {
		fd := l.path[len(l.path)-1]
		if fieldRules(fd).GetRepeated().GetItems().GetIgnore() != validate.Ignore_IGNORE_ALWAYS {
			continue
		}
		if found = true; len(l.path) == 1 {
			own = fd
		}
	}
	return own, found
}
