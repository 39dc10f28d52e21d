package rpc

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// millis returns d, rounded up to milliseconds.
func millis(d *durationpb.Duration) time.Duration {
	return (d.AsDuration() + time.Millisecond - 1).Truncate(time.Millisecond)
}

// millisAt returns t, rounded up to milliseconds.
func millisAt(t *timestamppb.Timestamp) time.Time {
	at := t.AsTime()
	if cut := at.Truncate(time.Millisecond); !cut.Equal(at) {
		return cut.Add(time.Millisecond)
	}
	return at
}

// traceBatch adds a batch's topic and number of messages to the call's span.
func traceBatch(ctx context.Context, topic string, items int) {
	trace.SpanFromContext(ctx).SetAttributes(
		attribute.String("messaging.system", "parley"), attribute.String("messaging.destination.name", topic),
		attribute.Int("messaging.batch.message_count", items))
}
