package server

import (
	"context"
	"errors"
	"sync"
	"time"
)

// reconnectWithin is the time over which subscribers of a draining server are asked to spread their
// reconnects.
const reconnectWithin = time.Second

// Run serves until ctx ends, a listener or the store fails, the store's epoch is replaced, or a
// Redis that was away at the start turns out to have queues in another layout. It then drains for
// up to Limits.DrainTimeout and closes everything in any case. It returns nil after a drain that
// completed every call.
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
	case broken = <-s.layout.refused:
	}

	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Limits.DrainTimeout)
	defer cancel()
	err := s.drain(closing)
	return errors.Join(broken, s.api.failure(), s.ops.failure(), err)
}

// serve starts serving the API and the ops address. In dev it first writes the files for local
// tools.
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

// errStoreFailed is Run's error if the embedded store has failed because of its disk. The next
// start finds all acknowledged messages.
var errStoreFailed = errors.New("the message store failed permanently; see the log")

// drain stops the server in the order given in ARCHITECTURE.md. It cuts every call and stream that
// does not end before ctx does.
func (s *Server) drain(ctx context.Context) error {
	s.draining.Store(true)
	s.handler.Health.SetServing(false)
	s.roster.Leave() // first, so that other nodes take over its work during the drain
	// Clients get three quarters of the time. The engines need the rest to save their data.
	clients, cancel := context.WithTimeout(ctx, s.cfg.Limits.DrainTimeout*3/4)
	defer cancel()
	return errors.Join(s.drainStreams(clients), s.api.Stop(clients), s.ops.Stop(clients), s.done.Close(ctx))
}

// drainStreams ends the streams of subscribers, with presence, and of queue consumers concurrently,
// and waits. Queue consumers get up to half of DrainTimeout to finish their deliveries. Clients
// that do not read are cut: they would hold up the calls that are under way.
func (s *Server) drainStreams(ctx context.Context) error {
	return concurrently(
		func() error {
			return s.drainOrCut(ctx, 2*reconnectWithin, func(ctx context.Context) error { return s.hub.Drain(ctx, reconnectWithin) })
		},
		func() error {
			return s.drainOrCut(ctx, 2*reconnectWithin, func(ctx context.Context) error { return s.presence.Drain(ctx, reconnectWithin) })
		},
		func() error { return s.queues.drain(ctx) },
	)
}

// drainOrCut calls drain, and again with the rest of the time if it takes longer than patience:
// then it cuts the streams that are not read.
func (s *Server) drainOrCut(ctx context.Context, patience time.Duration, drain func(context.Context) error) error {
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := drain(patient)
	if err == nil || ctx.Err() != nil {
		return err
	}
	s.handler.CutStalled()
	return drain(ctx)
}

// concurrently calls all functions at once, waits for them, and joins their errors.
func concurrently(fns ...func() error) error {
	errs := make([]error, len(fns))
	var all sync.WaitGroup
	for i, fn := range fns {
		all.Go(func() { errs[i] = fn() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Close releases the resources of a server that was built but not run. A further call, and one
// after Run, returns the error of the first close again.
func (s *Server) Close(ctx context.Context) error { return s.done.Close(ctx) }
