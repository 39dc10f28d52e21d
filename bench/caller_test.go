package bench

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// TestStoreCPUCoversTheSameWindow checks that a message's store CPU time counts only the measured
// window: not earlier use, nor that of the warm-up.
func TestStoreCPUCoversTheSameWindow(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("POST /call", func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusOK)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1\n"))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(metricsClient.CloseIdleConnections)
	load := &work{
		callers: 1, procedure: "/call", warm: 400 * time.Millisecond,
		request: func(int, int) proto.Message { return new(parleyv1.SendMessageRequest) },
		store: func(context.Context) (time.Duration, error) {
			return time.Hour + time.Duration(calls.Load())*time.Millisecond, nil // a call costs the store a millisecond
		},
	}
	got, err := load.run(t.Context(), &Target{Addrs: []string{server.URL}, Ops: []string{server.URL}}, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if got.store < 800 || got.store > 1200 {
		t.Errorf("a message costs the store %v us, want about 1000", got.store)
	}
}
