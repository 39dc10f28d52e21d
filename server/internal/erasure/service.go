package erasure

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/parleyhq/parley/server/internal/fault"
)

// Service implements the calls about erasures. The transport has checked the caller's capability
// and the fields. It is safe for concurrent use.
type Service struct {
	store Store
	wake  func()
}

// NewService returns a service. wake is called when there is a new job; it must not block.
func NewService(store Store, wake func()) *Service { return &Service{store, wake} }

// Erase starts a job for a user. If there is one with this id, it returns that. An empty id means a
// new one.
func (s *Service) Erase(ctx context.Context, userID, id string) (Job, error) {
	if id == "" {
		id = uuid.NewString()
	}
	job, err := s.store.Put(ctx, Job{ID: id, UserID: userID, State: Running, CreatedAt: time.Now().UTC().Truncate(time.Millisecond)})
	if err != nil {
		return Job{}, fault.Wrap(err, fault.Unavailable, fault.OutcomeUnknown, "the outcome is unknown; retry with the same request_id")
	}
	if job.UserID != userID {
		e := fault.New(fault.AlreadyExists, fault.IdempotencyKeyReused, "request_id: already used for another user")
		e.Field = "request_id"
		return Job{}, e
	}
	s.wake()
	return job, nil
}

// Get returns a job.
func (s *Service) Get(ctx context.Context, id string) (Job, error) {
	job, err := s.store.Get(ctx, id)
	if errors.Is(err, ErrNotFound) {
		e := fault.New(fault.NotFound, fault.ErasureNotFound, "request_id: there is no erasure with this id")
		e.Field = "request_id"
		return Job{}, e
	}
	return job, unavailable(err)
}

// List returns up to n jobs whose ids are greater than after, ordered by id. more reports whether
// there are others.
func (s *Service) List(ctx context.Context, after string, n int) (jobs []Job, more bool, err error) {
	jobs, err = s.store.List(ctx, after, n+1, false)
	if err != nil {
		return nil, false, unavailable(err)
	}
	if len(jobs) > n {
		return jobs[:n], true, nil
	}
	return jobs, false, nil
}

func unavailable(err error) error {
	if err == nil {
		return nil
	}
	return fault.Wrap(err, fault.Unavailable, fault.StoreUnavailable, "the store did not answer; retry")
}
