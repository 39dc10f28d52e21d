package telemetry

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/pprof"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// readyTimeout bounds the checks of one request to /readyz, which run concurrently.
const readyTimeout = 2 * time.Second

// Checks holds checks by name. A check returns an error if what it checks does not work, and must
// return when its context ends. It may be called concurrently.
type Checks map[string]func(context.Context) error

// OpsHandler returns a handler for the ops address:
//
//	/healthz        200 while the process serves at all
//	/readyz         200 if every required check passes, else 503; a JSON object of the outcomes of
//	                all checks either way
//	/metrics        Prometheus
//	/debug/pprof/   profiles
//
// The responses reveal internals of the server, so the address must not be public.
func (t *Telemetry) OpsHandler(required, reported Checks) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { serveReady(w, r, required, reported) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

func serveReady(w http.ResponseWriter, r *http.Request, required, reported Checks) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	checks := maps.Clone(reported)
	maps.Copy(checks, required)
	outcomes := make(map[string]string, len(checks))
	status := http.StatusOK
	var mu sync.Mutex // guards outcomes and status
	var wg sync.WaitGroup
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		wg.Go(func() {
			err := checks[name](ctx)
			mu.Lock()
			defer mu.Unlock()
			outcomes[name] = "ok"
			if err == nil {
				return
			}
			outcomes[name] = err.Error()
			if required[name] != nil {
				status = http.StatusServiceUnavailable
			}
		})
	}
	wg.Wait()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(outcomes) // the prober may have disconnected
}

// NewOpsServer returns the HTTP server of the ops address. It has no write timeout, because a CPU
// profile streams for as long as requested.
func NewOpsServer(h http.Handler) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // proxies check health with the protocol of the API
	return &http.Server{
		Handler: h, Protocols: &protocols, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute,
	}
}
