package consume

import (
	"context"
	"time"

	"github.com/parleyhq/parley/server/internal/lifecycle"
	"github.com/parleyhq/parley/server/internal/stream"
)

const (
	// drainFor bounds the time in which a node that stops releases its leases.
	drainFor = 2 * time.Second
	// drainLook is how often the node looks whether it is done.
	drainLook = 5 * time.Millisecond
	// reportFor is how long a node that stops reports what its sessions have to the new holders.
	reportFor = 500 * time.Millisecond
	// lingerFor is how long an engine without work is kept.
	lingerFor = time.Minute
)

// drain releases the leases, has the next holders told what the sessions of this node have, and ends
// the streams. What is not released in time is taken over when the node's beat has ended.
func (s *Service) drain(ctx context.Context) error {
	streams := s.streams.Refuse()
	s.mu.Lock()
	s.draining = true
	engines := make([]*engine, 0, len(s.engines))
	for _, e := range s.engines {
		engines = append(engines, e)
	}
	s.mu.Unlock()
	for _, e := range engines {
		e.post(func(now time.Time) { e.drain(now) })
	}
	s.await(ctx, drainFor, engines, func(e *engine) bool { return len(e.order) > 0 })
	s.await(ctx, reportFor, engines, (*engine).mustReport)
	for _, st := range streams {
		st.end(stream.ShuttingDown())
	}
	s.await(ctx, reportFor, engines, (*engine).mustReport)
	s.mu.Lock()
	s.run = nil
	s.mu.Unlock()
	return nil
}

// await waits until busy is false for all engines, at most for a time.
func (s *Service) await(ctx context.Context, most time.Duration, engines []*engine, busy func(e *engine) bool) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for _, e := range engines {
		for {
			is, err := ask(ctx, e, func(time.Time) bool { return busy(e) })
			if err != nil || !is || lifecycle.Pause(ctx, drainLook) != nil {
				break
			}
		}
	}
}

// drain begins to release all leases. None is acquired any more. The other nodes must know first that
// this one takes none, or they would leave them to it: see topic.reviewed.
func (e *engine) drain(now time.Time) {
	e.draining = true
	for _, t := range e.topics {
		t.review = now
	}
}

// mustReport reports whether a living holder does not know yet what sessions of this node have.
func (e *engine) mustReport() bool {
	for _, p := range e.peers {
		if p.reporting || len(p.complete) > 0 {
			return true
		}
	}
	for _, s := range e.sessions {
		for token, held := range s.held {
			t := e.topics[token.Topic]
			if held.counted && t != nil && !t.alone {
				if node := t.holder(token.Partition); node == "" || s.confirmed[node].IsZero() || s.tell[node] {
					return true
				}
			}
		}
	}
	return false
}

// mayRetire reports whether the engine has had nothing to do for a while.
func (e *engine) mayRetire(now time.Time) bool {
	if len(e.sessions)+len(e.moved)+len(e.remotes)+len(e.holders)+len(e.topics)+len(e.peers) > 0 {
		e.idleSince = time.Time{}
		return false
	}
	if e.idleSince.IsZero() {
		e.idleSince = now
	}
	return now.Sub(e.idleSince) >= lingerFor
}
