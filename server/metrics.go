package server

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/parleyhq/parley/server/internal/ident"
	"github.com/parleyhq/parley/server/internal/message"
	"github.com/parleyhq/parley/server/internal/unread"
)

// scope is the instrumentation scope of Parley's instruments and spans.
const scope = "github.com/parleyhq/parley/server"

// pipelineMetrics are the instruments for writes and reads of messages. The hooks of the writer,
// the reader and the forwarding writer record to them.
type pipelineMetrics struct {
	batchSize    metric.Int64Histogram
	inserts      metric.Float64Histogram
	lists        metric.Int64Counter
	sessionLists metric.Int64Counter
	forwards     metric.Int64Counter
}

func newPipelineMetrics(meters metric.MeterProvider) (*pipelineMetrics, error) {
	meter := meters.Meter(scope)
	var m pipelineMetrics
	var err error
	if m.batchSize, err = meter.Int64Histogram("parley.store.insert.entries",
		metric.WithDescription("Entries that one insert of the store carried."), metric.WithUnit("{entry}"),
		metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)); err != nil {
		return nil, err
	}
	if m.inserts, err = meter.Float64Histogram("parley.store.insert.duration",
		metric.WithDescription("Time of one insert of the store, until its entries were durable."), metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5)); err != nil {
		return nil, err
	}
	if m.lists, err = meter.Int64Counter("parley.cache.pages",
		metric.WithDescription("Pages of messages, by whether the cache held them (hit) or the store was read (miss)."),
		metric.WithUnit("{page}")); err != nil {
		return nil, err
	}
	if m.sessionLists, err = meter.Int64Counter("parley.cache.session_pages",
		metric.WithDescription("Those of the pages that are of sessions, by whether the session's list in Redis held them (hit) or the store "+
			"was read (miss)."), metric.WithUnit("{page}")); err != nil {
		return nil, err
	}
	if m.forwards, err = meter.Int64Counter("parley.cluster.forwards",
		metric.WithDescription("Writes passed to their home node, by what became of that: answered, refused, nobody there, "+
			"unanswered in time, or not tried (shunned)."), metric.WithUnit("{request}")); err != nil {
		return nil, err
	}
	return &m, nil
}

// observeUnread creates the gauge of the bytes that wait for clients.
func observeUnread(meters metric.MeterProvider, budget *unread.Budget) error {
	_, err := meters.Meter(scope).Int64ObservableGauge("parley.unread", metric.WithUnit("By"),
		metric.WithDescription("Bytes of responses and of live events that clients have not taken from their connections, with 32 KiB for each call that waits; the first 64 KiB of a stream are not counted."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error { o.Observe(budget.Taken()); return nil }))
	return err
}

// onForward returns the OnForward hook of the forwarding writer. It counts writes by their result.
func (m *pipelineMetrics) onForward(ctx context.Context) func(string) {
	return func(result string) {
		m.forwards.Add(ctx, 1, metric.WithAttributes(attribute.String("result", result)))
	}
}

var (
	resultOK    = metric.WithAttributeSet(attribute.NewSet(attribute.String("result", "ok")))
	resultError = metric.WithAttributeSet(attribute.NewSet(attribute.String("result", "error")))
	resultHit   = metric.WithAttributeSet(attribute.NewSet(attribute.String("result", "hit")))
	resultMiss  = metric.WithAttributeSet(attribute.NewSet(attribute.String("result", "miss")))
)

// onInsert returns the writer's OnInsert hook, which records the size and duration of an insert. It
// uses ctx rather than a request's context because one insert serves many requests.
func (m *pipelineMetrics) onInsert(ctx context.Context) func(int, time.Duration, error) {
	return func(entries int, took time.Duration, err error) {
		result := resultOK
		if err != nil {
			result = resultError
		}
		m.batchSize.Record(ctx, int64(entries), result)
		m.inserts.Record(ctx, took.Seconds(), result)
	}
}

// onList returns the reader's OnList hook, which counts pages from the cache and from the store.
func (m *pipelineMetrics) onList(ctx context.Context) func(string, bool) {
	return func(channelID string, fromCache bool) {
		result := resultMiss
		if fromCache {
			result = resultHit
		}
		m.lists.Add(ctx, 1, result)
		if ident.IsSession(channelID) {
			m.sessionLists.Add(ctx, 1, result)
		}
	}
}

// onDeliver returns the hub's OnDeliver hook. It adds the last span to the trace of the call that
// caused an event: one span per event and node rather than one per subscriber.
func onDeliver(ctx context.Context, tracers trace.TracerProvider, propagator propagation.TextMapPropagator) func(*message.Event, int) {
	tracer := tracers.Tracer(scope)
	return func(e *message.Event, subscribers int) {
		if e.Traceparent == "" {
			return
		}
		parent := propagator.Extract(ctx, propagation.MapCarrier{"traceparent": e.Traceparent})
		_, span := tracer.Start(parent, "deliver "+e.Kind.Name(), trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithAttributes(attribute.Int("parley.subscribers", subscribers)))
		span.End()
	}
}
