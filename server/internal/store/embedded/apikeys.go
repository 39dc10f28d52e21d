package embedded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/parleyhq/parley/server/internal/apikey"
	"github.com/parleyhq/parley/server/internal/ident"
)

// APIKeys implements apikey.Store. Safe for concurrent use.
type APIKeys struct{ store *Store }

var _ apikey.Store = (*APIKeys)(nil)

// APIKeys returns a store of API keys in the same database. It is closed with s.
func (s *Store) APIKeys() *APIKeys { return &APIKeys{s} }

// apiKeyRecord is the stored form of a key.
type apiKeyRecord struct {
	Name       string                    `json:"name"`
	Subject    string                    `json:"subject"`
	Grants     map[string][]ident.Action `json:"grants"`
	CreatedMS  int64                     `json:"created_ms"`
	CreatedBy  string                    `json:"created_by"`
	ExpiresMS  int64                     `json:"expires_ms"`
	Secrets    []apiSecretRecord         `json:"secrets"`
	LastUsedMS int64                     `json:"last_used_ms,omitempty"`
	Rev        int64                     `json:"rev"`
}

type apiSecretRecord struct {
	Digest  []byte `json:"digest"`
	UntilMS int64  `json:"until_ms,omitempty"`
}

func apiSecretRecords(secrets []apikey.Secret) []apiSecretRecord {
	records := make([]apiSecretRecord, len(secrets))
	for i := range secrets {
		records[i] = apiSecretRecord{secrets[i].Digest[:], ms(secrets[i].Until)}
	}
	return records
}

func (r *apiKeyRecord) key(id string) apikey.Key {
	k := apikey.Key{
		ID: id, Name: r.Name, Subject: r.Subject, Grants: r.Grants, Created: ofMS(r.CreatedMS), CreatedBy: r.CreatedBy,
		Expires: ofMS(r.ExpiresMS), Secrets: make([]apikey.Secret, len(r.Secrets)), LastUsed: ofMS(r.LastUsedMS), Rev: r.Rev,
	}
	for i := range r.Secrets {
		copy(k.Secrets[i].Digest[:], r.Secrets[i].Digest)
		k.Secrets[i].Until = ofMS(r.Secrets[i].UntilMS)
	}
	return k
}

func apiKeyKey(id string) []byte { return nameKey(apiKeyRow, id) }

// change commits what fn adds to a batch. Changes of API keys are made one at a time.
func (a *APIKeys) change(ctx context.Context, what string, fn func(v *view, batch *pebble.Batch) error) error {
	s := a.store
	if err := s.begin(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer s.end()
	s.keying.Lock()
	defer s.keying.Unlock()
	if err := errors.Join(ctx.Err(), s.failure.err()); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	v := s.views.view()
	defer s.views.release(v)
	batch := s.db.NewBatch()
	if err := fn(v, batch); err != nil {
		return fmt.Errorf("%s: %w", what, errors.Join(err, batch.Close()))
	}
	if err := s.commits.commit(batch); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Create implements apikey.Store.
func (a *APIKeys) Create(ctx context.Context, k apikey.Key, forget time.Time, limit int) error {
	if !validNames(k.ID) {
		return errName
	}
	return a.change(ctx, "create API key", func(v *view, batch *pebble.Batch) error {
		n := 0
		err := v.walk([]byte{apiKeyRow}, []byte{apiKeyRow + 1}, func(id string) (bool, error) {
			var record apiKeyRecord
			if _, err := v.record(apiKeyKey(id), &record); err != nil {
				return false, err
			}
			if record.ExpiresMS < ms(forget) {
				return true, batch.Delete(apiKeyKey(id), nil)
			}
			n++
			return true, nil
		})
		if err != nil {
			return err
		}
		if n >= limit {
			return apikey.ErrFull
		}
		return setRecord(batch, apiKeyKey(k.ID), &apiKeyRecord{
			Name: k.Name, Subject: k.Subject, Grants: k.Grants, CreatedMS: ms(k.Created), CreatedBy: k.CreatedBy, ExpiresMS: ms(k.Expires),
			Secrets: apiSecretRecords(k.Secrets), LastUsedMS: ms(k.LastUsed), Rev: k.Rev,
		})
	})
}

// Get implements apikey.Store.
func (a *APIKeys) Get(_ context.Context, id string) (key apikey.Key, err error) {
	if !validNames(id) {
		return apikey.Key{}, apikey.ErrNotFound
	}
	err = a.store.Channels().read("get API key", func(v *view) error {
		var record apiKeyRecord
		found, err := v.record(apiKeyKey(id), &record)
		if err == nil && !found {
			err = apikey.ErrNotFound
		}
		key = record.key(id)
		return err
	})
	if err != nil {
		return apikey.Key{}, err
	}
	return key, nil
}

// SetSecrets implements apikey.Store.
func (a *APIKeys) SetSecrets(ctx context.Context, id string, rev int64, secrets []apikey.Secret) error {
	if !validNames(id) {
		return apikey.ErrNotFound
	}
	return a.change(ctx, "set the secrets of an API key", func(v *view, batch *pebble.Batch) error {
		var record apiKeyRecord
		switch found, err := v.record(apiKeyKey(id), &record); {
		case err != nil:
			return err
		case !found:
			return apikey.ErrNotFound
		case record.Rev != rev:
			return apikey.ErrChanged
		}
		record.Secrets, record.Rev = apiSecretRecords(secrets), rev+1
		return setRecord(batch, apiKeyKey(id), &record)
	})
}

// Used implements apikey.Store.
func (a *APIKeys) Used(ctx context.Context, at map[string]time.Time) error {
	return a.change(ctx, "store the uses of API keys", func(v *view, batch *pebble.Batch) error {
		for id, used := range at {
			var record apiKeyRecord
			found, err := v.record(apiKeyKey(id), &record)
			if err != nil {
				return err
			}
			if !found || record.LastUsedMS >= ms(used) {
				continue
			}
			record.LastUsedMS = ms(used)
			if err := setRecord(batch, apiKeyKey(id), &record); err != nil {
				return err
			}
		}
		return nil
	})
}

// List implements apikey.Store.
func (a *APIKeys) List(_ context.Context, after string, limit int) (keys []apikey.Key, err error) {
	if !validNames(after) {
		return nil, errName
	}
	err = a.store.Channels().read("list API keys", func(v *view) error {
		lower := append(apiKeyKey(after), 0) // just above the key of after itself
		if after == "" {
			lower = []byte{apiKeyRow}
		}
		return v.walk(lower, []byte{apiKeyRow + 1}, func(id string) (bool, error) {
			var record apiKeyRecord
			if _, err := v.record(apiKeyKey(id), &record); err != nil {
				return false, err
			}
			keys = append(keys, record.key(id))
			return len(keys) < limit, nil
		})
	})
	return keys, err
}
