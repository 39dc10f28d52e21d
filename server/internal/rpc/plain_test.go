package rpc

import (
	"strings"
	"testing"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/reflect/protoreflect"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// TestPlainMessages checks that isPlain accepts the messages up to the limits of the schema and
// none that checkItem refuses, and no message with another field than those that it knows.
func TestPlainMessages(t *testing.T) {
	t.Parallel()
	validator, err := protovalidate.New()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		m    *parleyv1.QueueMessage
		want bool
	}{
		"empty":                        {&parleyv1.QueueMessage{}, true},
		"longest key":                  {&parleyv1.QueueMessage{Key: strings.Repeat("k", 256)}, true},
		"key too long":                 {&parleyv1.QueueMessage{Key: strings.Repeat("k", 257)}, false},
		"key with NUL":                 {&parleyv1.QueueMessage{Key: "a\x00"}, false},
		"largest payload":              {&parleyv1.QueueMessage{Payload: make([]byte, 262_144)}, true},
		"payload too large":            {&parleyv1.QueueMessage{Payload: make([]byte, 262_145)}, false},
		"idempotency key":              {&parleyv1.QueueMessage{IdempotencyKey: "!~"}, true},
		"longest idempotency key":      {&parleyv1.QueueMessage{IdempotencyKey: strings.Repeat("k", 128)}, true},
		"idempotency key too long":     {&parleyv1.QueueMessage{IdempotencyKey: strings.Repeat("k", 129)}, false},
		"idempotency key with a space": {&parleyv1.QueueMessage{IdempotencyKey: "a b"}, false},
		"idempotency key with DEL":     {&parleyv1.QueueMessage{IdempotencyKey: "a\x7f"}, false},
		"idempotency key of two bytes": {&parleyv1.QueueMessage{IdempotencyKey: "é"}, false},
	} {
		if got := isPlain(c.m); got != c.want {
			t.Errorf("%s: plain: %t", name, got)
		}
		if err := checkItem(validator, c.m); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	fields := (&parleyv1.QueueMessage{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f, m := fields.Get(i), (&parleyv1.QueueMessage{}).ProtoReflect()
		switch {
		case f.Name() == "key", f.Name() == "payload", f.Name() == "idempotency_key":
			continue
		case f.IsMap():
			m.Mutable(f).Map().Set(protoreflect.ValueOfString("h").MapKey(), protoreflect.ValueOfString(""))
		case f.Message() != nil:
			m.Mutable(f)
		default:
			m.Set(f, f.Default())
		}
		plain, _ := m.Interface().(*parleyv1.QueueMessage)
		if isPlain(plain) {
			t.Errorf("a message with %s is plain", f.Name())
		}
	}
}

func BenchmarkCheckItem(b *testing.B) {
	validator, err := protovalidate.New()
	if err != nil {
		b.Fatal(err)
	}
	m := &parleyv1.QueueMessage{Key: "user-4711", Payload: make([]byte, 1024), IdempotencyKey: "0123456789abcdef0123456789abcdef"}
	b.Run("reflection", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := checkItem(validator, m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("plain", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !isPlain(m) {
				b.Fatal("not plain")
			}
		}
	})
}
