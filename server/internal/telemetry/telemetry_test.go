package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/parleyhq/parley/server/internal/telemetry"
)

func setup(t *testing.T, cfg telemetry.Config) (*telemetry.Telemetry, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	cfg.Output = &out
	tel, err := telemetry.Setup(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tel.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return tel, &out
}

func TestLogHasRequestAndTraceIDs(t *testing.T) {
	t.Parallel()
	tel, out := setup(t, telemetry.Config{TraceRatio: 1})
	ctx, span := tel.Tracers.Tracer("test").Start(telemetry.WithRequestID(t.Context(), "req-1"), "x")
	defer span.End()
	tel.Logger.With("a", 1).InfoContext(ctx, "hello\n\u2028\x1b[31m")
	tel.Logger.Debug("too low")
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || strings.Count(out.String(), "\n") != 1 {
		t.Fatalf("not one JSON line: %v\n%s", err, out)
	}
	want := span.SpanContext()
	if line["request_id"] != "req-1" || line["trace_id"] != want.TraceID().String() || line["span_id"] != want.SpanID().String() {
		t.Errorf("lacks ids: %v", line)
	}
	if bytes.ContainsAny(out.Bytes(), "\x1b\u2028") {
		t.Errorf("control characters reach the log: %q", out)
	}
}

// A remote caller's sampled flag must not override the ratio.
func TestSampleRatio(t *testing.T) {
	t.Parallel()
	remote := propagation.MapCarrier{"traceparent": "00-ffffffffffffffffffffffffffffffff-00f067aa0ba902b7-01"}
	for ratio, want := range map[float64]bool{0: false, 1: true} {
		spans := tracetest.NewInMemoryExporter()
		tel, _ := setup(t, telemetry.Config{TraceRatio: ratio, Spans: spans})
		ctx := tel.Propagator.Extract(t.Context(), remote)
		_, span := tel.Tracers.Tracer("test").Start(ctx, "x")
		span.End()
		if got := span.SpanContext().IsSampled(); got != want || (len(spans.GetSpans()) == 1) != want {
			t.Errorf("ratio %v: sampled is %v, %d spans", ratio, got, len(spans.GetSpans()))
		}
	}
}

func TestOps(t *testing.T) {
	t.Parallel()
	tel, _ := setup(t, telemetry.Config{Level: slog.LevelError})
	counter, err := tel.Meters.Meter("test").Int64Counter("parley.cache.hits")
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(t.Context(), 3)
	storeErr := errors.New("store is away")
	var ready bool
	server := httptest.NewServer(tel.OpsHandler(telemetry.Checks{
		"store": func(context.Context) error {
			if ready {
				return nil
			}
			return storeErr
		},
		"nats": func(context.Context) error { return nil },
	}, telemetry.Checks{"redis": func(context.Context) error { return errors.New("redis is away") }}))
	defer server.Close()
	get := func(path string) (int, string) {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	if code, body := get("/readyz"); code != 503 || !strings.Contains(body, storeErr.Error()) || !strings.Contains(body, `"nats":"ok"`) {
		t.Errorf("not ready: %d %s", code, body)
	}
	ready = true
	if code, body := get("/readyz"); code != 200 || !strings.Contains(body, "redis is away") {
		t.Errorf("ready: %d %s", code, body)
	}
	if code, body := get("/healthz"); code != 200 {
		t.Errorf("healthz: %d %s", code, body)
	}
	_, metrics := get("/metrics")
	for _, want := range []string{"parley_cache_hits_total 3", "go_goroutine_count", "process_resident_memory_bytes"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s:\n%s", want, metrics)
		}
	}
	if code, body := get("/debug/pprof/goroutine?debug=1"); code != 200 || !strings.Contains(body, "goroutine profile") {
		t.Errorf("pprof: %d", code)
	}
	if code, _ := get("/nothing"); code != 404 {
		t.Errorf("unknown path: %d", code)
	}
}
