package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// reconnectWithin is over what time the subscribers of a draining server are asked to spread their return.
const reconnectWithin = time.Second

// Run serves until ctx ends, then drains within the configured time, and closes everything whatever happens. It returns
// nil after a drain that lost nobody's call.
func (s *Server) Run(ctx context.Context) error {
	if s.devToken != "" {
		if err := writeDevFiles(s.cfg.DataDir, s.URL(), s.devToken); err != nil {
			return errors.Join(err, s.Close(ctx))
		}
	}
	serving, running := errgroup.WithContext(ctx)
	serving.Go(func() error { return served(s.serveAPI()) })
	if s.besideLn != nil {
		serving.Go(func() error { return served(s.api.Serve(s.besideLn)) })
	}
	serving.Go(func() error { return served(s.ops.Serve(s.opsLn)) })
	var broken error
	select {
	case <-running.Done():
	case <-s.failed:
		broken = errStoreFailed
	case <-s.outlived:
		broken = errEpochReplaced
	}

	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Limits.DrainTimeout)
	defer cancel()
	err := s.drain(closing)
	// Serve has returned: it does so as soon as a shutdown begins.
	return errors.Join(broken, serving.Wait(), err)
}

// errStoreFailed ends a server whose disk failed it: what was acknowledged is there at the next start.
var errStoreFailed = errors.New("the message store failed for good; see the log")

func (s *Server) serveAPI() error {
	if s.cfg.TLS.Cert != "" {
		return s.api.ServeTLS(s.apiLn, "", "")
	}
	return s.api.Serve(s.apiLn)
}

func served(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// drain ends the server in order; see ARCHITECTURE.md. What does not end in time is cut.
func (s *Server) drain(ctx context.Context) error {
	s.draining.Store(true)
	s.handler.Health.SetServing(false)
	s.roster.Leave() // before anything else ends: the others take the work over meanwhile
	// Most of the time may go to clients; the engines need the rest to save what they have.
	clients, cancel := context.WithTimeout(ctx, s.cfg.Limits.DrainTimeout*3/4)
	defer cancel()
	err := s.drainStreams(clients)
	if shutdown := s.api.Shutdown(clients); shutdown != nil {
		err = errors.Join(err, shutdown, s.api.Close())
	}
	err = errors.Join(err, s.ops.Shutdown(clients))
	return errors.Join(err, s.done.close(ctx))
}

// drainStreams ends the streams of both kinds at once. Consumers of queues may finish what they hold for half of the time.
func (s *Server) drainStreams(ctx context.Context) error {
	var both errgroup.Group
	both.Go(func() error { return s.hub.Drain(ctx, reconnectWithin) })
	both.Go(func() error { return s.consumers.Drain(ctx, s.cfg.Limits.DrainTimeout/2) })
	return both.Wait()
}

// Close frees a server that was built and is not run. After Run it does nothing.
func (s *Server) Close(ctx context.Context) error { return s.done.close(ctx) }
