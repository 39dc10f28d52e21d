package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"

	"github.com/parleyhq/parley/server/internal/lifecycle"
)

// httpServer serves HTTP on listeners that the caller has opened. Stop closes them if Start was
// called, but the caller closes them in any case. It implements lifecycle.Service.
type httpServer struct {
	server    *http.Server
	listeners []net.Listener
	tls       bool
	life      lifecycle.Base
	// failed is closed when serving on a listener has failed, other than by Stop. err is set before
	// that.
	failed chan struct{}
	once   sync.Once
	err    error
}

// newHTTPServer creates a service that serves on the listeners, ignoring nil ones. It serves TLS if
// the server has a TLSConfig.
func newHTTPServer(server *http.Server, listeners ...net.Listener) *httpServer {
	h := &httpServer{server: server, tls: server.TLSConfig != nil, failed: make(chan struct{})}
	for _, l := range listeners {
		if l != nil {
			h.listeners = append(h.listeners, l)
		}
	}
	return h
}

// Start starts serving. See lifecycle.Service.
func (h *httpServer) Start(ctx context.Context) error {
	return h.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		run.OnStop(h.shutdown)
		for _, l := range h.listeners {
			run.Go(func(context.Context) { h.serve(l) })
		}
		return nil
	})
}

// Stop closes the listeners and waits for calls in flight. If ctx ends first, Stop closes their
// connections and returns ctx's error without waiting for the handlers.
func (h *httpServer) Stop(ctx context.Context) error { return h.life.Stop(ctx) }

func (h *httpServer) serve(l net.Listener) {
	var err error
	if h.tls {
		err = h.server.ServeTLS(l, "", "")
	} else {
		err = h.server.Serve(l)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		h.once.Do(func() {
			h.err = err
			close(h.failed)
		})
	}
}

func (h *httpServer) shutdown(ctx context.Context) error {
	if err := h.server.Shutdown(ctx); err != nil {
		return errors.Join(err, h.server.Close())
	}
	return nil
}

// failure returns the error of the first listener that failed, or nil. Call it only after Stop or
// after failed is closed.
func (h *httpServer) failure() error { return h.err }
