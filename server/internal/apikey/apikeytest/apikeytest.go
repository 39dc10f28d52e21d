// Package apikeytest has a store of API keys in memory, which can be away.
package apikeytest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/parleyhq/parley/server/internal/apikey"
)

// ErrAway is the error of a Store that is away.
var ErrAway = errors.New("the store is away")

// Store is a fake apikey.Store. The zero value is ready to use.
type Store struct {
	mu    sync.Mutex
	keys  map[string]apikey.Key
	away  bool
	hung  bool
	calls int
	// BeforeSet is called by SetSecrets first. It may be nil.
	BeforeSet func()
}

var _ apikey.Store = (*Store)(nil)

// SetAway makes the following calls fail with ErrAway, or succeed again.
func (s *Store) SetAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// SetHung makes the following calls of Get answer nothing before their contexts end, or answer
// again.
func (s *Store) SetHung(hung bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hung = hung
}

func (s *Store) isHung() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hung
}

// Calls returns the number of calls.
func (s *Store) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *Store) call(fn func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.away {
		return ErrAway
	}
	return fn()
}

// Create implements apikey.Store.
func (s *Store) Create(_ context.Context, k apikey.Key, forget time.Time, limit int) error {
	return s.call(func() error {
		if len(s.keys) >= limit {
			maps.DeleteFunc(s.keys, func(_ string, old apikey.Key) bool { return old.Expires.Before(forget) })
		}
		if len(s.keys) >= limit {
			return apikey.ErrFull
		}
		if s.keys == nil {
			s.keys = make(map[string]apikey.Key)
		}
		s.keys[k.ID] = k
		return nil
	})
}

// Get implements apikey.Store.
func (s *Store) Get(ctx context.Context, id string) (k apikey.Key, err error) {
	if s.isHung() {
		<-ctx.Done()
		return k, ctx.Err()
	}
	err = s.call(func() error {
		var ok bool
		if k, ok = s.keys[id]; !ok {
			return apikey.ErrNotFound
		}
		return nil
	})
	return k, err
}

// SetSecrets implements apikey.Store.
func (s *Store) SetSecrets(_ context.Context, id string, rev int64, secrets []apikey.Secret) error {
	if s.BeforeSet != nil {
		s.BeforeSet()
	}
	return s.call(func() error {
		k, ok := s.keys[id]
		if !ok {
			return apikey.ErrNotFound
		}
		if k.Rev != rev {
			return apikey.ErrChanged
		}
		k.Secrets, k.Rev = secrets, rev+1
		s.keys[id] = k
		return nil
	})
}

// Used implements apikey.Store.
func (s *Store) Used(_ context.Context, at map[string]time.Time) error {
	return s.call(func() error {
		for id, used := range at {
			if k, ok := s.keys[id]; ok && used.After(k.LastUsed) {
				k.LastUsed = used
				s.keys[id] = k
			}
		}
		return nil
	})
}

// List implements apikey.Store.
func (s *Store) List(_ context.Context, after string, limit int) (keys []apikey.Key, err error) {
	err = s.call(func() error {
		for _, id := range slices.Sorted(maps.Keys(s.keys)) {
			if id > after && len(keys) < limit {
				keys = append(keys, s.keys[id])
			}
		}
		return nil
	})
	return keys, err
}
