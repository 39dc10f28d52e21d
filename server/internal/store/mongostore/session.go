package mongostore

import (
	"context"
	"fmt"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// horizon is the highest operation time of the server's answers to this store. No read is answered
// from an earlier state. Safe for concurrent use.
type horizon struct {
	mu sync.Mutex
	at bson.Timestamp // guarded by mu
}

func (h *horizon) raise(t *bson.Timestamp) {
	if t == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.After(h.at) {
		h.at = *t
	}
}

func (h *horizon) get() bson.Timestamp {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at
}

// run calls op in a session and within the store's time limit. It raises the horizon to the time of
// the answers to op, including errors. Use it for writes, which are never stale.
func (s *Store) run(ctx context.Context, op func(context.Context) error) error {
	return s.inSession(ctx, op, nil)
}

// read is like run, for majority reads: none of them is answered from a state before the horizon
// (the newest earlier answer). It repeats op after transient errors. The driver retries only once,
// which is not enough on an unreliable link.
func (s *Store) read(ctx context.Context, op func(context.Context) error) error {
	since := s.horizon.get()
	return s.inSession(ctx, again(op), &since)
}

// again repeats op after transient errors until ctx ends. op must be safe to repeat.
func again(op func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			err := op(ctx)
			if err == nil || ctx.Err() != nil || !isTransient(err) {
				return err
			}
		}
	}
}

func (s *Store) inSession(ctx context.Context, op func(context.Context) error, since *bson.Timestamp) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	session, err := s.client.StartSession() // causally consistent, by the driver's default
	if err != nil {
		return fmt.Errorf("start session: %w", err)
	}
	defer session.EndSession(ctx)
	if since != nil && !since.IsZero() {
		if err := session.AdvanceOperationTime(since); err != nil {
			return fmt.Errorf("advance session: %w", err)
		}
	}
	err = op(mongo.NewSessionContext(ctx, session))
	s.horizon.raise(session.OperationTime())
	return err
}
