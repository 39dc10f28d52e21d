// Package telemetry sets up logging, traces and metrics, and serves the ops address: health,
// metrics and profiles.
//
// It has no global state: two servers in one process have separate telemetry. Metrics have no user,
// channel or peer labels, because outsiders decide how many there are. No span or event is created
// per streamed message.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/contrib/instrumentation/runtime"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Config configures Setup. The zero value logs JSON at level info to standard error, and exports no
// traces.
type Config struct {
	// Version is the version of the server, for traces and metrics.
	Version string
	// OTLPEndpoint is the base URL of a collector for OTLP over HTTP. If it is empty, no traces are
	// sent.
	OTLPEndpoint string
	// TraceRatio is the fraction of requests that are traced, 0 to 1.
	TraceRatio float64
	// Level is the minimum level that is logged.
	Level slog.Level
	// Text logs in slog's text form instead of JSON.
	Text bool
	// Output is the destination of the log; nil means standard error.
	Output io.Writer
	// Spans, if not nil, receives every finished span that was sampled, in addition to the collector.
	// It is for tests.
	Spans sdktrace.SpanExporter
}

// Telemetry provides the logger, tracers and meters of the server. It is immutable.
type Telemetry struct {
	Logger     *slog.Logger
	Tracers    trace.TracerProvider
	Meters     metric.MeterProvider
	Propagator propagation.TextMapPropagator

	registry *prometheus.Registry
	shutdown []func(context.Context) error
}

// Setup creates the logger, tracers and meters. It succeeds even if the collector cannot be
// reached; spans are dropped until it can.
func Setup(ctx context.Context, cfg Config) (*Telemetry, error) {
	t := &Telemetry{
		Logger:     newLogger(&cfg),
		Propagator: propagation.TraceContext{},
		registry:   prometheus.NewRegistry(),
	}
	res := resource.NewSchemaless(
		attribute.String("service.name", "parleyd"), attribute.String("service.version", cfg.Version))
	if err := t.setupTraces(ctx, &cfg, res); err != nil {
		return nil, err
	}
	if err := t.setupMetrics(res); err != nil {
		return nil, errors.Join(err, t.Shutdown(ctx))
	}
	return t, nil
}

func (t *Telemetry) setupTraces(ctx context.Context, cfg *Config, res *resource.Resource) error {
	ratio := sdktrace.TraceIDRatioBased(cfg.TraceRatio)
	opts := []sdktrace.TracerProviderOption{
		sdktrace.WithResource(res),
		// A client's sampled flag only requests a trace. The ratio decides, because otherwise any
		// client could have all its requests traced.
		sdktrace.WithSampler(sdktrace.ParentBased(ratio, sdktrace.WithRemoteParentSampled(ratio))),
	}
	if cfg.OTLPEndpoint != "" {
		exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(cfg.OTLPEndpoint))
		if err != nil {
			return fmt.Errorf("trace exporter: %w", err)
		}
		opts = append(opts, sdktrace.WithBatcher(exporter))
	}
	if cfg.Spans != nil {
		opts = append(opts, sdktrace.WithSyncer(cfg.Spans))
	}
	provider := sdktrace.NewTracerProvider(opts...)
	t.Tracers = provider
	t.shutdown = append(t.shutdown, provider.Shutdown)
	return nil
}

func (t *Telemetry) setupMetrics(res *resource.Resource) error {
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(t.registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return fmt.Errorf("metric exporter: %w", err)
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithResource(res), sdkmetric.WithReader(exporter))
	t.Meters = provider
	t.shutdown = append(t.shutdown, provider.Shutdown)
	if err := runtime.Start(runtime.WithMeterProvider(provider)); err != nil {
		return fmt.Errorf("runtime metrics: %w", err)
	}
	if err := t.registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})); err != nil {
		return fmt.Errorf("process metrics: %w", err)
	}
	return nil
}

// Shutdown sends the remaining spans and releases all resources. ctx bounds the sending.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	var errs []error
	for _, f := range t.shutdown {
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}

func newLogger(cfg *Config) *slog.Logger {
	out := cfg.Output
	if out == nil {
		out = os.Stderr
	}
	opts := &slog.HandlerOptions{Level: cfg.Level}
	if cfg.Text {
		return slog.New(&contextHandler{slog.NewTextHandler(out, opts)})
	}
	return slog.New(&contextHandler{slog.NewJSONHandler(out, opts)})
}
