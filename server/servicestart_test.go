package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/parleyhq/parley/server/internal/lifecycle/lifecycletest"
)

func TestConcurrentlyJoinsErrors(t *testing.T) {
	t.Parallel()
	one, two := errors.New("one"), errors.New("two")
	err := concurrently(func() error { return one }, func() error { return nil }, func() error { return two })
	if !errors.Is(err, one) || !errors.Is(err, two) {
		t.Errorf("got %v", err)
	}
}

type oneEpoch struct{}

func (oneEpoch) StoredEpoch(context.Context) (string, error) { return "e1", nil }

func TestEpochWatcherStartsAndStops(t *testing.T) {
	t.Parallel()
	lifecycletest.Stress[*epochWatcher](t, func(*testing.T) *epochWatcher {
		return newEpochWatcher(oneEpoch{}, "e1", slog.New(slog.DiscardHandler))
	})
}

type absentLayout struct{}

func (absentLayout) CheckLayout(context.Context) error { return errors.New("Redis is away") }

func TestLayoutWatcherStartsAndStops(t *testing.T) {
	t.Parallel()
	lifecycletest.Stress[*layoutWatcher](t, func(*testing.T) *layoutWatcher {
		return newLayoutWatcher(absentLayout{}, slog.New(slog.DiscardHandler))
	})
}

func listener(t *testing.T) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // Serve may have closed it
	return l
}

func TestHTTPServerStartsAndStops(t *testing.T) {
	t.Parallel()
	lifecycletest.Stress[*httpServer](t, func(t *testing.T) *httpServer {
		return newHTTPServer(&http.Server{Handler: http.NotFoundHandler()}, listener(t), nil, listener(t))
	})
}

// TestHTTPServerStopWaitsForCalls checks that a call in flight finishes before Stop returns,
// or is cut when Stop's context ends.
func TestHTTPServerStopWaitsForCalls(t *testing.T) {
	t.Parallel()
	for name, hurry := range map[string]bool{"finished": false, "cut": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entered, release := make(chan struct{}), make(chan struct{})
			l := listener(t)
			h := newHTTPServer(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				close(entered)
				<-release
				_, _ = io.WriteString(w, "done")
			})}, l)
			if err := h.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			answer := make(chan string, 1)
			go func() { answer <- get(t, "http://"+l.Addr().String()) }()
			<-entered
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stopped := make(chan error, 1)
			go func() { stopped <- h.Stop(ctx) }()
			if hurry {
				cancel()
				if err := <-stopped; !errors.Is(err, context.Canceled) {
					t.Errorf("Stop returned %v", err)
				}
				if got := <-answer; got == "done" {
					t.Error("the call finished, want it canceled")
				}
				close(release)
				return
			}
			close(release)
			if got := <-answer; got != "done" {
				t.Errorf("the call got %q", got)
			}
			if err := <-stopped; err != nil {
				t.Errorf("Stop returned %v", err)
			}
		})
	}
}

// get returns a call's response, or its error.
func get(t *testing.T, url string) string {
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, url, http.NoBody)
	if err != nil {
		return err.Error()
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}

func TestHTTPServerReportsListenerFailure(t *testing.T) {
	t.Parallel()
	l := listener(t)
	h := newHTTPServer(&http.Server{Handler: http.NotFoundHandler()}, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	lifecycletest.Start(t, h)
	<-h.failed
	if err := h.failure(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it failed with %v", err)
	}
}
