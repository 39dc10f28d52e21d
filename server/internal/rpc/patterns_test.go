package rpc

import (
	"strings"
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// TestPatternTextsMatchSchema checks that every pattern of the schema has a sentence, and that no
// sentence is left over.
func TestPatternTextsMatchSchema(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	protoregistry.GlobalFiles.RangeFilesByPackage("parley.v1", func(file protoreflect.FileDescriptor) bool {
		patternsOf(t, file.Messages(), seen)
		return true
	})
	for pattern := range seen {
		if patternTexts[pattern] == "" {
			t.Errorf("errors about the pattern %s show the pattern, not a sentence", pattern)
		}
	}
	for pattern := range patternTexts {
		if !seen[pattern] {
			t.Errorf("the schema does not have the pattern %s", pattern)
		}
	}
}

// patternsOf adds the patterns of the messages' fields to seen.
func patternsOf(t *testing.T, messages protoreflect.MessageDescriptors, seen map[string]bool) {
	t.Helper()
	for i := range messages.Len() {
		md := messages.Get(i)
		patternsOf(t, md.Messages(), seen)
		for j := range md.Fields().Len() {
			rules, err := protovalidate.ResolveFieldRules(md.Fields().Get(j))
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range []*validate.FieldRules{
				rules, rules.GetRepeated().GetItems(), rules.GetMap().GetKeys(), rules.GetMap().GetValues(),
			} {
				if s := r.GetString(); s.HasPattern() {
					seen[s.GetPattern()] = true
				}
			}
		}
	}
}

// TestPatternTexts checks the texts that clients get, in the error's message and in the violation.
func TestPatternTexts(t *testing.T) {
	t.Parallel()
	header := func(name, value string) proto.Message {
		return &parleyv1.QueueMessage{Headers: map[string]string{name: value}}
	}
	for name, tt := range map[string]struct {
		message proto.Message
		want    string
	}{
		"a field":          {&parleyv1.KickUserRequest{}, "user_id: must be 1 to 128 printable ASCII characters without spaces"},
		"an item":          {&parleyv1.ConsumeRequest{Topics: []string{"x y"}, Group: "g", Consumer: "c"}, "topics[0]: must be 1 to 64 of A-Z a-z 0-9 _ -"},
		"a header's name":  {header("a b", "x"), `headers["a b"]: the name must be 1 to 64 of A-Z a-z 0-9 _ . -`},
		"a header's value": {header("h", "a\nb"), `headers["h"]: the value must not contain CR, LF or NUL`},
		"the same, CR":     {header("h", "\r"), `headers["h"]: the value must not contain CR, LF or NUL`},
		"another rule":     {header("h", strings.Repeat("v", 1025)), `headers["h"]: must be at most 1024 bytes`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wire := toWire(t.Context(), protovalidate.Validate(tt.message))
			if wire.Code() != connect.CodeInvalidArgument || wire.Message() != tt.want {
				t.Errorf("%s %q, want %q", wire.Code(), wire.Message(), tt.want)
			}
			_, text, _ := strings.Cut(tt.want, ": ")
			var violation string
			for _, d := range wire.Details() {
				m, err := d.Value()
				if err != nil {
					t.Fatal(err)
				}
				if v, ok := m.(*validate.Violations); ok {
					violation = v.GetViolations()[0].GetMessage()
				}
			}
			if violation != text {
				t.Errorf("the violation says %q, want %q", violation, text)
			}
		})
	}
}
