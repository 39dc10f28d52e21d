package server

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
)

// reconnectWithin is over what time the subscribers of a draining server are asked to spread their return.
const reconnectWithin = time.Second

// Run serves until ctx ends, then drains within the configured time, and closes everything whatever happens. It returns
// nil after a drain that lost nobody's call.
func (s *Server) Run(ctx context.Context) error {
	if err := s.serve(ctx); err != nil {
		return errors.Join(err, s.Close(ctx))
	}
	var broken error
	select {
	case <-ctx.Done():
	case <-s.api.failed:
	case <-s.ops.failed:
	case <-s.failed:
		broken = errStoreFailed
	case <-s.epoch.replaced:
		broken = errEpochReplaced
	}

	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Limits.DrainTimeout)
	defer cancel()
	err := s.drain(closing)
	return errors.Join(broken, s.api.failure(), s.ops.failure(), err)
}

// serve opens the API and the ops address for calls.
func (s *Server) serve(ctx context.Context) error {
	if s.devToken != "" {
		if err := writeDevFiles(s.cfg.DataDir, s.URL(), s.devToken); err != nil {
			return err
		}
	}
	if err := s.api.Start(ctx); err != nil {
		return err
	}
	return s.ops.Start(ctx)
}

// errStoreFailed ends a server whose disk failed it: what was acknowledged is there at the next start.
var errStoreFailed = errors.New("the message store failed for good; see the log")

// drain ends the server in order; see ARCHITECTURE.md. What does not end in time is cut.
func (s *Server) drain(ctx context.Context) error {
	s.draining.Store(true)
	s.handler.Health.SetServing(false)
	s.roster.Leave() // before anything else ends: the others take the work over meanwhile
	// Most of the time may go to clients; the engines need the rest to save what they have.
	clients, cancel := context.WithTimeout(ctx, s.cfg.Limits.DrainTimeout*3/4)
	defer cancel()
	return errors.Join(s.drainStreams(clients), s.api.Stop(clients), s.ops.Stop(clients), s.done.Close(ctx))
}

// drainStreams ends the streams of both kinds at once. Consumers of queues may finish what they hold for half of the time.
func (s *Server) drainStreams(ctx context.Context) error {
	var both errgroup.Group
	both.Go(func() error { return s.hub.Drain(ctx, reconnectWithin) })
	both.Go(func() error { return s.consumers.Drain(ctx, s.cfg.Limits.DrainTimeout/2) })
	return both.Wait()
}

// Close frees a server that was built and is not run. After Run it does nothing.
func (s *Server) Close(ctx context.Context) error { return s.done.Close(ctx) }
