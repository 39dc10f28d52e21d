package server_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/parleyhq/parley/server"
	"github.com/parleyhq/parley/server/config"
	"github.com/parleyhq/parley/server/internal/testkit"
	"github.com/parleyhq/parley/server/servertest"
)

// TestOneTraceFromSendToDelivery checks that a message's send, its event's publication, the cache's
// update and the delivery to subscribers are spans of one trace.
func TestOneTraceFromSendToDelivery(t *testing.T) {
	t.Parallel()
	for name, start := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spans := tracetest.NewInMemoryExporter()
			s := start(t, servertest.WithServerOption(server.WithSpans(spans)),
				servertest.With(func(c *config.Config) { c.Telemetry.TraceRatio = 1 }))
			c := s.Client(s.Token)
			sub := subscribe(t, c, from("traced", 0))
			sub.awaitState("traced")
			want := []string{
				"parley.v1.MessageService/SendMessage", "message_change_events publish", "redis_cache_group process", "deliver insert",
			}
			testkit.Eventually(t, 15*time.Second, func() error {
				send(t, c, "traced", "hello") // the first may arrive by replay, which is not a delivery in its own trace
				traces := make(map[string]map[string]bool)
				for _, span := range spans.GetSpans() {
					id := span.SpanContext.TraceID().String()
					if traces[id] == nil {
						traces[id] = make(map[string]bool)
					}
					traces[id][span.Name] = true
				}
				best := 0
				for _, names := range traces {
					found := 0
					for _, w := range want {
						if names[w] {
							found++
						}
					}
					best = max(best, found)
				}
				if best < len(want) {
					return fmt.Errorf("no trace among %d has more than %d of %v", len(traces), best, want)
				}
				return nil
			})
		})
	}
}

// TestOpsAddress checks that the ops address serves health, readiness, metrics and pprof.
func TestOpsAddress(t *testing.T) {
	t.Parallel()
	s := servertest.Dev(t)
	c := s.Client(s.Token)
	send(t, c, "ops", "hello")
	awaitSource(t, c, "ops", "cache")
	get := func(path string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.OpsURL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
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
	for _, path := range []string{"/healthz", "/readyz", "/debug/pprof/"} {
		if code, body := get(path); code != http.StatusOK {
			t.Errorf("%s answers %d: %s", path, code, body)
		}
	}
	_, metrics := get("/metrics")
	for _, name := range []string{
		`parley_cache_pages_total{result="hit"}`, "parley_store_insert_entries", "parley_feed_published_total",
		"parley_fanout_streams", "rpc_server_call_duration_seconds", "go_goroutine",
		`parley_redis_call_duration_seconds_count{result="ok"}`, `parley_redis_pool_connections{state="idle"}`,
		`parley_redis_pool_gets_total{result="hit"}`, "parley_redis_memory_bytes", "parley_redis_keys",
	} {
		if !strings.Contains(metrics, name) {
			t.Errorf("/metrics has no %s", name)
		}
	}
}
