package embedded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parleyhq/parley/server/internal/revocation"
)

// Revocations implements revocation.Store. Safe for concurrent use.
type Revocations struct{ store *Store }

var _ revocation.Store = (*Revocations)(nil)

// Revocations returns a store of revocations in the same database. It is closed with s.
func (s *Store) Revocations() *Revocations { return &Revocations{s} }

// revocationRecord is the stored form of an entry.
type revocationRecord struct {
	UntilMS  int64  `json:"until_ms"`
	BeforeMS int64  `json:"before_ms,omitempty"`
	AtMS     int64  `json:"at_ms"`
	By       string `json:"by,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

func (r *revocationRecord) entry(key string) revocation.Entry {
	return revocation.Entry{
		Key: key, Until: ofMS(r.UntilMS), Before: ofMS(r.BeforeMS), At: ofMS(r.AtMS), By: r.By, Reason: r.Reason,
	}
}

func revocationKey(key string) []byte { return nameKey(revocationRow, key) }

// Revoke implements revocation.Store.
func (r *Revocations) Revoke(ctx context.Context, e revocation.Entry) error {
	s := r.store
	if err := s.begin(); err != nil {
		return fmt.Errorf("revoke: %w", err)
	}
	defer s.end()
	if !validNames(e.Key) {
		return errName
	}
	s.revoking.Lock()
	defer s.revoking.Unlock()
	if err := errors.Join(ctx.Err(), s.failure.err()); err != nil {
		return fmt.Errorf("revoke: %w", err)
	}
	v := s.views.view()
	defer s.views.release(v)
	var was revocationRecord
	if _, err := v.record(revocationKey(e.Key), &was); err != nil {
		return fmt.Errorf("revoke: %w", err)
	}
	batch := s.db.NewBatch()
	record := revocationRecord{
		UntilMS: max(ms(e.Until), was.UntilMS), BeforeMS: max(ms(e.Before), was.BeforeMS), AtMS: ms(e.At), By: e.By, Reason: e.Reason,
	}
	if err := errors.Join(s.sweep(v, batch, e.At), setRecord(batch, revocationKey(e.Key), &record)); err != nil {
		return errors.Join(err, batch.Close())
	}
	if err := s.commits.commit(batch); err != nil {
		return fmt.Errorf("revoke: %w", err)
	}
	return nil
}

// sweepRows is how many revocations one Revoke examines for removal.
const sweepRows = 32

// sweep removes the expired among the next revocations, so that their number does not grow with
// time. The caller holds revoking.
func (s *Store) sweep(v *view, batch *pebble.Batch, now time.Time) error {
	seen := 0
	err := v.walk(append(nameKey(revocationRow, s.swept), 0), []byte{revocationRow + 1}, func(key string) (bool, error) {
		var record revocationRecord
		if _, err := v.record(revocationKey(key), &record); err != nil {
			return false, err
		}
		if record.UntilMS < ms(now) {
			if err := batch.Delete(revocationKey(key), nil); err != nil {
				return false, err
			}
		}
		s.swept = key
		seen++
		return seen < sweepRows, nil
	})
	if seen < sweepRows {
		s.swept = "" // the end; begin again
	}
	return err
}

// Changes implements revocation.Store. It never has an entry: all of them are stored by this
// process, whose revocation.List has them in memory before.
func (r *Revocations) Changes(context.Context, revocation.Stamp) ([]revocation.Entry, revocation.Stamp, error) {
	return nil, revocation.Stamp{Lo: 1}, nil
}

// List implements revocation.Store.
func (r *Revocations) List(_ context.Context, after string, limit int) (entries []revocation.Entry, err error) {
	if !validNames(after) {
		return nil, errName
	}
	err = r.store.Channels().read("list revocations", func(v *view) error {
		lower := append(nameKey(revocationRow, after), 0) // just above the key of after itself
		if after == "" {
			lower = []byte{revocationRow}
		}
		return v.walk(lower, []byte{revocationRow + 1}, func(key string) (bool, error) {
			var record revocationRecord
			if _, err := v.record(revocationKey(key), &record); err != nil {
				return false, err
			}
			entries = append(entries, record.entry(key))
			return len(entries) < limit, nil
		})
	})
	return entries, err
}
