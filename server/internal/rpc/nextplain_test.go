package rpc

import (
	"strings"
	"testing"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/reflect/protoreflect"

	nextv1 "github.com/parleyhq/parley/gen/go/parley/next/v1"
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
		m    *nextv1.QueueMessage
		want bool
	}{
		"empty":                        {&nextv1.QueueMessage{}, true},
		"longest key":                  {&nextv1.QueueMessage{Key: strings.Repeat("k", 256)}, true},
		"key too long":                 {&nextv1.QueueMessage{Key: strings.Repeat("k", 257)}, false},
		"key with NUL":                 {&nextv1.QueueMessage{Key: "a\x00"}, false},
		"largest payload":              {&nextv1.QueueMessage{Payload: make([]byte, 262_144)}, true},
		"payload too large":            {&nextv1.QueueMessage{Payload: make([]byte, 262_145)}, false},
		"idempotency key":              {&nextv1.QueueMessage{IdempotencyKey: "!~"}, true},
		"longest idempotency key":      {&nextv1.QueueMessage{IdempotencyKey: strings.Repeat("k", 128)}, true},
		"idempotency key too long":     {&nextv1.QueueMessage{IdempotencyKey: strings.Repeat("k", 129)}, false},
		"idempotency key with a space": {&nextv1.QueueMessage{IdempotencyKey: "a b"}, false},
		"idempotency key with DEL":     {&nextv1.QueueMessage{IdempotencyKey: "a\x7f"}, false},
		"idempotency key of two bytes": {&nextv1.QueueMessage{IdempotencyKey: "é"}, false},
	} {
		if got := isPlain(c.m); got != c.want {
			t.Errorf("%s: plain: %t", name, got)
		}
		if err := checkItem(validator, c.m); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	fields := (&nextv1.QueueMessage{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f, m := fields.Get(i), (&nextv1.QueueMessage{}).ProtoReflect()
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
		plain, _ := m.Interface().(*nextv1.QueueMessage)
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
	m := &nextv1.QueueMessage{Key: "user-4711", Payload: make([]byte, 1024), IdempotencyKey: "0123456789abcdef0123456789abcdef"}
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
