package parleytest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// violation names the first invalid field of a request, and the limit that it violates. The limit
// is 0 if the rule has none.
type violation struct {
	path  string
	limit int64
}

// checkForm validates a message against the rules in its proto, as the server does. It returns the
// error of the first invalid field, or nil. It implements only the kinds of rules that Parley's
// protos use.
func checkForm(m proto.Message) error {
	if v := checkMessage("", m.ProtoReflect()); v != nil {
		return invalidField(v.path, v.limit)
	}
	return nil
}

func checkMessage(prefix string, m protoreflect.Message) *violation {
	d := m.Descriptor()
	for i := range d.Oneofs().Len() {
		one := d.Oneofs().Get(i)
		rules, _ := proto.GetExtension(one.Options(), validate.E_Oneof).(*validate.OneofRules)
		if rules.GetRequired() && m.WhichOneof(one) == nil {
			return &violation{prefix + string(one.Name()), 0}
		}
	}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		rules, _ := proto.GetExtension(fd.Options(), validate.E_Field).(*validate.FieldRules)
		path := prefix + fd.TextName()
		if fd.HasPresence() && !m.Has(fd) {
			if rules.GetRequired() {
				return &violation{path, 0}
			}
			continue
		}
		if v := checkField(path, fd, m.Get(fd), rules); v != nil {
			return v
		}
	}
	return nil
}

func checkField(path string, fd protoreflect.FieldDescriptor, value protoreflect.Value, rules *validate.FieldRules) *violation {
	switch {
	case fd.IsMap():
		return checkMap(path, value.Map(), rules.GetMap())
	case fd.IsList():
		return checkList(path, fd, value.List(), rules.GetRepeated())
	default:
		return checkValue(path, fd, value, rules)
	}
}

func checkMap(path string, pairs protoreflect.Map, rules *validate.MapRules) *violation {
	if rules.HasMaxPairs() && pairs.Len() > int(rules.GetMaxPairs()) {
		return &violation{path, int64(rules.GetMaxPairs())}
	}
	all := make(map[string]string)
	pairs.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		all[k.String()] = v.String()
		return true
	})
	for _, key := range slices.Sorted(maps.Keys(all)) {
		at := fmt.Sprintf("%s[%q]", path, key)
		if v := checkString(at, key, rules.GetKeys().GetString()); v != nil {
			return v
		}
		if v := checkString(at, all[key], rules.GetValues().GetString()); v != nil {
			return v
		}
	}
	return nil
}

func checkList(path string, fd protoreflect.FieldDescriptor, list protoreflect.List, rules *validate.RepeatedRules) *violation {
	n := list.Len()
	switch {
	case rules.HasMinItems() && n < int(rules.GetMinItems()):
		return &violation{path, int64(rules.GetMinItems())}
	case rules.HasMaxItems() && n > int(rules.GetMaxItems()):
		return &violation{path, int64(rules.GetMaxItems())}
	case rules.GetItems().GetIgnore() == validate.Ignore_IGNORE_ALWAYS:
		return nil
	}
	for i := range n {
		if v := checkValue(fmt.Sprintf("%s[%d]", path, i), fd, list.Get(i), rules.GetItems()); v != nil {
			return v
		}
	}
	return nil
}

func checkValue(path string, fd protoreflect.FieldDescriptor, value protoreflect.Value, rules *validate.FieldRules) *violation {
	switch {
	case fd.Kind() == protoreflect.StringKind:
		return checkString(path, value.String(), rules.GetString())
	case fd.Kind() == protoreflect.BytesKind:
		if r := rules.GetBytes(); r.HasMaxLen() && len(value.Bytes()) > int(r.GetMaxLen()) {
			return &violation{path, int64(r.GetMaxLen())}
		}
	case fd.Kind() == protoreflect.EnumKind:
		if r := rules.GetEnum(); r.GetDefinedOnly() && fd.Enum().Values().ByNumber(value.Enum()) == nil ||
			slices.Contains(r.GetNotIn(), int32(value.Enum())) {
			return &violation{path, 0}
		}
	case fd.Kind() == protoreflect.Int32Kind:
		r := rules.GetInt32()
		return checkRange(path, value.Int(), wide(r.GetGte(), r.HasGte()), wide(r.GetLte(), r.HasLte()))
	case fd.Kind() == protoreflect.Int64Kind:
		r := rules.GetInt64()
		return checkRange(path, value.Int(), wide(r.GetGte(), r.HasGte()), wide(r.GetLte(), r.HasLte()))
	case fd.Kind() == protoreflect.MessageKind:
		return checkSub(path, value.Message(), rules)
	default:
	}
	return nil
}

// wide returns n as *int64, or nil if ok is false.
func wide[T int32 | int64](n T, ok bool) *int64 {
	if !ok {
		return nil
	}
	return new(int64(n))
}

func checkRange(path string, n int64, low, high *int64) *violation {
	switch {
	case low != nil && n < *low:
		return &violation{path, *low}
	case high != nil && n > *high:
		return &violation{path, *high}
	default:
		return nil
	}
}

// checkSub validates a field that contains a message.
func checkSub(path string, m protoreflect.Message, rules *validate.FieldRules) *violation {
	switch one := m.Interface().(type) {
	case *durationpb.Duration:
		r := rules.GetDuration()
		d := one.AsDuration()
		if low := r.GetGte(); low != nil && d < low.AsDuration() {
			return &violation{path, low.GetSeconds()}
		}
		if high := r.GetLte(); high != nil && d > high.AsDuration() {
			return &violation{path, high.GetSeconds()}
		}
		return nil
	case *timestamppb.Timestamp:
		r := rules.GetTimestamp()
		low, high := r.GetGte(), r.GetLte()
		if !one.IsValid() || low != nil && one.AsTime().Before(low.AsTime()) || high != nil && one.AsTime().After(high.AsTime()) {
			return &violation{path, 0}
		}
		return nil
	default:
		return checkMessage(path+".", m)
	}
}

func checkString(path, text string, rules *validate.StringRules) *violation {
	switch {
	case strings.ContainsRune(text, 0), !utf8.ValidString(text):
		return &violation{path, 0}
	case rules == nil:
		return nil
	case rules.MinBytes != nil && len(text) < int(rules.GetMinBytes()):
		return &violation{path, int64(rules.GetMinBytes())}
	case rules.MaxBytes != nil && len(text) > int(rules.GetMaxBytes()):
		return &violation{path, int64(rules.GetMaxBytes())}
	case rules.MaxLen != nil && utf8.RuneCountInString(text) > int(rules.GetMaxLen()):
		return &violation{path, int64(rules.GetMaxLen())}
	case rules.Pattern != nil && !regexp.MustCompile(rules.GetPattern()).MatchString(text), slices.Contains(rules.GetNotIn(), text),
		len(rules.GetIn()) > 0 && !slices.Contains(rules.GetIn(), text):
		return &violation{path, 0}
	default:
		return nil
	}
}

// reservedKey returns the first key in sorted order that begins with one of the prefixes, and
// whether there is one.
func reservedKey(pairs map[string]string, prefixes ...string) (string, bool) {
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		for _, prefix := range prefixes {
			if strings.HasPrefix(key, prefix) {
				return key, true
			}
		}
	}
	return "", false
}
