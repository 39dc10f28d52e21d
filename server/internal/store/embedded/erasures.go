package embedded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/parleyhq/parley/server/internal/erasure"
)

// Erasures implements erasure.Store. Safe for concurrent use.
type Erasures struct{ store *Store }

var _ erasure.Store = (*Erasures)(nil)

// Erasures returns a store of erasures in the same database. It is closed with s.
func (s *Store) Erasures() *Erasures { return &Erasures{s} }

// erasureRecord is the stored form of a job.
type erasureRecord struct {
	UserID      string   `json:"user_id"`
	State       int8     `json:"state"`
	CreatedMS   int64    `json:"created_ms"`
	ErasedMS    int64    `json:"erased_ms,omitempty"`
	FinishedMS  int64    `json:"finished_ms,omitempty"`
	Messages    int64    `json:"messages,omitempty"`
	Changes     int64    `json:"changes,omitempty"`
	Memberships int64    `json:"memberships,omitempty"`
	NextMS      int64    `json:"next_ms,omitempty"`
	QuietMS     int64    `json:"quiet_ms,omitempty"`
	Cached      []string `json:"cached,omitempty"`
	Sessions    []string `json:"sessions,omitempty"`
	Rev         int64    `json:"rev"`
}

// ms returns a time in Unix milliseconds; 0 for the zero time. ofMS is its inverse.
func ms(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func ofMS(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}

func erasureRecordOf(j *erasure.Job) erasureRecord {
	return erasureRecord{
		UserID: j.UserID, State: int8(j.State), CreatedMS: ms(j.CreatedAt), ErasedMS: ms(j.ErasedAt), FinishedMS: ms(j.FinishedAt),
		Messages: j.Messages, Changes: j.Changes, Memberships: j.Memberships, NextMS: ms(j.NextAt), QuietMS: ms(j.QuietAt),
		Cached: j.Cached, Sessions: j.Sessions, Rev: j.Rev,
	}
}

func (r *erasureRecord) job(id string) erasure.Job {
	return erasure.Job{
		ID: id, UserID: r.UserID, State: erasure.State(r.State), CreatedAt: ofMS(r.CreatedMS), ErasedAt: ofMS(r.ErasedMS),
		FinishedAt: ofMS(r.FinishedMS), Messages: r.Messages, Changes: r.Changes, Memberships: r.Memberships,
		NextAt: ofMS(r.NextMS), QuietAt: ofMS(r.QuietMS), Cached: r.Cached, Sessions: r.Sessions, Rev: r.Rev,
	}
}

func erasureKey(id string) []byte { return nameKey(erasureRow, id) }

// Put implements erasure.Store.
func (e *Erasures) Put(ctx context.Context, job erasure.Job) (erasure.Job, error) {
	return e.change(ctx, "put erasure", job, func(stored *erasure.Job) (bool, error) { return stored == nil, nil })
}

// Save implements erasure.Store.
func (e *Erasures) Save(ctx context.Context, job erasure.Job) (erasure.Job, error) {
	return e.change(ctx, "save erasure", job, func(stored *erasure.Job) (bool, error) {
		if stored == nil || stored.Rev != job.Rev {
			return false, erasure.ErrChanged
		}
		return true, nil
	})
}

// change stores the job, with the next revision, if decide returns true for the one that is stored,
// which is nil if none is. It returns the job that is stored then.
func (e *Erasures) change(ctx context.Context, what string, job erasure.Job, decide func(stored *erasure.Job) (bool, error),
) (erasure.Job, error) {
	s := e.store
	if err := s.begin(); err != nil {
		return erasure.Job{}, fmt.Errorf("%s: %w", what, err)
	}
	defer s.end()
	if !validNames(job.ID) {
		return erasure.Job{}, errName
	}
	s.erasing.Lock()
	defer s.erasing.Unlock()
	if err := errors.Join(ctx.Err(), s.failure.err()); err != nil {
		return erasure.Job{}, fmt.Errorf("%s: %w", what, err)
	}
	v := s.views.view()
	defer s.views.release(v)
	var record erasureRecord
	found, err := v.record(erasureKey(job.ID), &record)
	if err != nil {
		return erasure.Job{}, fmt.Errorf("%s: %w", what, err)
	}
	var stored *erasure.Job
	if found {
		was := record.job(job.ID)
		stored = &was
	}
	write, err := decide(stored)
	if err != nil {
		return erasure.Job{}, fmt.Errorf("%s: %w", what, err)
	}
	if !write {
		return *stored, nil
	}
	if stored != nil {
		job.Rev = stored.Rev + 1
	}
	batch := s.db.NewBatch()
	fresh := erasureRecordOf(&job)
	if err := setRecord(batch, erasureKey(job.ID), &fresh); err != nil {
		return erasure.Job{}, errors.Join(err, batch.Close())
	}
	if err := s.commits.commit(batch); err != nil {
		return erasure.Job{}, fmt.Errorf("%s: %w", what, err)
	}
	return job, nil
}

// Get implements erasure.Store.
func (e *Erasures) Get(_ context.Context, id string) (job erasure.Job, err error) {
	if !validNames(id) {
		return erasure.Job{}, erasure.ErrNotFound
	}
	err = e.store.Channels().read("get erasure", func(v *view) error {
		var record erasureRecord
		found, err := v.record(erasureKey(id), &record)
		if err == nil && !found {
			err = erasure.ErrNotFound
		}
		job = record.job(id)
		return err
	})
	if err != nil {
		return erasure.Job{}, err
	}
	return job, nil
}

// List implements erasure.Store. It passes over finished jobs.
func (e *Erasures) List(_ context.Context, after string, limit int, open bool) (jobs []erasure.Job, err error) {
	if !validNames(after) {
		return nil, errName
	}
	err = e.store.Channels().read("list erasures", func(v *view) error {
		lower := append(nameKey(erasureRow, after), 0) // just above the key of after itself
		if after == "" {
			lower = []byte{erasureRow}
		}
		return v.walk(lower, []byte{erasureRow + 1}, func(id string) (bool, error) {
			var record erasureRecord
			if _, err := v.record(erasureKey(id), &record); err != nil {
				return false, err
			}
			if !open || erasure.State(record.State) != erasure.Finished {
				jobs = append(jobs, record.job(id))
			}
			return len(jobs) < limit, nil
		})
	})
	return jobs, err
}
