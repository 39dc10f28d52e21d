package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"

	"github.com/parleyhq/parley/server/internal/lifecycle"
)

// httpServer serves HTTP on open listeners, which stay the caller's. It implements lifecycle.Service.
type httpServer struct {
	server    *http.Server
	listeners []net.Listener
	tls       bool
	life      lifecycle.Base
	// failed is closed when a listener has failed; err is set before.
	failed chan struct{}
	once   sync.Once
	err    error
}

// newHTTPServer makes a service that serves on those of the listeners that are not nil: with TLS if the server has a
// TLSConfig.
func newHTTPServer(server *http.Server, listeners ...net.Listener) *httpServer {
	h := &httpServer{server: server, tls: server.TLSConfig != nil, failed: make(chan struct{})}
	for _, l := range listeners {
		if l != nil {
			h.listeners = append(h.listeners, l)
		}
	}
	return h
}

// Start begins to serve. See lifecycle.Service.
func (h *httpServer) Start(ctx context.Context) error {
	return h.life.Start(ctx, func(_ context.Context, run *lifecycle.Run) error {
		run.OnStop(h.shutdown)
		for _, l := range h.listeners {
			run.Go(func(context.Context) { h.serve(l) })
		}
		return nil
	})
}

// Stop closes the listeners and waits for the calls under way. If ctx ends before, it closes their connections and returns
// ctx's error; it does not wait for handlers then.
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

// failure returns why a listener has failed; nil if none has. Call it after Stop or once failed is closed.
func (h *httpServer) failure() error { return h.err }
