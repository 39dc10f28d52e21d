package produce

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/parleyhq/parley/server/internal/queue/qlog"
)

// The tags of the fields key, payload and headers of a Delivery, and of the key and the value of a
// header. They are written here, because this package knows no wire formats but that of its store;
// a test compares them with the generated code.
const (
	tagKey     = 4<<3 | 2
	tagPayload = 5<<3 | 2
	tagHeader  = 6<<3 | 2
	tagName    = 1<<3 | 2
	tagValue   = 2<<3 | 2
)

const (
	traceParent = "traceparent"
	traceState  = "tracestate"
)

// optionsSize is about what the options of a message add to its record.
const optionsSize = 256

// defaultUniqueFor is how long a message has its unique key unless it says otherwise.
const defaultUniqueFor = 24 * time.Hour

// tracing returns the trace headers of ctx if it is sampled, else nil: a trace that is not sampled
// is recorded nowhere.
func tracing(ctx context.Context) map[string]string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return nil
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier
}

// encode returns the body of a message, and how much of it is content: what must be the same in a
// repeat, that is all but the trace headers, which come last.
func (m *Message) encode(trace map[string]string) (body []byte, content int) {
	size := len(m.Key) + len(m.Payload) + 16
	for name, value := range m.Headers {
		size += len(name) + len(value) + 16
	}
	body = make([]byte, 0, size+128)
	if m.Key != "" {
		body = appendField(body, tagKey, m.Key)
	}
	if len(m.Payload) > 0 {
		body = appendField(body, tagPayload, m.Payload)
	}
	var names []string
	if len(m.Headers) > 0 { // most messages have none
		names = slices.Sorted(maps.Keys(m.Headers))
	}
	for _, name := range names {
		if name != traceParent && name != traceState {
			body = appendHeader(body, name, m.Headers[name])
		}
	}
	content = len(body)
	if _, own := m.Headers[traceParent]; own || trace == nil {
		trace = m.Headers
	}
	for _, name := range []string{traceParent, traceState} {
		if value, ok := trace[name]; ok {
			body = appendHeader(body, name, value)
		}
	}
	return body, content
}

func appendField[T string | []byte](b []byte, tag byte, value T) []byte {
	b = binary.AppendUvarint(append(b, tag), uint64(len(value)))
	return append(b, value...)
}

func appendHeader(b []byte, name, value string) []byte {
	size := 2 + uvarintLen(len(name)) + len(name) + uvarintLen(len(value)) + len(value)
	b = binary.AppendUvarint(append(b, tagHeader), uint64(size)) //nolint:gosec // a length
	return appendField(appendField(b, tagName, name), tagValue, value)
}

// uvarintLen returns the length of a length that is below 2^21.
func uvarintLen(n int) int {
	switch {
	case n < 1<<7:
		return 1
	case n < 1<<14:
		return 2
	default:
		return 3
	}
}

// draft returns the message as the store takes it. repeatable: a repeat must be recognised by
// content.
func (m *Message) draft(body []byte, content int, repeatable bool) qlog.Draft {
	d := qlog.Draft{
		Key: m.Key, Body: body, IdempotencyKey: m.IdempotencyKey, Delay: m.Delay, At: m.At,
		Options: qlog.Options{MaxAttempts: m.MaxAttempts, Timeout: m.Timeout, TTL: m.TTL},
	}
	if repeatable || m.IdempotencyKey != "" {
		sum := sha256.Sum256(body[:content])
		d.Digest = string(sum[:])
	}
	if u := m.Unique; u != nil {
		d.UniqueKey, d.UniqueRunning, d.OnConflict = u.Key, u.WhileRunning, u.OnConflict
		d.UniqueFor = u.AtMost
		if d.UniqueFor == 0 {
			d.UniqueFor = defaultUniqueFor
		}
	}
	return d
}
